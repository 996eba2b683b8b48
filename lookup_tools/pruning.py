"""Fitting a cache into a given size: the least frequent pairs go first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from lookup_tools._native import check, ffi, lib
from lookup_tools.counts import CountsBlock
from lookup_tools.errors import BuildError
from lookup_tools.formats.legacy import NGRAM_BYTES, PAIR_BYTES
from lookup_tools.formats.sniff import CacheFormat

Blocks = Iterable[CountsBlock]

# Counts from here on are told apart no more when a threshold is looked for.
_CLIP = 1 << 20
# An annex takes 2 to 3 bytes an n-gram; 5 and a kilobyte or two of metadata are never exceeded by
# vocabularies below 2^21 ids.
_ANNEX_NGRAM_BYTES, _ANNEX_BYTES = 5, 4096


def size_bound(fmt: CacheFormat, n_ngrams: int, n_pairs: int, *, annex: bool = True) -> int:
    """No file of this format with that many n-grams and pairs is larger (legacy: exactly this)."""
    if fmt == "legacy":
        return NGRAM_BYTES * n_ngrams + PAIR_BYTES * n_pairs
    plan = ffi.new("lookup_map_plan *")
    check(lib.lookup_map_plan_first(plan, n_ngrams, lib.LOOKUP_HASH_XXH64))
    size = 32 + PAIR_BYTES * n_pairs + int(plan.map_bytes)  # a retry's geometry has as many slots
    if fmt == "constmap2":
        size += 16 * n_ngrams
    return size + (_ANNEX_NGRAM_BYTES * n_ngrams + _ANNEX_BYTES if annex else 0)


@dataclass(frozen=True, slots=True)
class _Threshold:
    """Keep pairs counted more than `count` times, and of those counted exactly that often the first
    ones, in key order, as long as `budget` bytes last."""

    count: int
    budget: int
    ngram_bytes: float


def prune_to_size(
    blocks: Callable[[bool], Blocks], max_size: int | None, fmt: CacheFormat, *, annex: bool = True
) -> Blocks:
    """Blocks that fit a file of `max_size` bytes.

    `blocks(last)` gives the same blocks each time it is called; it is called once without a limit
    and twice with one, the last time with True.

    Raises:
        BuildError: not even an empty file is that small.
    """
    if max_size is None:
        return blocks(True)
    threshold = _find_threshold(blocks(False), max_size, fmt, annex)
    return blocks(True) if threshold is None else _cut(blocks(True), threshold)


def _find_threshold(
    blocks: Blocks, max_size: int, fmt: CacheFormat, annex: bool
) -> _Threshold | None:
    pairs = np.zeros(_CLIP + 1, np.int64)
    ngrams = np.zeros(_CLIP + 1, np.int64)
    for block in blocks:
        counts = np.minimum(block.entries[:, 1], _CLIP)
        largest = np.maximum.reduceat(counts, _starts(block)) if block.n_ngrams else counts
        pairs += np.bincount(counts, minlength=_CLIP + 1)
        ngrams += np.bincount(largest, minlength=_CLIP + 1)
    # at_least[m]: what is left when only counts of m and more are kept
    pairs_left, ngrams_left = pairs[::-1].cumsum()[::-1], ngrams[::-1].cumsum()[::-1]

    def size(least: int) -> int:
        return size_bound(fmt, int(ngrams_left[least]), int(pairs_left[least]), annex=annex)

    if size(0) <= max_size:
        return None
    if size(_CLIP) > max_size:
        raise BuildError(
            f"found --max-size {max_size}, expected at least {size(_CLIP)} for the most "
            "frequent pairs alone; raise it or use --top-k"
        )
    low, high = 0, _CLIP  # size(low) > max_size >= size(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) > max_size else (low, middle)
    per_ngram = NGRAM_BYTES if fmt == "legacy" else 18.1 + 5 + (16 if fmt == "constmap2" else 0)
    return _Threshold(low, max_size - size(high), per_ngram)


def _starts(block: CountsBlock) -> np.ndarray:
    return (np.cumsum(block.lengths, dtype=np.int64) - block.lengths).astype(np.int64)


def _cut(blocks: Blocks, threshold: _Threshold) -> Iterator[CountsBlock]:
    left = float(threshold.budget)
    for block in blocks:
        counts = block.entries[:, 1]
        edge = counts == threshold.count
        owner = np.repeat(np.arange(block.n_ngrams), block.lengths)
        cost = _costs(block, counts, edge, owner, threshold)
        affordable = edge & (np.cumsum(cost) <= left)
        left -= float(cost[affordable].sum())
        if np.any(edge & ~affordable):
            left = 0.0  # the first that does not fit ends it, so that the order alone decides
        keep = (counts > threshold.count) | affordable
        lengths = np.bincount(owner[keep], minlength=block.n_ngrams).astype(np.uint32)
        some = lengths > 0
        if np.any(some):
            yield CountsBlock(
                block.order,
                block.ngrams[some],
                lengths[some],
                np.ascontiguousarray(block.entries[keep]),
            )


def _costs(
    block: CountsBlock,
    counts: np.ndarray,
    edge: np.ndarray,
    owner: np.ndarray,
    threshold: _Threshold,
) -> np.ndarray:
    """Bytes each pair at the threshold would add: its own, and its n-gram's if it is that one's
    first."""
    cost = np.where(edge, float(PAIR_BYTES), 0.0)
    largest = np.maximum.reduceat(counts, _starts(block)) if block.n_ngrams else counts
    lonely = edge & (largest[owner] == threshold.count)
    firsts = np.zeros(len(counts), bool)
    where = np.flatnonzero(lonely)
    if len(where):
        new = np.ones(len(where), bool)
        new[1:] = owner[where[1:]] != owner[where[:-1]]
        firsts[where[new]] = True
    cost[firsts] += threshold.ngram_bytes
    return cost
