"""Files as read-only buffers: mapped, or copied into memory of our own."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from lookup_tools.errors import TruncatedError

LoadMode = Literal["mmap", "read"]
LOAD_MODES: tuple[LoadMode, ...] = ("mmap", "read")

_READ_BYTES = 1 << 26


def map_file(
    file: BinaryIO, name: str, mode: LoadMode = "mmap", *, populate: bool = False
) -> mmap.mmap:
    """The whole file as one page-aligned buffer.

    `mmap` shares the page cache with every other process and touches nothing yet; a process that
    truncates the file under it makes any reader die of SIGBUS, which no program can prevent.
    `read` copies into private memory, in huge pages where the kernel has them, and is safe from
    that. `populate` brings all of a mapped file in now instead of at first use.

    Raises:
        TruncatedError: the file is empty, or shrinks while it is read.
    """
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise TruncatedError(
            f"{name}: found an empty file, expected a cache file; build one with lookup-create"
        )
    return _read(file, name, size) if mode == "read" else _mapped(file, size, populate)


def _mapped(file: BinaryIO, size: int, populate: bool) -> mmap.mmap:
    flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if populate else 0)
    mapped = mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ)
    if populate:
        advise(mapped, "MADV_HUGEPAGE")
    return mapped


def _read(file: BinaryIO, name: str, size: int) -> mmap.mmap:
    own = _private(size)
    advise(own, "MADV_HUGEPAGE")
    view = memoryview(own)
    at = 0
    while at < size:
        n = file.readinto(view[at : at + _READ_BYTES])  # type: ignore[attr-defined]
        if not n:
            raise TruncatedError(
                f"{name}: found {at} bytes, expected {size}: the file shrank while it was read; "
                "copy it again"
            )
        at += n
    view.release()
    return own


def _private(size: int) -> mmap.mmap:
    # Python's default is a shared mapping, which does not grow with mremap and gets no huge pages.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def advise(mapped: mmap.mmap, advice: str) -> None:
    """Give the kernel a hint where it knows it; a hint refused changes nothing."""
    if hasattr(mmap, advice):
        with contextlib.suppress(OSError, ValueError):
            mapped.madvise(getattr(mmap, advice))


class GrowingWords:
    """u64 words of a number unknown at first, in one mapping that grows in place: appending copies
    nothing twice, and no freed pieces stay behind in the heap."""

    def __init__(self) -> None:
        self._mapping = _private(1 << 20)
        self._used = 0

    def append(self, words: npt.NDArray[np.uint64]) -> None:
        size = words.nbytes
        if self._used + size > len(self._mapping):
            self._grow(max(2 * len(self._mapping), self._used + size))
        self._mapping[self._used : self._used + size] = words.data.cast("B")
        self._used += size

    def _grow(self, size: int) -> None:
        try:
            self._mapping.resize(size)
        except SystemError:  # no mremap here (macOS)
            grown = _private(size)
            grown[: self._used] = self._mapping[: self._used]
            self._mapping = grown

    def words(self) -> npt.NDArray[np.uint64]:
        """All of them, as a view; append no more while it lives."""
        return np.frombuffer(self._mapping, np.uint64, self._used // 8)
