"""Memory of this process and of others: measured, and given back."""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
from dataclasses import dataclass


def release_free_memory() -> None:
    """Give the heap's free pages back to the system, where the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of this process, in bytes (/proc/self/smaps_rollup; 0 where the system has no such
    thing). `private` is written memory that no other process can share (Private_Dirty): a mapped
    file's pages are not in it, even while this process is the only one that has it mapped.
    `resident` counts those too; `proportional` divides them among their users."""

    private: int
    resident: int
    proportional: int


def memory_now() -> Memory:
    """Measure it."""
    found = _kilobytes("/proc/self/smaps_rollup")
    return Memory(found.get("Private_Dirty", 0), found.get("Rss", 0), found.get("Pss", 0))


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of any process, in bytes (/proc/PID/status; 0 where the system does not tell).
    `anonymous` is what it allocated itself: no pages of files it has mapped, such as a model."""

    resident: int
    peak: int
    anonymous: int


def process_memory(pid: int) -> ProcessMemory:
    """Measure a process; all 0 when it is gone."""
    found = _kilobytes(f"/proc/{pid}/status")
    return ProcessMemory(found.get("VmRSS", 0), found.get("VmHWM", 0), found.get("RssAnon", 0))


def peak_rss_bytes() -> int:
    """The largest resident set of this program so far, mapped file pages included.

    VmHWM where the system tells it, because ru_maxrss also remembers the process that started this
    one.
    """
    peak = _kilobytes("/proc/self/status").get("VmHWM", 0)
    unit = 1 if sys.platform == "darwin" else 1024
    return peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _kilobytes(path: str) -> dict[str, int]:
    """The `Name: N kB` lines of a file below /proc, in bytes."""
    found = {}
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if value.endswith("kB\n"):
                found[name] = 1024 * int(value.split()[0])
    return found
