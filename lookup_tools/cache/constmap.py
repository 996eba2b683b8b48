"""A constmap or constmap2 file, read in place."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, lib, u32, u64
from lookup_tools.cache.base import FOLLOWER, Cache, checked_ngram
from lookup_tools.counting.counts import CountsBlock
from lookup_tools.errors import FormatError
from lookup_tools.formats.annex import Annex, decode_keys, find_annex
from lookup_tools.formats.sniff import CacheFormat
from lookup_tools.system.mapping import LoadMode

BLOCK_NGRAMS = 1 << 16


def unpack_records(
    records: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Map records {key, value} (flat) as 2-grams (n, 2), offsets and lengths of their spans."""
    bits = np.uint64(lib.LOOKUP_SPAN_BITS)
    ngrams = np.ascontiguousarray(records.view(np.int32).reshape(-1, 4)[:, :2])
    values = records[1::2]
    lengths = (values & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.uint32)
    return ngrams, values >> bits, lengths


class ConstmapCache(Cache):
    """A constmap or constmap2 file, read in place. Opening it is O(1)."""

    def __init__(self, path: str, buffer: mmap.mmap, load_mode: LoadMode, fmt: CacheFormat) -> None:
        super().__init__(path, buffer, load_mode)
        self.format = fmt
        self._view = ffi.new("lookup_static *")
        check(
            lib.lookup_static_open(self._view, self._pointer, len(buffer)),
            f"{path}: found a damaged {fmt} file of {len(buffer)} bytes",
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
        start = self._offset_of(view.map_start)
        with memoryview(buffer) as whole, whole[start : start + view.map_size] as section:
            annex = find_annex(section, int(view.map.bytes), self.path)
        if annex and not 0 <= annex.meta.n_ngrams <= max(int(view.map.slots), 0):
            raise FormatError(
                f"{self.path}: found {annex.meta.n_ngrams} n-grams in a map of {view.map.slots} "
                "slots; rebuild the cache"
            )
        if annex and annex.meta.n_pairs != self.n_pairs:
            raise FormatError(
                f"{self.path}: found {self.n_pairs} pairs, expected {annex.meta.n_pairs} as the "
                "annex says; rebuild the cache"
            )
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
        return self.n_second_keys

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
            self._max_token = int(self.entries()[:, 0].max(initial=0))
            if self.has_keys:
                self._max_token = max(self._max_token, int(self.keys()[0].max(initial=0)))
        return self._max_token

    def entries(self) -> npt.NDArray[np.int32]:
        """All followers as (n_pairs, 2) token and count, a read-only view of the file. It stays
        valid after `close`, which then frees the mapping only when the view goes."""
        with self.held():
            start = self._offset_of(self._view.entries)
            found = np.frombuffer(self._open_buffer(), np.int32, 2 * self.n_pairs, start)
            return found.reshape(-1, 2)

    def _offset_of(self, pointer: Any) -> int:
        base = ffi.cast("uintptr_t", self._pointer)
        return int(ffi.cast("uintptr_t", pointer)) - int(base)

    def _key_records(self) -> npt.NDArray[np.uint64]:
        size = 16 * int(self._view.n_keys)
        return np.frombuffer(ffi.buffer(self._view.keys, size), np.uint64).copy()

    def followers(self, ngram: Sequence[int]) -> npt.NDArray[Any]:
        ids = checked_ngram(ngram)
        out = ffi.new("uint64_t[2]")
        with self.held():
            if len(ids) != 2:
                return np.empty(0, FOLLOWER)
            check(lib.lookup_static_followers(self._view, ids[0], ids[1], out, out + 1), self.path)
            return self.entries()[out[0] : out[0] + out[1]].copy().view(FOLLOWER).reshape(-1)

    def static_view(self) -> Any:
        self._open_buffer()
        return self._view

    def keys(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Sorted 2-grams (n, 2), and the offset and length of each one's span.

        Raises:
            FormatError: the file carries no keys, or they do not tile its entries.
        """
        with self.held():
            return self._keys()

    def _keys(
        self,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        if self.annex is not None:
            ngrams, lengths = decode_keys(
                self.annex, ffi.buffer(self._view.map_start, self._view.map_size), self.path
            )
            ends = np.cumsum(lengths, dtype=np.uint64)
            found = int(ends[-1]) if len(ends) else 0
            if found != self.n_pairs:
                raise FormatError(
                    f"{self.path}: found keys for {found} pairs, expected {self.n_pairs}; "
                    "rebuild the cache"
                )
            return ngrams, ends - lengths, lengths
        if self._view.keys == ffi.NULL:
            raise FormatError(
                f"{self.path}: found a constmap without keys, expected one that lists its n-grams; "
                "recover them with lookup-merge or rebuild the cache with lookup-create"
            )
        return self.key_records()

    @property
    def n_second_keys(self) -> int | None:
        """How many key records a constmap2 has; None in a constmap."""
        return int(self._view.n_keys) if self._view.keys != ffi.NULL else None

    def key_records(
        self,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """The keys of a constmap2's own records, as `keys` gives them."""
        with self.held():
            records = self._key_records().reshape(-1, 2)
        fields = records.view(np.int32)
        order = np.lexsort((fields[:, 1], fields[:, 0]))
        ngrams, offsets, lengths = unpack_records(records[order].reshape(-1))
        if np.any(ngrams < 0) or np.any(np.all(ngrams[1:] == ngrams[:-1], axis=1)):
            raise FormatError(
                f"{self.path}: found a key that is negative or stands twice; rebuild the cache"
            )
        return ngrams, offsets, lengths

    def blocks(self, order: int) -> Iterator[CountsBlock]:
        if order != 2:
            return
        yield from self.blocks_of(*self.keys())

    def blocks_of(
        self,
        ngrams: npt.NDArray[np.int32],
        offsets: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint32],
    ) -> Iterator[CountsBlock]:
        """Blocks for known keys; every entry is checked on the way."""
        bad = ffi.new("uint64_t *")
        for start in range(0, len(ngrams), BLOCK_NGRAMS):
            part = slice(start, start + BLOCK_NGRAMS)
            at, n = offsets[part], lengths[part]
            with self.held():
                status = lib.lookup_static_check_entries(
                    self._view, u64(at), u32(n), len(n), 2**31 - 1, bad
                )
                wrong = f"{self.path}: found a bad follower at entry {bad[0]}"
                check(status, wrong)
                entries = self._spans(at, n)
            yield CountsBlock(2, ngrams[part], n, entries)

    def _spans(
        self, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.int32]:
        entries = self.entries()
        ends = offsets + lengths
        if np.array_equal(offsets[1:], ends[:-1]):  # laid out in key order, as ours are
            return entries[int(offsets[0]) : int(ends[-1])].copy()
        before = np.cumsum(lengths, dtype=np.int64) - lengths
        index = np.repeat(offsets.astype(np.int64) - before, lengths) + np.arange(
            int(lengths.sum())
        )
        return entries[index]
