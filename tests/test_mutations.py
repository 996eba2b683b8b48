"""Every prefix, and every change of one byte, of one small file in each format.

Such a file is refused, or read safely; what `verify` finds nothing missing in holds the counts that
were written. A few values a byte are tried here, among them all flips of one bit;
LOOKUP_EXHAUSTIVE=1 tries all 255 (`make long-test`). tests/c/mutate.c always does, with what the
core reads, under the sanitizers too.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import attacks.gguf
import attacks.tokens
import numpy as np
import pytest
from helpers import Counts, counts_of, write_counts
from test_tokenizers import write_gguf

from lookup_tools import open_cache, open_tokenizer, verify_cache
from lookup_tools.cache import Cache, ConstmapCache
from lookup_tools.errors import LookupToolsError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sidecar import SUFFIX
from lookup_tools.tokenizers.gguf_metadata import read_metadata
from lookup_tools.tokens import TokenInfo, TokenWriter, load_tokens, read_token_info

EXHAUSTIVE = bool(os.environ.get("LOOKUP_EXHAUSTIVE"))
COUNTS: Counts = {(1, 2): {3: 4, 5: 1}, (2, 3): {7: 1}}
META = CacheMeta(vocab_size=9, fingerprint="f" * 32, tool="")
REFUSED = object()


class Subject(NamedTuple):
    """How to make a file, which of the files it comes with is changed, and what reads it: the
    answer, and whether every part of it was proved."""

    write: Callable[[Path], object]
    suffix: str
    read: Callable[[Path], tuple[Any, bool]]


# ---- caches


def use(cache: Cache) -> None:
    """What nobody verified has to answer as well, or to say that it is damaged."""
    for ngram in (*COUNTS, (0, 0), (3, 5)):
        with contextlib.suppress(LookupToolsError):
            cache.followers(ngram)


def enumerable(cache: Cache) -> bool:
    """Whether verifying ends soon: where there are no keys, all pairs of ids may be tried."""
    if not isinstance(cache, ConstmapCache) or cache.has_keys:
        return True
    return int(cache.entries()[:, 0].max(initial=0)) < 1000


def read_cache(path: Path) -> tuple[Any, bool]:
    with open_cache(path) as cache:
        use(cache)
        if not enumerable(cache):
            return None, False
        report = verify_cache(cache)
        proved = not any("counts" in line for line in report.unproved)
        if isinstance(cache, ConstmapCache) and not cache.has_keys:
            return None, proved
        return counts_of(cache), proved


def cache_subject(fmt: str, suffix: str = "", **options: Any) -> Subject:
    return Subject(
        lambda path: write_counts(path, COUNTS, fmt, META, **options), suffix, read_cache
    )


# ---- token files


def write_tokens(vocab_size: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with TokenWriter(path, vocab_size, "f" * 32, tokenizer="t", corpora=("c",)) as writer:
            writer.append(np.array([1, 2, 3, 4, 8]), doc_ends=[3, 3])

    return write


def read_tokens(path: Path) -> tuple[Any, bool]:
    info = read_token_info(path)
    stream = load_tokens(path)
    assert stream.info == info
    # raw files prove nothing: what was a token file must not become one
    proved = info != TokenInfo()
    return (stream.ids.tolist(), stream.doc_ends.tolist(), info), proved


def write_raw(path: Path) -> None:
    path.write_bytes(np.array([1, 2, 3, 4, 8], "<u2").tobytes())


def write_metadata(path: Path) -> None:
    path.write_bytes(attacks.gguf.file())


def read_pairs(path: Path) -> tuple[Any, bool]:
    return repr(read_metadata(path)), False  # no checksum covers it


SUBJECTS = {
    "legacy": cache_subject("legacy", annex=False),
    "legacy-with-sidecar": cache_subject("legacy"),
    "sidecar": cache_subject("legacy", SUFFIX),
    "constmap-xxh64": cache_subject("constmap"),
    "constmap-xxh3": cache_subject("constmap", map_hash="xxh3"),
    "constmap-bare": cache_subject("constmap", annex=False),
    "constmap2": cache_subject("constmap2", annex=False),
    "constmap2-with-annex": cache_subject("constmap2"),
    "tokens.u16": Subject(write_tokens(1000), "", read_tokens),
    "tokens.u32": Subject(write_tokens(70_000), "", read_tokens),
    "tokens.u16.zst": Subject(write_tokens(1000), "", read_tokens),
    "raw.u16": Subject(write_raw, "", read_tokens),
    "model.gguf": Subject(write_metadata, "", read_pairs),
}


# ---- trying them


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Subject, Path]]:
    """A subject, and its good file in memory."""
    subject = SUBJECTS[request.param]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = Path(folder) / request.param
        subject.write(path)
        yield subject, path


def attempt(subject: Subject, path: Path, good: Any, said: object) -> str:
    """What became of one file; fails where it should not have."""
    try:
        answer, proved = subject.read(path)
    except LookupToolsError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert str(path) in refusal, said
        return "refused"
    if proved:
        assert answer == good, f"{said}: passes for proved"
        return "the same"
    return "not proved"


def values(at: int, byte: int) -> list[int]:
    """What to put in the place of a byte."""
    if EXHAUSTIVE:
        return [value for value in range(256) if value != byte]
    some = [byte ^ (1 << bit) for bit in range(8)]
    some += [0, 0xFF, (37 * at + 11) % 256]
    return sorted(set(some) - {byte})


def note(what: str, found: Counter[str]) -> None:
    """Shown by pytest -rP."""
    print(f"{found.total()} {what}: " + ", ".join(f"{n} {key}" for key, n in found.items()))


@pytest.mark.parametrize("made", SUBJECTS, indirect=True)
def test_every_prefix_is_refused(
    made: tuple[Subject, Path],
) -> None:
    subject, path = made
    target = Path(f"{path}{subject.suffix}")
    data = target.read_bytes()
    good, _ = subject.read(path)
    found: Counter[str] = Counter()
    whole = []
    for size in range(len(data)):
        target.write_bytes(data[:size])
        outcome = attempt(subject, path, good, f"{size} bytes")
        found[outcome] += 1
        whole += [size] if outcome != "refused" else []
    note("prefixes", found)
    # Nothing tells a bare legacy file cut between two records, or raw ids, from whole ones, and
    # JSON ends before its last line does.
    harmless = {"legacy": [36], "raw.u16": [2, 4, 6, 8], "sidecar": [len(data) - 1]}
    assert whole == harmless.get(path.name, [])
    assert found.total() == len(data)


@pytest.mark.parametrize("made", SUBJECTS, indirect=True)
def test_every_changed_byte_is_refused_or_answers_safely(
    made: tuple[Subject, Path],
) -> None:
    subject, path = made
    target = Path(f"{path}{subject.suffix}")
    data = target.read_bytes()
    good, proved = subject.read(path)
    found: Counter[str] = Counter()
    with target.open("r+b", buffering=0) as file:
        for at, byte in enumerate(data):
            for value in values(at, byte):
                os.pwrite(file.fileno(), bytes([value]), at)
                found[attempt(subject, path, good, f"byte {at} is {value}")] += 1
            os.pwrite(file.fileno(), bytes([byte]), at)
    assert subject.read(path) == (good, proved)
    note("changed bytes", found)
    assert found.total() >= 8 * len(data)
    assert not EXHAUSTIVE or found.total() == 255 * len(data)
    if proved:  # what no checksum covers is the text of the metadata, which changes no count
        assert found["refused"] > found.total() // 2


def test_a_changed_vocabulary_is_another_or_refused(tmp_path: Path) -> None:
    """Bytes of a whole model's metadata, which nothing covers."""
    path = write_gguf(tmp_path / "small.gguf")
    good = open_tokenizer(path)
    data = bytearray(path.read_bytes())
    rng = random.Random(1)
    refused = 0
    for _ in range(2000 if EXHAUSTIVE else 200):
        at, mask = rng.randrange(len(data)), rng.randrange(1, 256)
        data[at] ^= mask
        path.write_bytes(data)
        data[at] ^= mask
        try:
            tokenizer = open_tokenizer(path)
            ids = tokenizer.encode("the old man")
        except LookupToolsError:
            refused += 1
            continue
        if tokenizer.fingerprint == good.fingerprint:
            assert ids.tolist() == good.encode("the old man").tolist()
    assert refused
