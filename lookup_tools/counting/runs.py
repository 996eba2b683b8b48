"""Sorted runs of counted records, in memory or spilled to disk, and their k-way merge.

A spilled run is a file of zstd frames, each holding one slice of the run column by column (key
words as differences, then counts): small, and read back strictly in order.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
import zstandard

from lookup_tools._native import lib, u64
from lookup_tools.counting.counts import (
    CountsBlock,
    Layout,
    Prune,
    Records,
    group_records,
    merge_records,
)
from lookup_tools.errors import LookupToolsError
from lookup_tools.system.closing import Closing
from lookup_tools.system.signals import temporary_folder
from lookup_tools.system.workers import ahead

SLICE_RECORDS = 1 << 16

_HEAD = struct.Struct("<IIQ")  # compressed bytes, flags (unused), records


class SpillDirectory(Closing):
    """A private folder below `parent` (default: the system's) for runs; gone when the block ends,
    whether it ended well or not."""

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        self._parent = os.fspath(parent) if parent is not None else None
        self._folder: str | None = None
        self._stack = ExitStack()
        self._runs = 0

    def __enter__(self) -> SpillDirectory:
        if self._parent is not None:
            os.listdir(self._parent)  # a folder that is missing is noticed before the work
        return self

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        self._stack.close()

    def new_run(self, expected_bytes: int) -> Path:
        """A path for one more run.

        Raises:
            LookupToolsError: the file system has less free space than `expected_bytes`.
        """
        if self._folder is None:
            made = temporary_folder(self._parent, "lookup-spill-")
            self._folder = self._stack.enter_context(made)
        free = shutil.disk_usage(self._folder).free
        if free < expected_bytes:
            raise LookupToolsError(
                f"{os.path.dirname(self._folder)}: found {free >> 20} MiB free, expected at "
                "least "
                f"{(expected_bytes >> 20) + 1} MiB for temporary runs; pass --tmpdir on a larger "
                "disk "
                "or a larger --memory"
            )
        self._runs += 1
        return Path(self._folder) / f"run-{self._runs}"


def write_run(path: Path, layout: Layout, records: Iterator[Records]) -> None:
    """Spill one sorted run.

    Raises:
        OSError: naming the folder for temporary files (full, most likely).
    """
    try:
        with open(path, "wb") as file:
            write_slices(file, layout, records)
    except zstandard.ZstdError as error:  # nothing else can go wrong
        raise MemoryError(str(error)) from error
    except OSError as error:  # a failed write does not say where
        raise OSError(error.errno, error.strerror, str(path.parent.parent)) from error


def write_slices(file: BinaryIO, layout: Layout, records: Iterator[Records]) -> None:
    """Append a sorted run, or more of one, to an open file."""
    compressor = zstandard.ZstdCompressor(level=1)
    step = SLICE_RECORDS * layout.stride
    for part in records:
        for start in range(0, len(part), step):
            _write_slice(file, compressor, layout, part[start : start + step])


def _write_slice(
    file: BinaryIO, compressor: zstandard.ZstdCompressor, layout: Layout, records: Records
) -> None:
    table = records.reshape(-1, layout.stride)
    columns = table.T.copy()
    # Differences wrap around 2^64 and so do the sums that undo them.
    columns[:, 1:] -= table.T[:, :-1]
    packed = compressor.compress(columns.tobytes())
    file.write(_HEAD.pack(len(packed), 0, len(table)))
    file.write(packed)


def read_run(path: Path, layout: Layout) -> Iterator[Records]:
    """The slices of a spilled run, in order."""
    with open(path, "rb") as file:
        yield from read_slices(file, layout)


def read_slices(file: BinaryIO, layout: Layout) -> Iterator[Records]:
    """What `write_slices` wrote."""
    decompressor = zstandard.ZstdDecompressor()
    while head := file.read(_HEAD.size):
        size, _, n = _HEAD.unpack(head)
        data = decompressor.decompress(file.read(size))
        columns = np.frombuffer(data, np.uint64).reshape(layout.stride, n)
        yield np.cumsum(columns, axis=1, dtype=np.uint64).T.reshape(-1).copy()


def slices(records: Records, layout: Layout, size: int = SLICE_RECORDS) -> Iterator[Records]:
    """A run in memory as the slices that `merge_runs` takes."""
    step = size * layout.stride
    for start in range(0, len(records), step):
        yield records[start : start + step]


class _Front:
    """The unread part of one run."""

    def __init__(self, run: Iterator[Records], layout: Layout) -> None:
        self._run = run
        self._layout = layout
        self.records: Records = np.empty(0, np.uint64)
        self.ended = False

    def fill(self) -> None:
        while len(self.records) == 0 and not self.ended:
            following = next(self._run, None)
            if following is None:
                self.ended = True
            else:
                self.records = following

    @property
    def last_key(self) -> tuple[int, ...]:
        start = len(self.records) - self._layout.stride
        return tuple(self.records[start : start + self._layout.key_words].tolist())

    def take_through(self, key: tuple[int, ...]) -> Records:
        """Cut off the records with keys up to `key`."""
        stride = self._layout.stride
        n = len(self.records) // stride
        at = lib.lookup_upper_bound(self._layout.counted, u64(self.records), n, list(key))
        taken, self.records = self.records[: at * stride], self.records[at * stride :]
        return taken


def merge_runs(runs: list[Iterator[Records]], layout: Layout) -> Iterator[Records]:
    """Merge any number of strictly ascending runs, summing equal keys. Memory: a slice a run."""
    fronts = [_Front(run, layout) for run in runs]
    while True:
        for front in fronts:
            front.fill()
        fronts = [front for front in fronts if len(front.records)]
        if not fronts:
            return
        if len(fronts) == 1:
            yield fronts[0].records
            fronts[0].records = np.empty(0, np.uint64)
            continue
        # Up to the smallest last key every run's records are here.
        bound = min(front.last_key for front in fronts)
        yield merge_records(layout, [front.take_through(bound) for front in fronts])


def group_runs(
    records: Iterator[Records], layout: Layout, prune: Prune, pool: ThreadPoolExecutor | None = None
) -> Iterator[CountsBlock]:
    """Strictly ascending records -> blocks. With a pool, the next records are fetched meanwhile."""
    rest = np.empty(0, np.uint64)
    for part in ahead(records, pool):
        joined = np.concatenate([rest, part]) if len(rest) else part
        block, used = group_records(layout, joined, final=False, prune=prune)
        rest = joined[used * layout.stride :]
        if block.n_ngrams:
            yield block
    block, _ = group_records(layout, rest, final=True, prune=prune)
    if block.n_ngrams:
        yield block
