"""One writer at a time in a folder, where two files have to fit together or none may be lost."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Held(threading.local):
    def __init__(self) -> None:
        self.folders: set[str] = set()


_held = _Held()


@contextmanager
def folder_lock(folder: str, waiting: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold a folder against whoever else asks for it; who holds it already, in this thread, goes
    on. `waiting` is called when it has to be waited for.

    The folder itself is locked: a lock on a file in it would go with the file when that is
    replaced, and a lock file of its own would stay behind.

    Raises:
        OSError: it cannot be locked (some network file systems lock no folders).
    """
    if folder in _held.folders:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, folder, waiting)
        _held.folders.add(folder)
        try:
            yield
        finally:  # said outright: a process forked meanwhile holds the descriptor, too
            _held.folders.discard(folder)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: str, waiting: Callable[[], object] | None) -> None:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        reason = f"cannot be locked against other updates ({error.strerror})"
        raise OSError(error.errno, reason, folder) from error
