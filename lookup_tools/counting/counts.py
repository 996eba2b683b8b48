"""Counted n-grams in memory: the currency between counting, files and merging.

A *block* is a run of n-grams of one order with their followers, sorted by tokens. A stream of
blocks is sorted as a whole and never splits an n-gram. Below blocks lie *records*, the packed
(n-gram, follower, count) keys of csrc/lookup.cdef.h; this module turns the one into the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, i32, lib, u32, u64
from lookup_tools.errors import ParameterError

ORDERS = (1, 2, 3, 4)
MAX_COUNT = 2**31 - 1

Records = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class CountsBlock:
    """Sorted n-grams of one order.

    `ngrams` is (n, order) int32, `lengths` (n,) uint32 the followers of each, `entries` (sum of
    lengths, 2) int32 the followers themselves: token and count, tokens ascending.
    """

    order: int
    ngrams: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.uint32]
    entries: npt.NDArray[np.int32]

    @property
    def n_ngrams(self) -> int:
        return len(self.lengths)

    @property
    def n_pairs(self) -> int:
        return len(self.entries)

    def items(self) -> Iterator[tuple[tuple[int, ...], dict[int, int]]]:
        """Every n-gram with its followers as plain Python objects: for tests and dumps."""
        at = 0
        for ngram, length in zip(self.ngrams.tolist(), self.lengths.tolist(), strict=True):
            yield tuple(ngram), dict(self.entries[at : at + length].tolist())
            at += length


@dataclass(frozen=True, slots=True)
class Prune:
    """What to leave out: followers counted less than `min_count` times, and all but the `top_k`
    most frequent of each n-gram (0: keep all; lowest ids win ties)."""

    min_count: int = 1
    top_k: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.min_count <= MAX_COUNT:
            raise ParameterError(f"found min_count {self.min_count}, expected 1 to {MAX_COUNT}")
        if not 0 <= self.top_k <= MAX_COUNT:
            raise ParameterError(f"found top_k {self.top_k}, expected 0 (keep all) to {MAX_COUNT}")

    @property
    def keeps_all(self) -> bool:
        return self.min_count == 1 and self.top_k == 0


@dataclass(frozen=True, slots=True)
class Layout:
    """How records of one order pack their tokens (lookup_layout in C)."""

    order: int
    max_token: int
    raw: Any = field(repr=False)
    counted: Any = field(repr=False)

    @classmethod
    def of(cls, order: int, max_token: int) -> Layout:
        """The layout for ids 0..max_token.

        Raises:
            ParameterError: no such order, or a negative id.
        """
        both = []
        for counted in (0, 1):
            layout = ffi.new("lookup_layout *")
            check(
                lib.lookup_layout_for(layout, order, max_token, counted),
                f"order {order}, token {max_token}",
            )
            both.append(layout)
        return cls(order, max_token, both[0], both[1])

    @property
    def key_words(self) -> int:
        return int(self.raw.key_words)

    @property
    def stride(self) -> int:
        """Words of a counted record."""
        return int(self.counted.stride)


def group_records(
    layout: Layout, records: Records, *, final: bool, prune: Prune, counted: bool = True
) -> tuple[CountsBlock, int]:
    """Sorted records -> a block, and how many records it used (all of them if `final`)."""
    shape = layout.counted if counted else layout.raw
    n = len(records) // int(shape.stride)
    ngrams = np.empty((n, layout.order), np.int32)
    lengths = np.empty(n, np.uint32)
    entries = np.empty((n, 2), np.int32)
    out = ffi.new("size_t[3]")
    limits = ffi.new("lookup_prune *", (prune.min_count, prune.top_k))
    check(
        lib.lookup_group(
            shape,
            u64(records),
            n,
            final,
            limits,
            i32(ngrams.reshape(-1)),
            u32(lengths),
            i32(entries.reshape(-1)),
            out,
            out + 1,
            out + 2,
        )
    )
    used, n_ngrams, n_pairs = out[0], out[1], out[2]
    # Copies, so that the roomy scratch arrays are freed and blocks can be kept.
    block = CountsBlock(
        layout.order, ngrams[:n_ngrams].copy(), lengths[:n_ngrams].copy(), entries[:n_pairs].copy()
    )
    return block, used


def expand_block(layout: Layout, block: CountsBlock, weight: Fraction = Fraction(1)) -> Records:
    """A block -> counted records, each count times `weight` (rounded half up, at least 1)."""
    records = np.empty(block.n_pairs * layout.stride, np.uint64)
    check(
        lib.lookup_expand(
            layout.counted,
            i32(block.ngrams.reshape(-1)),
            u32(block.lengths),
            i32(block.entries.reshape(-1)),
            block.n_ngrams,
            block.n_pairs,
            weight.numerator,
            weight.denominator,
            u64(records),
        ),
        f"{block.order}-grams",
    )
    return records


def sort_records(layout: Layout, records: Records, *, counted: bool = True) -> None:
    """Sort records by key, in place."""
    shape = layout.counted if counted else layout.raw
    scratch = np.empty_like(records)
    check(lib.lookup_sort(shape, u64(records), u64(scratch), len(records) // int(shape.stride)))


def count_ngrams(layout: Layout, records: Records) -> int:
    """How many n-grams sorted counted records belong to."""
    if not len(records):
        return 0
    keys = records.reshape(-1, layout.stride)[:, : layout.key_words]
    last = keys[:, -1] >> np.uint64(layout.raw.bits)
    differs = last[1:] != last[:-1]
    for word in range(layout.key_words - 1):
        differs |= keys[1:, word] != keys[:-1, word]
    return 1 + int(np.count_nonzero(differs))


def aggregate_records(layout: Layout, records: Records, *, counted: bool = True) -> Records:
    """Sorted records -> strictly ascending counted ones (counted records are overwritten)."""
    shape = layout.counted if counted else layout.raw
    n = len(records) // int(shape.stride)
    # Counted records shrink in place; raw ones grow by their counts.
    out = records if counted else np.empty(n * layout.stride, np.uint64)
    used = ffi.new("size_t *")
    check(lib.lookup_aggregate(shape, u64(records), n, u64(out), used))
    kept = out[: used[0] * layout.stride]
    return kept if counted else kept.copy()


def merge_records(layout: Layout, runs: list[Records]) -> Records:
    """Strictly ascending runs -> one, equal keys summed: pairwise, so that each record is touched
    about log2(runs) times."""
    while len(runs) > 1:
        pairs = [runs[k : k + 2] for k in range(0, len(runs), 2)]
        runs = [_merge_two(layout, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return runs[0] if runs else np.empty(0, np.uint64)


def _merge_two(layout: Layout, a: Records, b: Records) -> Records:
    if len(a) == 0 or len(b) == 0:
        return a if len(b) == 0 else b
    out = np.empty(len(a) + len(b), np.uint64)
    used = ffi.new("size_t *")
    stride = layout.stride
    check(
        lib.lookup_merge_two(
            layout.counted, u64(a), len(a) // stride, u64(b), len(b) // stride, u64(out), used
        )
    )
    return out[: used[0] * stride]
