"""The inputs of a merge: anything that can be enumerated in order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from lookup_tools.cache import Cache, ConstmapCache, LegacyCache
from lookup_tools.cache.recover_keys import RecoveredKeys, recover_keys
from lookup_tools.counting.counts import Layout, Records, count_ngrams, expand_block
from lookup_tools.counting.runs import SpillDirectory, merge_runs, read_run, slices, write_run
from lookup_tools.formats.legacy import record_parts
from lookup_tools.system.progress import Progress

DEFAULT_MEMORY = 1 << 28  # for sorting legacy inputs, where --memory does not say


@dataclass(frozen=True, slots=True)
class MergeInput:
    """One file that went in. `keys` says how they were found: stored, walk or all pairs."""

    path: str
    format: str
    n_ngrams: int
    n_pairs: int
    keys: str


class OrderedInput:
    """An input that can be enumerated."""

    def __init__(self, cache: Cache, keys: str = "stored") -> None:
        self.cache = cache
        self.keys = keys
        self.duplicates: dict[int, int] = {}  # by order, once records were read

    @property
    def max_token(self) -> int:
        return self.cache.max_token

    def describe(self) -> MergeInput:
        return MergeInput(
            self.cache.path,
            self.cache.format,
            self.cache.n_ngrams or 0,
            self.cache.n_pairs,
            self.keys,
        )

    def records(self, layout: Layout, weight: Fraction, spill: SpillDirectory) -> Iterator[Records]:
        """Ascending counted records of one order."""
        for block in self.cache.blocks(layout.order):
            yield expand_block(layout, block, weight)


class _Recovered(OrderedInput):
    """A constmap without keys, after they were found."""

    def __init__(self, cache: ConstmapCache, found: RecoveredKeys) -> None:
        super().__init__(cache, found.method)
        self._found = found

    @property
    def max_token(self) -> int:
        return max(self.cache.max_token, int(self._found.ngrams.max(initial=0)))

    def describe(self) -> MergeInput:
        return replace(super().describe(), n_ngrams=len(self._found.lengths))

    def records(self, layout: Layout, weight: Fraction, spill: SpillDirectory) -> Iterator[Records]:
        assert isinstance(self.cache, ConstmapCache)
        found = self._found
        for block in self.cache.blocks_of(found.ngrams, found.offsets, found.lengths):
            yield expand_block(layout, block, weight)


class _Legacy(OrderedInput):
    """Legacy records stand in any order, so they are sorted once, in parts if memory is short."""

    def __init__(
        self, cache: LegacyCache, memory: int | None, pool: ThreadPoolExecutor | None
    ) -> None:
        super().__init__(cache)
        self._file = cache.file
        self._pool = pool
        self._forget = cache.forget
        # Records take twice a pair's bytes and sorting as much again, in every thread.
        self._part_bytes = max(1 << 16, (memory or DEFAULT_MEMORY) // 12)

    def records(self, layout: Layout, weight: Fraction, spill: SpillDirectory) -> Iterator[Records]:
        file = self._file
        if not file.n_ngrams[layout.order]:
            return iter(())
        if file.ascending:
            return self._streamed(layout, weight)
        if len(file.data) <= 2 * self._part_bytes:
            return self._counted(slices(file.records(layout, weight), layout), layout)
        return self._counted(self._spilled(layout, weight, spill), layout)

    def _counted(self, parts: Iterator[Records], layout: Layout) -> Iterator[Records]:
        """The same parts; at their end it is known how many records were duplicates."""
        n_ngrams = 0
        last = np.empty(0, np.uint64)
        for part in parts:
            # An n-gram may go on from part to part: the last record is looked at again.
            n_ngrams += count_ngrams(layout, np.concatenate([last, part])) - (len(last) > 0)
            last = part[-layout.stride :]
            yield part
        self.duplicates[layout.order] = self._file.n_ngrams[layout.order] - n_ngrams

    def _streamed(self, layout: Layout, weight: Fraction) -> Iterator[Records]:
        for start, stop in record_parts(self._file.data, 1 << 20):
            records = self._file.records(layout, weight, start, stop)
            self._forget(start, stop)
            if len(records):
                yield records

    def _spilled(
        self, layout: Layout, weight: Fraction, spill: SpillDirectory
    ) -> Iterator[Records]:
        def spill_part(part: tuple[int, int], path: Path) -> Path:
            records = self._file.records(layout, weight, *part)
            write_run(path, layout, slices(records, layout))
            self._forget(*part)
            return path

        parts = list(record_parts(self._file.data, self._part_bytes))
        paths = [spill.new_run((stop - start) // 2) for start, stop in parts]
        each = self._pool.map if self._pool else map
        return merge_runs(
            [read_run(path, layout) for path in each(spill_part, parts, paths)], layout
        )


def ordered_input(
    cache: Cache,
    *,
    memory: int | None,
    recover: bool,
    vocab_size: int | None,
    pool: ThreadPoolExecutor | None,
    progress: Progress | None,
) -> OrderedInput:
    """An open cache as an input; keys that the file lacks are recovered first if `recover`.

    Raises:
        FormatError: they cannot be.
    """
    if isinstance(cache, LegacyCache):
        return _Legacy(cache, memory, pool)
    assert isinstance(cache, ConstmapCache)
    if cache.has_keys or not recover:
        return OrderedInput(cache)
    return _Recovered(
        cache, recover_keys(cache, vocab_size=vocab_size, pool=pool, progress=progress)
    )
