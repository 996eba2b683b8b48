"""Files as read-only buffers: mapped, or copied into memory of our own."""

from __future__ import annotations

import contextlib
import mmap
import os
from dataclasses import dataclass
from typing import BinaryIO, Literal

from lookup_tools.errors import LookupToolsError, TruncatedError

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
    own = mmap.mmap(-1, size)
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


def advise(mapped: mmap.mmap, advice: str) -> None:
    """Give the kernel a hint where it knows it; a hint refused changes nothing."""
    if hasattr(mmap, advice):
        with contextlib.suppress(OSError, ValueError):
            mapped.madvise(getattr(mmap, advice))


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of this process, in bytes: `private` is its own, `resident` counts shared
    pages too (/proc/self/smaps_rollup; 0 where the system has no such thing)."""

    private: int
    resident: int
    proportional: int


def memory_now() -> Memory:
    """Measure it."""
    found = {}
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(":")
                if value.endswith("kB\n"):
                    found[name] = 1024 * int(value.split()[0])
    except FileNotFoundError:
        return Memory(0, 0, 0)
    except OSError as error:
        raise LookupToolsError(f"/proc/self/smaps_rollup: {error.strerror}") from None
    private = found.get("Private_Clean", 0) + found.get("Private_Dirty", 0)
    return Memory(private, found.get("Rss", 0), found.get("Pss", 0))


def peak_rss_bytes() -> int:
    """The largest resident set of this process so far (ru_maxrss; mapped file pages included)."""
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
