"""Fitting a cache into a given size: the least frequent pairs go first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, lib
from lookup_tools.counting.counts import CountsBlock
from lookup_tools.errors import BuildError
from lookup_tools.formats.legacy import NGRAM_BYTES, PAIR_BYTES
from lookup_tools.formats.sniff import CacheFormat

Blocks = Iterable[CountsBlock]
Size = Callable[[int, int], int]  # n-grams and pairs -> bytes
Indices = npt.NDArray[Any]

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
    """Keep pairs counted more than `count` times: `n_pairs` of them, in `n_ngrams` n-grams; of
    those counted exactly that often the first `n_edge`, in key order."""

    count: int
    n_ngrams: int
    n_pairs: int
    n_edge: int = 0


def prune_to_size(
    blocks: Callable[[bool], Blocks], max_size: int | None, fmt: CacheFormat, *, annex: bool = True
) -> Blocks:
    """Blocks that fit a file of `max_size` bytes.

    `blocks(last)` gives the same blocks each time it is called; it is called once without a limit
    and up to three times with one, the last time with True.

    Raises:
        BuildError: not even the most frequent pairs fit.
    """
    if max_size is None:
        return blocks(True)
    size = partial(size_bound, fmt, annex=annex)
    threshold = _find_threshold(blocks(False), max_size, size)
    if threshold is None:
        return blocks(True)
    return _cut(blocks(True), _fill(blocks(False), threshold, max_size, size))


def _find_threshold(blocks: Blocks, max_size: int, size: Size) -> _Threshold | None:
    """The largest count that cannot be kept as a whole."""
    pairs = np.zeros(_CLIP + 1, np.int64)
    ngrams = np.zeros(_CLIP + 1, np.int64)
    for block in blocks:
        counts = np.minimum(block.entries[:, 1], _CLIP)
        pairs += np.bincount(counts, minlength=_CLIP + 1)
        ngrams += np.bincount(_largest(block, counts), minlength=_CLIP + 1)
    # left[m]: what is left when only counts of m and more are kept
    n_pairs, n_ngrams = pairs[::-1].cumsum()[::-1], ngrams[::-1].cumsum()[::-1]
    if size(int(n_ngrams[0]), int(n_pairs[0])) <= max_size:
        return None
    least = size(int(n_ngrams[_CLIP]), int(n_pairs[_CLIP]))
    if least > max_size:
        raise BuildError(
            f"found --max-size {max_size}, expected at least {least} for the most frequent pairs "
            "alone; raise it or use --top-k"
        )
    low, high = 0, _CLIP  # low does not fit, high does
    while high - low > 1:
        middle = (low + high) // 2
        fits = size(int(n_ngrams[middle]), int(n_pairs[middle])) <= max_size
        low, high = (low, middle) if fits else (middle, high)
    return _Threshold(low, int(n_ngrams[high]), int(n_pairs[high]))


def _fill(blocks: Blocks, threshold: _Threshold, max_size: int, size: Size) -> _Threshold:
    """How many pairs at the threshold still fit, the first ones in key order."""
    parts = [_opens_ngram(block, threshold.count) for block in blocks]
    # opened[k]: n-grams that come back with the first k pairs
    opened = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(parts))])

    def fits(k: int) -> bool:
        n_ngrams = threshold.n_ngrams + int(opened[k])
        return size(n_ngrams, threshold.n_pairs + k) <= max_size

    low, high = 0, len(opened)  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return replace(threshold, n_edge=low)


def _starts(block: CountsBlock) -> Indices:
    starts: Indices = np.cumsum(block.lengths, dtype=np.int64) - block.lengths
    return starts


def _largest(block: CountsBlock, counts: Indices) -> Indices:
    """The largest count of each n-gram."""
    return np.maximum.reduceat(counts, _starts(block)) if block.n_ngrams else counts


def _opens_ngram(block: CountsBlock, count: int) -> npt.NDArray[np.bool_]:
    """For each pair counted exactly so often: whether its n-gram has nothing larger and this is the
    first such pair, so that keeping it brings the n-gram back."""
    counts = block.entries[:, 1]
    owner = np.repeat(np.arange(block.n_ngrams), block.lengths)
    edge = np.flatnonzero(counts == count)
    lonely = _largest(block, counts)[owner[edge]] == count
    first = np.ones(len(edge), bool)
    first[1:] = owner[edge[1:]] != owner[edge[:-1]]
    opens: npt.NDArray[np.bool_] = lonely & first
    return opens


def _cut(blocks: Blocks, threshold: _Threshold) -> Iterator[CountsBlock]:
    left = threshold.n_edge
    for block in blocks:
        counts = block.entries[:, 1]
        edge = np.flatnonzero(counts == threshold.count)[:left]
        left -= len(edge)
        keep = counts > threshold.count
        keep[edge] = True
        owner = np.repeat(np.arange(block.n_ngrams), block.lengths)
        lengths = np.bincount(owner[keep], minlength=block.n_ngrams).astype(np.uint32)
        some = lengths > 0
        if np.any(some):
            entries = np.ascontiguousarray(block.entries[keep])
            yield CountsBlock(block.order, block.ngrams[some], lengths[some], entries)
