"""Worker threads: a pool, two calls at once, the next item made while one is used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, cast

T = TypeVar("T")


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_halves(call: Callable[[int], int], pool: ThreadPoolExecutor | None) -> int:
    """Run two independent C calls, at the same time where there is a pool; the first failure."""
    if pool is None:
        return call(0) or call(1)
    other = pool.submit(call, 1)
    first = call(0)
    return first or int(other.result())


@contextmanager
def worker_pool(threads: int) -> Iterator[ThreadPoolExecutor | None]:
    """A pool of `threads` workers, or None for one thread. Pending work is dropped on failure."""
    if threads <= 1:
        yield None
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="lookup")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def ahead(parts: Iterator[T], pool: ThreadPoolExecutor | None) -> Iterator[T]:
    """The same parts, the next one being made while this one is used."""
    if pool is None:
        yield from parts
        return
    end = object()
    waiting = pool.submit(next, parts, end)
    while (part := waiting.result()) is not end:
        waiting = pool.submit(next, parts, end)
        yield cast(T, part)
