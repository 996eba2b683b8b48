"""Learn the prior of ngram-adaptive: rates and weights that hold for texts of any kind.

    python scripts/make_prior.py --model model.gguf -o lookup_tools/drafting/prior.bin

Texts, all at hand wherever Python 3.11 and this repository are: WikiText-2 (the first MB of
`train`, in tests/data), packages of the standard library, Python's help topics, chats that edit
those packages, made-up JSON, logs and tables, and shuffled words. Top-level modules of the standard
library and wiki.test are left out, for drafts are measured on them.

Every segment starts with what the ones before it taught, and with nothing that belongs to single
tokens; every other one has a static cache, counted from the other half of the same text. A third of
them finds no earlier texts, as the first chunk of a new drafter does. The same texts and seed give
the same file. Its rates are loaded with at most 40 trials, so that a text soon outweighs them.
"""

from __future__ import annotations

import json
import random
import string
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import chat_like
import click
import numpy as np

import lookup_tools as lt
from lookup_tools._native import check, i32, lib
from lookup_tools.counting.counter import TokenBatch
from lookup_tools.drafting.group import AdaptiveGroup
from lookup_tools.tokens import TokenInfo

ROOT = Path(__file__).parents[1]
PACKAGES = ("asyncio", "email", "json", "http", "unittest", "xml", "logging", "tkinter", "idlelib")
LENGTHS = (512, 1024, 4096)  # of chunks
SEGMENT = 16384  # tokens between two fresh starts
PER_KIND = 6  # segments
SEGMENTS = {"shuffled": 18}  # so that nothing is drafted where nothing repeats
SEED = 1


def code() -> str:
    folder = Path(sysconfig.get_path("stdlib"))
    files = (file for name in PACKAGES for file in sorted((folder / name).glob("*.py")))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def topics() -> str:
    from pydoc_data import topics as data

    return "\n\n".join(data.topics[name] for name in sorted(data.topics))


def chat(rng: random.Random) -> str:
    return "".join(chat_like.turns(code()[:1_500_000], rng, 30))


def word(rng: random.Random) -> str:
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 9)))


def records(rng: random.Random) -> str:
    keys = [word(rng) for _ in range(12)]
    rows = (
        {key: rng.choice((rng.randint(0, 999), word(rng), True)) for key in keys}
        for _ in range(3000)
    )
    return "\n".join(json.dumps(row, indent=rng.choice((None, 2))) for row in rows)


def logs(rng: random.Random) -> str:
    events = [" ".join(word(rng) for _ in range(rng.randint(3, 9))) for _ in range(40)]
    return "\n".join(
        f"2024-05-{1 + i // 600:02} 10:{i // 60 % 60:02}:{i % 60:02} "
        f"{rng.choice(('INFO', 'WARN'))} [{rng.randint(1000, 1100)}] "
        f"{rng.choice(events)} {rng.randint(0, 99999)}"
        for i in range(9000)
    )


def tables(rng: random.Random) -> str:
    names = [word(rng) for _ in range(60)]
    return "\n".join(
        f"| {rng.choice(names)} | {rng.random():.3f} | {rng.randint(0, 5000)} "
        f"| {rng.choice(names)} |"
        for _ in range(12000)
    )


def shuffled(prose: np.ndarray, rng: random.Random) -> np.ndarray:
    return np.random.default_rng(rng.randrange(2**32)).permutation(prose)


def prose() -> np.ndarray:
    path = ROOT / "tests/data/wiki.train1mb.smollm2.u16.zst"
    return np.asarray(lt.load_tokens(path).ids, np.int32)


def kinds(model: Path) -> dict[str, np.ndarray]:
    tokenizer, rng = lt.open_tokenizer(model), random.Random(SEED)
    texts = {
        "code": code(), "topics": topics(), "chat": chat(rng), "json": records(rng),
        "logs": logs(rng), "tables": tables(rng),
    }  # fmt: skip
    ids = {name: np.asarray(tokenizer.encode(text), np.int32) for name, text in texts.items()}
    ids["prose"] = prose()
    ids["shuffled"] = shuffled(ids["prose"], rng)
    return ids


def segments(ids: dict[str, np.ndarray]) -> Iterator[tuple[str, int, np.ndarray]]:
    rng = random.Random(SEED)
    order = [(name, k) for name in sorted(ids) for k in range(SEGMENTS.get(name, PER_KIND))]
    rng.shuffle(order)
    order.sort(key=lambda each: each == ("shuffled", 0))  # the fast bias begins with doubt
    for name, k in order:
        half = ids[name][: len(ids[name]) // 2]
        start = min(k * SEGMENT, max(0, len(half) - SEGMENT))
        yield name, k, np.ascontiguousarray(half[start : start + SEGMENT])


def cache_of(ids: np.ndarray, folder: Path, name: str) -> Path:
    path = folder / f"{name}.cache"
    if not path.exists():
        batch = TokenBatch(np.ascontiguousarray(ids[len(ids) // 2 :]), np.empty(0, np.int64))
        lt.create_from_tokens([batch], TokenInfo(), path, lt.CreateOptions())
    return path


def learn(group: AdaptiveGroup, ids: np.ndarray, n_ctx: int) -> None:
    """Every chunk; the shortest ones find no earlier text, as first chunks do."""
    source = group.join()
    for start in range(0, len(ids) - n_ctx + 1, n_ctx):
        chunk = np.ascontiguousarray(ids[start : start + n_ctx])
        check(lib.lookup_source_begin(source, i32(chunk), len(chunk)))
        if n_ctx != LENGTHS[0]:
            check(lib.lookup_adaptive_end(source, i32(chunk), len(chunk)))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-m", "--model", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path))
def main(model: Path, output: Path) -> None:
    """Write the prior."""
    ids = kinds(model)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        known: Path | None = None
        for at, (name, k, segment) in enumerate(segments(ids)):
            with lt.open_cache(cache_of(ids[name], folder, name)) as cache:
                group = AdaptiveGroup(cache if k % 2 else None, learned=known)
                if known is None:
                    check(lib.lookup_adaptive_reset(group.handle))
                learn(group, segment, LENGTHS[k // 2 % len(LENGTHS)])
            known = folder / f"{at}.prior"
            known.write_bytes(group.state(prior=True))
        assert known is not None
        output.write_bytes(known.read_bytes())
    click.echo(f"{output}: {output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
