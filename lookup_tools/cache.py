"""Opening cache files: one view type, whatever the format."""

from __future__ import annotations

import mmap
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, i32, lib, owned, u32, u64
from lookup_tools.counts import ORDERS, CountsBlock, Layout, Prune, group_records
from lookup_tools.errors import ClosedError, FormatError, ParameterError
from lookup_tools.formats.annex import Annex, decode_keys, find_annex
from lookup_tools.formats.legacy import LegacyFile, read_legacy
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sniff import CacheFormat, sniff_file
from lookup_tools.mapping import LOAD_MODES, LoadMode, map_file

FOLLOWER = np.dtype([("token", np.int32), ("count", np.int32)])
BLOCK_NGRAMS = 1 << 16


class Cache(ABC):
    """A read-only view of a cache file. Safe to share between threads; close it when done.

    Attributes:
        path: as it was given.
        format: legacy, constmap or constmap2.
        meta: what the file says about itself, or None if it is another tool's.
        file_bytes: its size.
    """

    format: CacheFormat

    def __init__(self, path: str, buffer: mmap.mmap, load_mode: LoadMode) -> None:
        self.path = path
        self.load_mode = load_mode
        self.file_bytes = len(buffer)
        self.meta: CacheMeta | None = None
        self._buffer: mmap.mmap | None = buffer
        self._pointer: Any = ffi.from_buffer("unsigned char[]", buffer)
        self._holders = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._buffer is None

    def close(self) -> None:
        """Release the file. Idempotent.

        Raises:
            ClosedError: a drafter still uses it; close that first.
        """
        with self._lock:
            if self._buffer is None:
                return
            if self._holders:
                raise ClosedError(f"{self.path}: found {self._holders} drafter(s) still using this cache; close them first")
            self._drop()
            ffi.release(self._pointer)
            self._buffer.close()
            self._buffer = None

    def hold(self) -> None:
        """Keep the cache open until `release`. Drafters and replays call this."""
        with self._lock:
            if self._buffer is None:
                raise ClosedError(f"{self.path}: found a closed cache, expected an open one; open it again")
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1

    def _open_buffer(self) -> mmap.mmap:
        if self._buffer is None:
            raise ClosedError(f"{self.path}: found a closed cache, expected an open one; open it again")
        return self._buffer

    @property
    @abstractmethod
    def orders(self) -> tuple[int, ...]:
        """The orders of the n-grams inside."""

    @property
    @abstractmethod
    def n_ngrams(self) -> int | None:
        """How many n-grams; None where a foreign file does not say."""

    @property
    @abstractmethod
    def n_pairs(self) -> int:
        """How many (n-gram, follower) pairs."""

    @property
    @abstractmethod
    def max_token(self) -> int:
        """No id in the file is larger. O(1) for our own files, else a scan of the entries."""

    @abstractmethod
    def followers(self, ngram: Sequence[int]) -> npt.NDArray[Any]:
        """The followers of one n-gram as a structured array (token, count), tokens ascending; empty
        if the n-gram is absent."""

    @abstractmethod
    def blocks(self, order: int) -> Iterator[CountsBlock]:
        """Every n-gram of one order, sorted.

        Raises:
            FormatError: the file carries no keys, or its contents are damaged.
        """

    @abstractmethod
    def static_view(self) -> Any:
        """The C view that the static tier of a drafter reads (lookup_static *)."""

    @abstractmethod
    def _drop(self) -> None:
        """Zero every C view into the buffer, which is about to go."""

    def table(self) -> Any:
        """A new C n-gram table with everything in this file (lookup_table *). O(size)."""
        table = owned("lookup_table", lib.lookup_table_free, lib.lookup_table_new)
        for order in self.orders:
            for block in self.blocks(order):
                check(
                    lib.lookup_table_add(
                        table, order, i32(block.ngrams.reshape(-1)), u32(block.lengths),
                        i32(block.entries.reshape(-1)), block.n_ngrams, block.n_pairs,
                    ),
                    self.path,
                )
        return table


def _checked_ngram(ngram: Sequence[int]) -> list[int]:
    ids = [int(token) for token in ngram]
    if not 1 <= len(ids) <= max(ORDERS) or not all(0 <= token < 2**31 for token in ids):
        raise ParameterError(f"found n-gram {ids}, expected 1 to 4 token ids from 0 to 2^31-1")
    return ids


