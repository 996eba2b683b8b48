"""Tokens -> sorted n-gram counts: packed, partitioned and sorted in parallel, spilled when they
outgrow their share of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, i32, i64, lib, u64
from lookup_tools.counting.counts import (
    CountsBlock,
    Layout,
    Prune,
    Records,
    aggregate_records,
    group_records,
)
from lookup_tools.counting.runs import SpillDirectory, group_runs, merge_runs, read_run, write_run
from lookup_tools.errors import FormatError
from lookup_tools.tokens.stream import Ends, Ids, TokenBatch

T = TypeVar("T")

PARTITIONS: int = 1 << int(lib.LOOKUP_PARTITION_BITS)
UNIT_KEYS = (
    1 << 18
)  # keys sorted by one call: long enough to hide the call, short enough to balance


@dataclass(frozen=True, slots=True)
class _Packed:
    keys: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.uint64]


class Seam:
    """Carries the last tokens of an unfinished document from batch to batch, so that n-grams across
    a batch's edge are counted."""

    def __init__(self, reach: int) -> None:
        self._reach = reach
        self._carried: Ids = np.empty(0, np.int32)

    def join(self, batch: TokenBatch) -> tuple[Ids, Ends, int]:
        """Tokens with the carried ones in front, all document ends, and how many were carried."""
        skip = len(self._carried)
        ids = np.concatenate([self._carried, batch.ids]) if skip else batch.ids
        ends = batch.ends + skip
        open_from = int(ends[-1]) if len(ends) else 0
        if open_from < len(ids) or not len(ends):
            ends = np.append(ends, len(ids))
        self._carried = ids[max(open_from, len(ids) - self._reach) :].copy()
        return ids, ends.astype(np.int64, copy=False), skip


class NgramCounter:
    """Counts the n-grams of one order.

    `memory` bounds the bytes of keys held before they are spilled (None: never). Blocks come out
    sorted and do not depend on batch sizes, threads or spilling.
    """

    def __init__(
        self,
        order: int,
        max_token: int,
        *,
        memory: int | None = None,
        spill: SpillDirectory | None = None,
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        self.layout = Layout.of(order, max_token)
        self._memory = memory
        self._spill = spill
        self._pool = pool
        self._held: list[_Packed] = []
        self._packing: deque[Future[_Packed]] = deque()
        self._bytes = 0
        self._runs: list[Path] = []

    def add(self, ids: Ids, ends: Ends, skip: int) -> None:
        """Count a batch: windows that end at token `skip` or later, within documents.

        Raises:
            FormatError: an id is negative or larger than `max_token`.
        """
        largest = int(ids.max(initial=0))
        if largest > self.layout.max_token:
            raise FormatError(
                f"found token id {largest}, expected ids up to {self.layout.max_token}; "
                "check that the vocabulary is the right one"
            )
        n = lib.lookup_count_windows(i64(ends), len(ends), self.layout.order, skip)
        self._bytes += n * 8 * self.layout.key_words
        if self._pool is None:
            self._held.append(self._pack(ids, ends, skip, n))
        else:
            self._packing.append(self._pool.submit(self._pack, ids, ends, skip, n))
            while len(self._packing) > 4:
                self._held.append(self._packing.popleft().result())
        if self._memory is not None and self._bytes > self._memory and self._spill is not None:
            self._spill_run(self._spill)

    def _pack(self, ids: Ids, ends: Ends, skip: int, n: int) -> _Packed:
        keys = np.empty(n * self.layout.key_words, np.uint64)
        starts = np.empty(PARTITIONS + 1, np.uint64)
        check(
            lib.lookup_pack(
                self.layout.raw,
                i32(ids),
                len(ids),
                i64(ends),
                len(ends),
                skip,
                u64(keys),
                u64(starts),
            ),
            f"counting {self.layout.order}-grams with ids up to {self.layout.max_token}",
        )
        return _Packed(keys, starts)

    def _settle(self) -> list[_Packed]:
        while self._packing:
            self._held.append(self._packing.popleft().result())
        return self._held

    def blocks(self, prune: Prune, *, keep: bool = False) -> Iterator[CountsBlock]:
        """The sorted counts of everything added. Unless `keep`, the counter is empty afterwards."""
        if not self._runs:
            yield from self._sorted_units(partial(self._grouped, prune))
            if not keep:
                self._clear()
            return
        yield from group_runs(self._merged_runs(), self.layout, prune, self._pool)

    def records(self) -> Iterator[Records]:
        """The same counts as one run: ascending counted records. The counter is empty then."""
        if self._runs:
            yield from self._merged_runs()
            return
        yield from self._sorted_units(self._aggregated)
        self._clear()

    def _merged_runs(self) -> Iterator[Records]:
        assert self._spill is not None
        if self._settle():
            self._spill_run(self._spill)
        return merge_runs([read_run(path, self.layout) for path in self._runs], self.layout)

    def _clear(self) -> None:
        self._held.clear()
        self._bytes = 0

    def _spill_run(self, spill: SpillDirectory) -> None:
        self._settle()
        # Differences of sorted keys compress well below the keys' own size.
        path = spill.new_run(self._bytes // 2)
        write_run(path, self.layout, self._sorted_units(self._aggregated))
        self._runs.append(path)
        self._clear()

    def _sorted_units(self, finish: Callable[[Records], T]) -> Iterator[T]:
        """Gather and sort unit by unit, in order, some units ahead where there is a pool."""
        held = self._settle()
        units = self._units(held)
        if self._pool is None:
            for unit in units:
                yield self._finished(finish, held, unit)
            return
        waiting: deque[Future[T]] = deque()
        for unit in units:
            waiting.append(self._pool.submit(self._finished, finish, held, unit))
            if len(waiting) > 4:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _finished(
        self, finish: Callable[[Records], T], held: list[_Packed], unit: tuple[int, int]
    ) -> T:
        return finish(self._sorted(held, *unit))

    def _units(self, held: list[_Packed]) -> Iterator[tuple[int, int]]:
        """Ranges of partitions with about UNIT_KEYS keys each."""
        sizes = sum((np.diff(packed.starts) for packed in held), np.zeros(PARTITIONS, np.uint64))
        first = total = 0
        for at, size in enumerate(sizes.tolist()):
            if total and total + size > UNIT_KEYS:
                yield first, at
                first, total = at, 0
            total += size
        if total:
            yield first, PARTITIONS

    def _sorted(self, held: list[_Packed], first: int, last: int) -> Records:
        words = self.layout.key_words
        n = sum(int(p.starts[last]) - int(p.starts[first]) for p in held)
        keys = [u64(p.keys) for p in held]
        starts = [u64(p.starts) for p in held]
        out = np.empty(n * words, np.uint64)
        check(
            lib.lookup_gather(
                ffi.new("uint64_t *[]", keys),
                ffi.new("uint64_t *[]", starts),
                len(held),
                first,
                last,
                words,
                u64(out),
            )
        )
        scratch = np.empty_like(out)
        check(lib.lookup_sort(self.layout.raw, u64(out), u64(scratch), n))
        return out

    def _grouped(self, prune: Prune, keys: Records) -> CountsBlock:
        block, _ = group_records(self.layout, keys, final=True, prune=prune, counted=False)
        return block

    def _aggregated(self, keys: Records) -> Records:
        return aggregate_records(self.layout, keys, counted=False)
