"""What every open cache is, whatever its format."""

from __future__ import annotations

import contextlib
import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, i32, lib, owned, u32
from lookup_tools.counting.counts import ORDERS, CountsBlock
from lookup_tools.errors import ClosedError, ParameterError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sniff import CacheFormat
from lookup_tools.system.closing import Closing
from lookup_tools.system.mapping import LoadMode

FOLLOWER = np.dtype([("token", np.int32), ("count", np.int32)])


class Cache(Closing, ABC):
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

    @property
    def closed(self) -> bool:
        return self._buffer is None

    def close(self) -> None:
        """Release the file. Idempotent.

        Raises:
            ClosedError: a drafter still uses it, or another thread is reading it.
        """
        with self._lock:
            if self._buffer is None:
                return
            if self._holders:
                raise ClosedError(
                    f"{self.path}: found {self._holders} drafter(s) or call(s) still using this "
                    "cache; close drafters first"
                )
            self._drop()
            ffi.release(self._pointer)
            with contextlib.suppress(BufferError):  # an array over it is alive: it goes with that
                self._buffer.close()
            self._buffer = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the cache open while the block runs, as C code reads the file's memory unasked."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def hold(self) -> None:
        """Keep the cache open until `release`. Drafters and replays call this."""
        with self._lock:
            if self._buffer is None:
                raise ClosedError(
                    f"{self.path}: found a closed cache, expected an open one; open it again"
                )
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1

    def _open_buffer(self) -> mmap.mmap:
        if self._buffer is None:
            raise ClosedError(
                f"{self.path}: found a closed cache, expected an open one; open it again"
            )
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
                        table,
                        order,
                        i32(block.ngrams.reshape(-1)),
                        u32(block.lengths),
                        i32(block.entries.reshape(-1)),
                        block.n_ngrams,
                        block.n_pairs,
                    ),
                    self.path,
                )
        return table


def checked_ngram(ngram: Sequence[int]) -> list[int]:
    ids = [int(token) for token in ngram]
    if not 1 <= len(ids) <= max(ORDERS) or not all(0 <= token < 2**31 for token in ids):
        raise ParameterError(f"found n-gram {ids}, expected 1 to 4 token ids from 0 to 2^31-1")
    return ids