class ConstmapCache(Cache):
    """A constmap or constmap2 file, read in place. Opening it is O(1)."""

    def __init__(self, path: str, buffer: mmap.mmap, load_mode: LoadMode, fmt: CacheFormat) -> None:
        super().__init__(path, buffer, load_mode)
        self.format = fmt
        self._view = ffi.new("lookup_static *")
        check(
            lib.lookup_static_open(self._view, self._pointer, len(buffer)),
            f"{path}: found a damaged {fmt} file of {len(buffer)} bytes, rebuild it or copy it again",
        )
        self.annex: Annex | None = self._find_annex(buffer)
        self.meta = self.annex.meta if self.annex else None
        self._max_token: int | None = None
        if self.meta and self.meta.vocab_size:
            self._max_token = self.meta.vocab_size - 1

    def _find_annex(self, buffer: mmap.mmap) -> Annex | None:
        view = self._view
        if view.map.bytes == view.map_size:
            return None
        start = int(ffi.cast("uintptr_t", view.map_start)) - int(ffi.cast("uintptr_t", self._pointer))
        with memoryview(buffer) as whole, whole[start : start + view.map_size] as section:
            annex = find_annex(section, int(view.map.bytes), self.path)
        if annex and not 0 <= annex.meta.n_ngrams <= max(int(view.map.slots), 0):
            raise FormatError(f"{self.path}: found {annex.meta.n_ngrams} n-grams in a map of {view.map.slots} slots; rebuild the cache")
        return annex

    def _drop(self) -> None:
        ffi.memmove(self._view, bytes(ffi.sizeof("lookup_static")), ffi.sizeof("lookup_static"))

    @property
    def orders(self) -> tuple[int, ...]:
        return (2,)

    @property
    def n_ngrams(self) -> int | None:
        if self.meta is not None:
            return self.meta.n_ngrams
        return int(self._view.n_keys) if self._view.keys != ffi.NULL else None

    @property
    def n_pairs(self) -> int:
        return int(self._view.n_entries)

    @property
    def has_keys(self) -> bool:
        """Whether the file itself can be enumerated."""
        return self.annex is not None or self._view.keys != ffi.NULL

    @property
    def max_token(self) -> int:
        if self._max_token is None:
            tokens = self._entries()[:, 0]
            self._max_token = int(tokens.max(initial=0))
            if self._view.keys != ffi.NULL and self._view.n_keys:
                self._max_token = max(self._max_token, int(self._key_records().view(np.int32).reshape(-1, 4)[:, :2].max()))
        return self._max_token

    def _entries(self) -> npt.NDArray[np.int32]:
        self._open_buffer()
        size = 8 * self.n_pairs
        return np.frombuffer(ffi.buffer(self._view.entries, size), np.int32).reshape(-1, 2) if size else np.empty((0, 2), np.int32)

    def _key_records(self) -> npt.NDArray[np.uint64]:
        size = 16 * int(self._view.n_keys)
        return np.frombuffer(ffi.buffer(self._view.keys, size), np.uint64).copy()

    def followers(self, ngram: Sequence[int]) -> npt.NDArray[Any]:
        ids = _checked_ngram(ngram)
        self._open_buffer()
        if len(ids) != 2:
            return np.empty(0, FOLLOWER)
        out = ffi.new("uint64_t[2]")
        check(lib.lookup_static_followers(self._view, ids[0], ids[1], out, out + 1), self.path)
        return self._entries()[out[0] : out[0] + out[1]].copy().view(FOLLOWER).reshape(-1)

    def static_view(self) -> Any:
        self._open_buffer()
        return self._view

    def keys(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Sorted 2-grams (n, 2), and the offset and length of each one's span.

        Raises:
            FormatError: the file carries no keys, or they do not tile its entries.
        """
        if self.annex is not None:
            ngrams, lengths = decode_keys(self.annex, ffi.buffer(self._view.map_start, self._view.map_size), self.path)
            ends = np.cumsum(lengths, dtype=np.uint64)
            found = int(ends[-1]) if len(ends) else 0
            if found != self.n_pairs:
                raise FormatError(f"{self.path}: found keys for {found} pairs, expected {self.n_pairs}; rebuild the cache")
            return ngrams, ends - lengths, lengths
        if self._view.keys == ffi.NULL:
            raise FormatError(
                f"{self.path}: found a constmap without keys, expected one that lists its n-grams; recover them with "
                "lookup-merge (which does so by itself) or rebuild the cache with lookup-create"
            )
        return self._sorted_key_records()

    def _sorted_key_records(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        records = self._key_records()
        fields = records.view(np.int32).reshape(-1, 4)
        order = np.lexsort((fields[:, 1], fields[:, 0]))
        spans = records[1::2][order]
        bits = np.uint64(lib.LOOKUP_SPAN_BITS)
        lengths = (spans & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.uint32)
        ngrams = np.ascontiguousarray(fields[order, :2])
        if np.any(ngrams < 0) or np.any(np.all(ngrams[1:] == ngrams[:-1], axis=1)):
            raise FormatError(f"{self.path}: found a key that is negative or stands twice; rebuild the cache")
        return ngrams, spans >> bits, lengths

    def blocks(self, order: int) -> Iterator[CountsBlock]:
        if order != 2:
            return
        yield from self.blocks_of(*self.keys())

    def blocks_of(
        self, ngrams: npt.NDArray[np.int32], offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint32]
    ) -> Iterator[CountsBlock]:
        """Blocks for known keys; every entry is checked on the way."""
        bad = ffi.new("uint64_t *")
        for start in range(0, len(ngrams), BLOCK_NGRAMS):
            part = slice(start, start + BLOCK_NGRAMS)
            at, n = offsets[part], lengths[part]
            status = lib.lookup_static_check_entries(self._view, u64(at), u32(n), len(n), 2**31 - 1, bad)
            check(status, f"{self.path}: found a bad follower at entry {bad[0]}, rebuild the cache")
            yield CountsBlock(2, ngrams[part], n, self._spans(at, n))

    def _spans(self, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        entries = self._entries()
        ends = offsets + lengths
        if np.array_equal(offsets[1:], ends[:-1]):  # laid out in key order, as ours are
            return entries[int(offsets[0]) : int(ends[-1])].copy()
        before = np.cumsum(lengths, dtype=np.int64) - lengths
        index = np.repeat(offsets.astype(np.int64) - before, lengths) + np.arange(int(lengths.sum()))
        return entries[index]


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
        self._static: Any = None
        self._table: Any = None
        self._building = threading.Lock()

    def _drop(self) -> None:
        self._static = self._table = None

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
        return sum(self.file.n_ngrams[order] - sum(block.n_ngrams for block in self.blocks(order)) for order in self.orders)

    def blocks(self, order: int) -> Iterator[CountsBlock]:
        self._open_buffer()
        if not self.file.n_ngrams.get(order):
            return
        layout = Layout.of(order, self.max_token)
        block, _ = group_records(layout, self.file.records(layout), final=True, prune=Prune())
        yield block

    def followers(self, ngram: Sequence[int]) -> npt.NDArray[Any]:
        ids = np.array(_checked_ngram(ngram), np.int32)
        self._open_buffer()
        with self._building:
            if self._table is None:
                self._table = self.table()
        out = ffi.new("size_t *")
        totals = ffi.new("uint32_t[2]")
        arguments = (self._table, i32(ids), len(ids))
        check(lib.lookup_table_followers(*arguments, ffi.NULL, 0, out, totals, totals + 1), self.path)
        found = np.empty((out[0], 2), np.int32)
        check(lib.lookup_table_followers(*arguments, i32(found.reshape(-1)), len(found), out, totals, totals + 1), self.path)
        return found[np.argsort(found[:, 0])].view(FOLLOWER).reshape(-1)

    def static_view(self) -> Any:
        """Built on first use: the file's 2-grams laid out as a constmap in memory."""
        self._open_buffer()
        with self._building:
            if self._static is None:
                self._static = self._build_static()
        return self._static[0]

    def _build_static(self) -> tuple[Any, Any]:
        from lookup_tools.formats.memory import static_in_memory

        data = static_in_memory(self.blocks(2))
        pointer = ffi.from_buffer("unsigned char[]", data)
        view = ffi.new("lookup_static *")
        check(lib.lookup_static_open(view, pointer, len(data)), self.path)
        return view, pointer


def open_cache(path: str | os.PathLike[str], *, load: LoadMode = "mmap", populate: bool = False) -> Cache:
    """Open a cache file of any format.

    A constmap is opened in O(1) and read in place; `Cache.close` (or a `with` block) releases it.
    Bounds are proved here, truth is not: `lookup_tools.verify.verify_cache` checks that.

    Raises:
        FormatError: the file is something else, or contradicts itself; TruncatedError: it was cut.
        OSError: it cannot be read.
    """
    if load not in LOAD_MODES:
        raise ParameterError(f"found load mode {load!r}, expected one of {', '.join(LOAD_MODES)}")
    name = os.fspath(path)
    with open(name, "rb") as file:
        fmt = sniff_file(file, name)
        buffer = map_file(file, name, load, populate=populate)
    try:
        if fmt == "legacy":
            return LegacyCache(name, buffer, load)
        return ConstmapCache(name, buffer, load, fmt)
    except BaseException:
        _close_quietly(buffer)
        raise


def _close_quietly(buffer: mmap.mmap) -> None:
    try:
        buffer.close()
    except BufferError:
        pass  # the exception's own frames still hold a view; it goes when they do
