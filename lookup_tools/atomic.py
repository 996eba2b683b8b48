"""Outputs that are either whole or absent.

Owns how files come into being: a temporary file in the same directory, flushed to the disk, then
renamed over the name asked for. A failed, interrupted or killed run leaves the old file as it was.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import signal
import stat
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO, cast

from lookup_tools.errors import ParameterError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PathArgument = str | os.PathLike[str]

# Large enough that the Python-level write() below is called a few times a megabyte at most.
_BUFFER_BYTES = 1 << 20


class _OutputFile(io.FileIO):
    """A raw output whose failed writes name the file the user asked for."""

    def __init__(self, descriptor: int, shown: str) -> None:
        super().__init__(descriptor, "wb")
        self.shown = shown

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _renamed(error, self.shown) from error


def _renamed(error: OSError, shown: str) -> OSError:
    return OSError(error.errno or errno.EIO, error.strerror or str(error), shown)


@contextlib.contextmanager
def atomic_output(path: PathArgument, *, force: bool = False) -> Iterator[BinaryIO]:
    """Open `path` for writing so that it appears complete or not at all.

    Yields a buffered binary file (seekable and mappable for regular files); write through the
    object, because only its own writes are reported under the output's name. The rename follows
    flush and fsync; a file that is replaced passes its mode on, a new one obeys the umask, and a
    symbolic link keeps pointing where it does. Existing devices, pipes and sockets are written
    to directly.

    Raises:
        ParameterError: a file of that name exists and `force` is false (checked before the work
            starts and again before the rename).
        OSError: the directory or device refuses; `filename` is the output, never the temporary.
    """
    shown = os.fspath(path)
    mode = _mode_of(shown)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    if mode is not None and not stat.S_ISREG(mode):
        with _direct_output(shown) as file:
            yield file
        return
    check_overwrite(shown, force=force)
    target = os.path.realpath(shown)
    temporary = _temporary_name(target)
    try:
        with _opened_temporary(temporary, shown, mode) as file:
            yield file
        check_overwrite(shown, force=force)
        _rename(temporary, target, shown)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def check_overwrite(path: PathArgument, *, force: bool) -> None:
    """Refuse an output that exists as a regular file, unless forced.

    Commands call it before long work; `atomic_output` calls it by itself.

    Raises:
        ParameterError: the file exists and `force` is false.
    """
    mode = _mode_of(os.fspath(path))
    if not force and mode is not None and stat.S_ISREG(mode):
        raise ParameterError(f"{os.fspath(path)} exists: choose another name or pass --force")


@contextlib.contextmanager
def terminate_cleanly() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit` while the block runs, so that cleanups run.

    The exit code is 128 + the signal's number, as shells report it. A second such signal is
    ignored while the first unwinds. Outside the main thread this does nothing, because Python
    allows no handlers there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # nohup sets SIGHUP to "ignore"; that wish is respected.
    ours = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.getsignal(number) for number in ours}

    def leave(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    try:
        for number in ours:
            signal.signal(number, leave)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _mode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _temporary_name(target: str) -> str:
    directory, name = os.path.split(target)
    # Cut so that long names stay under the 255 bytes a directory entry may have.
    stem = os.fsdecode(os.fsencode(name)[:160])
    return os.path.join(directory, f".{stem}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


@contextlib.contextmanager
def _opened_temporary(temporary: str, shown: str, mode: int | None) -> Iterator[BinaryIO]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except OSError as error:
        raise _renamed(error, shown) from error
    with _buffered(descriptor, shown) as file:
        if mode is not None:
            os.fchmod(descriptor, stat.S_IMODE(mode))
        yield file
        file.flush()
        _synchronise(descriptor, shown)


@contextlib.contextmanager
def _direct_output(shown: str) -> Iterator[BinaryIO]:
    descriptor = os.open(shown, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
    with _buffered(descriptor, shown) as file:
        yield file
        file.flush()


@contextlib.contextmanager
def _buffered(descriptor: int, shown: str) -> Iterator[BinaryIO]:
    """The file object; after a failure it is closed without a second complaint."""
    file = io.BufferedWriter(_OutputFile(descriptor, shown), _BUFFER_BYTES)
    try:
        yield cast(BinaryIO, file)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise
    file.close()


def _synchronise(descriptor: int, shown: str) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise _renamed(error, shown) from error


def _rename(temporary: str, target: str, shown: str) -> None:
    try:
        os.replace(temporary, target)
    except OSError as error:
        raise _renamed(error, shown) from error
    # Some file systems cannot synchronise a directory; the file itself is already safe.
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
