"""A legacy file: records, read and checked as a whole."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, i32, lib
from lookup_tools.cache.base import FOLLOWER, Cache, checked_ngram
from lookup_tools.counting.counts import CountsBlock, Layout, Prune, group_records
from lookup_tools.formats.in_memory import static_in_memory
from lookup_tools.formats.legacy import LegacyFile, read_legacy
from lookup_tools.formats.sniff import CacheFormat
from lookup_tools.system.mapping import LoadMode


class LegacyCache(Cache):
    """A legacy file. It has no index, so opening it reads and checks all of it."""

    format: CacheFormat = "legacy"

    def __init__(self, path: str, buffer: mmap.mmap, load_mode: LoadMode) -> None:
        super().__init__(path, buffer, load_mode)
        try:
            self.file: LegacyFile = read_legacy(path, buffer)
        except BaseException:
            ffi.release(self._pointer)
            raise
        self.meta = self.file.meta
        self.forget(0, len(buffer))  # checking has touched every page
        self._static: Any = None
        self._table: Any = None
        self._building = threading.Lock()

    def _drop(self) -> None:
        self._static = self._table = None

    def forget(self, start: int, stop: int) -> None:
        """Let go of the mapped pages of some bytes; they come back from the file when needed."""
        if self.load_mode != "mmap" or not hasattr(mmap, "MADV_DONTNEED"):
            return
        first, last = (
            -(-start // mmap.PAGESIZE) * mmap.PAGESIZE,
            stop // mmap.PAGESIZE * mmap.PAGESIZE,
        )
        if last > first:
            self._open_buffer().madvise(mmap.MADV_DONTNEED, first, last - first)

    @property
    def orders(self) -> tuple[int, ...]:
        return self.file.orders

    @property
    def n_ngrams(self) -> int:
        return self.meta.n_ngrams if self.meta else sum(self.file.n_ngrams.values())

    @property
    def n_pairs(self) -> int:
        return self.meta.n_pairs if self.meta else sum(self.file.n_pairs.values())

    @property
    def max_token(self) -> int:
        return max(self.file.max_token, 0)

    @property
    def n_duplicates(self) -> int:
        """Records beyond the first of their n-gram; their counts are summed. O(size)."""
        return sum(
            self.file.n_ngrams[order] - sum(block.n_ngrams for block in self.blocks(order))
            for order in self.orders
        )

    def blocks(self, order: int) -> Iterator[CountsBlock]:
        with self.held():
            if not self.file.n_ngrams.get(order):
                return
            layout = Layout.of(order, self.max_token)
            records = self.file.records(layout)
        block, _ = group_records(layout, records, final=True, prune=Prune())
        yield block

    def followers(self, ngram: Sequence[int]) -> npt.NDArray[Any]:
        ids = np.array(checked_ngram(ngram), np.int32)
        with self.held(), self._building:
            if self._table is None:
                self._table = self.table()
            table = self._table
        out = ffi.new("size_t *")
        totals = ffi.new("uint32_t[2]")
        arguments = (table, i32(ids), len(ids))
        check(
            lib.lookup_table_followers(*arguments, ffi.NULL, 0, out, totals, totals + 1), self.path
        )
        found = np.empty((out[0], 2), np.int32)
        check(
            lib.lookup_table_followers(
                *arguments, i32(found.reshape(-1)), len(found), out, totals, totals + 1
            ),
            self.path,
        )
        return found[np.argsort(found[:, 0])].view(FOLLOWER).reshape(-1)

    def static_view(self) -> Any:
        """Built on first use: the file's 2-grams laid out as a constmap in memory."""
        with self.held(), self._building:
            if self._static is None:
                self._static = self._build_static()
            return self._static[0]

    def _build_static(self) -> tuple[Any, Any]:
        data = static_in_memory(self.blocks(2))
        pointer = ffi.from_buffer("unsigned char[]", data)
        view = ffi.new("lookup_static *")
        check(lib.lookup_static_open(view, pointer, len(data)), self.path)
        return view, pointer
