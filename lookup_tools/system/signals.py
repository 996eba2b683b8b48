"""Ending on a signal: soon, cleanly, and whatever the program is doing at the time.

A signal becomes an exception, so that everything that is open is closed on the way out. Two things
can hold that up: Python looks at signals only between two of its own instructions, so a long call
into C delays them; and an exception in the middle of the standard library's locks can leave one of
them taken for ever. So a thread watches, too. It sees a signal at once, and when the program has
not ended by itself within GRACE_SECONDS it removes what must not stay behind and ends it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

GRACE_SECONDS = 0.3
_DONE = b"\0"  # no signal has this number
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_cleanups: dict[object, Callable[[], object]] = {}


@contextlib.contextmanager
def undone_at_end(cleanup: Callable[[], object]) -> Iterator[None]:
    """Have `cleanup` called if a signal ends the program for good while the block runs.

    It is called in another thread while this one may be anywhere in the block, or behind it.
    """
    key = object()
    _cleanups[key] = cleanup
    try:
        yield
    finally:
        _cleanups.pop(key, None)


@contextlib.contextmanager
def temporary_folder(parent: str | None = None, prefix: str = "lookup-tools-") -> Iterator[str]:
    """A folder in `parent` (default: the system's place) that goes when the block ends, however it
    ends."""
    import shutil
    import tempfile

    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder,
        undone_at_end(lambda: shutil.rmtree(folder)),
    ):
        yield folder


@contextlib.contextmanager
def terminate_cleanly() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit` while the block runs, so that cleanups run, and end
    the program all the same where they do not end soon (SIGINT, too).

    The exit code is 128 + the signal's number, as shells report it. A second such signal is
    ignored while the first unwinds. Outside the main thread this does nothing, because Python
    allows no handlers there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # nohup sets SIGHUP to "ignore"; that wish is respected.
    ours = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.getsignal(number) for number in ours}

    def leave(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, _ignore)
        raise SystemExit(128 + number)

    with _watched():
        try:
            for number in ours:
                signal.signal(number, leave)
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which programs that are started would inherit."""


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    """Have a thread wait for signals, which the interpreter writes into a pipe as they come."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True)
    try:
        with contextlib.suppress(RuntimeError):  # no room for one more thread
            watcher.start()
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(writer, _DONE)
        if watcher.ident is not None:
            watcher.join()
        os.close(reader)
        os.close(writer)


def _watch(reader: int) -> None:
    """Wait for a signal that ends the program, then for the end; both come through the pipe."""
    number, deadline = 0, None
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([reader], [], [], left)
        if not ready:
            _end(number)
        read = os.read(reader, 1)
        if read == _DONE:
            return
        if not number and read[0] in (*_ENDING, signal.SIGINT):
            number, deadline = read[0], time.monotonic() + GRACE_SECONDS


def _end(number: int) -> None:
    for cleanup in list(_cleanups.values()):
        with contextlib.suppress(Exception):
            cleanup()
    if number == signal.SIGINT:
        with contextlib.suppress(OSError):
            os.write(2, b"interrupted; outputs are whole or absent\n")
    os._exit(128 + number)
