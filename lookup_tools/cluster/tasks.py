"""What workers do: count parts of a corpus into runs cut by key, merge the runs of one key range.

Everything here gets and gives plain values, and the same values give the same result, so that a
task that was lost with its worker can be done again by any other.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lookup_tools._native import lib, u64
from lookup_tools.corpora import Corpus
from lookup_tools.corpora.files import FileCorpus
from lookup_tools.counting.counter import NgramCounter, Seam
from lookup_tools.counting.counts import CountsBlock, Layout, Prune, Records
from lookup_tools.counting.runs import (
    SpillDirectory,
    group_runs,
    merge_runs,
    read_slices,
    write_slices,
)
from lookup_tools.tokenizers import Tokenizer
from lookup_tools.tokens.from_corpus import TokenizeNotes, tokenize

Key = tuple[int, ...]

_tokenizers: dict[str, Tokenizer] = {}


@dataclass(frozen=True, slots=True)
class Job:
    """What all tasks of a build share: small, for it goes with every one of them.

    `bounds` are, for each order, the last keys of all key ranges but the last.
    """

    fingerprint: str
    orders: tuple[int, ...]
    max_token: int
    bounds: dict[int, tuple[Key, ...]]
    bos: bool = False
    parse_special: bool = False
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """A task's counts: `runs[order][k]` is the run of key range k, compressed."""

    runs: dict[int, tuple[bytes, ...]]
    n_tokens: int
    n_documents: int
    n_special: int
    uncut_chars: int
    stored_bytes: int
    seconds: dict[str, float] = field(default_factory=dict)

    def summary(self) -> Counted:
        """Everything but the runs, for the client."""
        return Counted(
            {},
            self.n_tokens,
            self.n_documents,
            self.n_special,
            self.uncut_chars,
            sum(len(run) for runs in self.runs.values() for run in runs),
            self.seconds,
        )


@dataclass(frozen=True, slots=True)
class Merged:
    """The sorted counts of one order in one key range."""

    blocks: tuple[CountsBlock, ...]
    seconds: float

    @property
    def n_bytes(self) -> int:
        arrays = (a for b in self.blocks for a in (b.ngrams, b.lengths, b.entries))
        return sum(array.nbytes for array in arrays)


def pack_tokenizer(tokenizer: Tokenizer) -> bytes:
    """A vocabulary for the way to a worker."""
    return pickle.dumps(tokenizer)


def install_tokenizer(fingerprint: str, packed: bytes) -> None:
    """Keep a vocabulary in this process for the tasks to come."""
    if fingerprint not in _tokenizers:
        _tokenizers[fingerprint] = pickle.loads(packed)


def count_parts(corpus: FileCorpus, job: Job, folder: str | None = None) -> Counted:
    """Tokenize and count some parts of the corpus.

    Raises:
        CorpusError: as in a local build, naming the part.
    """
    started = time.perf_counter()
    tokenizer = _tokenizers[job.fingerprint]
    if corpus.mode == "chat":
        from lookup_tools.corpora.chat import chat_renderer

        corpus = corpus.of_parts(corpus.parts, chat_renderer(tokenizer))
    notes = TokenizeNotes()
    with SpillDirectory(folder) as spill:
        counters = _counted(corpus, tokenizer, job, spill, notes)
        tokenized = time.perf_counter()
        runs = {
            counter.layout.order: partitioned(
                counter.records(), counter.layout, job.bounds[counter.layout.order]
            )
            for counter in counters
        }
    seconds = {
        "tokenize": tokenized - started,
        "sort": time.perf_counter() - tokenized,
    }
    return Counted(
        runs, notes.n_tokens, notes.n_documents, notes.n_special, notes.uncut_chars, 0, seconds
    )


def _counted(
    corpus: Corpus, tokenizer: Tokenizer, job: Job, spill: SpillDirectory, notes: TokenizeNotes
) -> list[NgramCounter]:
    share = None if job.memory is None else max(1 << 20, job.memory // 4 // len(job.orders))
    counters = [
        NgramCounter(order, job.max_token, memory=share, spill=spill) for order in job.orders
    ]
    seam = Seam(max(job.orders))
    batches = tokenize(corpus, tokenizer, parse_special=job.parse_special, bos=job.bos, notes=notes)
    for batch in batches:
        joined = seam.join(batch)
        for counter in counters:
            counter.add(*joined)
    return counters


def partitioned(
    records: Iterator[Records], layout: Layout, bounds: Sequence[Key]
) -> tuple[bytes, ...]:
    """A run, cut at the bounds."""
    files = [io.BytesIO() for _ in range(len(bounds) + 1)]
    for part in records:
        start = 0
        n = len(part) // layout.stride
        for file, bound in zip(files, (*bounds, None), strict=True):
            at = n
            if bound is not None:
                at = int(lib.lookup_upper_bound(layout.counted, u64(part), n, list(bound)))
            if at > start:
                cut = part[start * layout.stride : at * layout.stride]
                write_slices(file, layout, iter([cut]))
                start = at
    return tuple(file.getvalue() for file in files)


def run_of(counted: Counted, order: int, index: int) -> bytes:
    """One key range's run, so that only this travels."""
    return counted.runs[order][index]


def merge_range(runs: Sequence[bytes], order: int, max_token: int, prune: Prune) -> Merged:
    """Merge the runs of one key range. No n-gram lies in two ranges, so pruning is exact."""
    started = time.perf_counter()
    layout = Layout.of(order, max_token)
    merged = merge_runs([read_slices(io.BytesIO(run), layout) for run in runs], layout)
    blocks = tuple(group_runs(merged, layout, prune))
    return Merged(blocks, time.perf_counter() - started)


def choose_bounds(
    sample: Corpus, tokenizer: Tokenizer, job: Job, ranges: int
) -> dict[int, tuple[Key, ...]]:
    """Last keys of key ranges that are about equal in a sample. An n-gram with all its followers is
    in one range."""
    with SpillDirectory() as spill:
        counters = _counted(sample, tokenizer, job, spill, TokenizeNotes())
        return {
            counter.layout.order: _quantiles(list(counter.records()), counter.layout, ranges)
            for counter in counters
        }


def _quantiles(parts: list[Records], layout: Layout, ranges: int) -> tuple[Key, ...]:
    if not parts:
        return ()
    records = np.concatenate(parts).reshape(-1, layout.stride)
    rows = [len(records) * k // ranges for k in range(1, ranges)]
    keys = records[rows, : layout.key_words].copy()
    keys[:, -1] |= np.uint64((1 << int(layout.raw.bits)) - 1)  # behind its last follower
    return tuple(sorted({tuple(key) for key in keys.tolist()}))
