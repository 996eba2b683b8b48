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
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from lookup_tools.errors import ParameterError
from lookup_tools.system.signals import undone_at_end

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PathArgument = str | os.PathLike[str]
T = TypeVar("T")

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


def _named(shown: str, call: Callable[..., T], *arguments: object) -> T:
    """A system call whose failure names the output."""
    try:
        return call(*arguments)
    except OSError as error:
        raise _renamed(error, shown) from error


@contextlib.contextmanager
def atomic_output(
    path: PathArgument, *, force: bool = False, like: PathArgument | None = None
) -> Iterator[BinaryIO]:
    """Open `path` for writing so that it appears complete or not at all.

    Yields a buffered binary file (seekable and mappable for regular files); write through the
    object, because only its own writes are reported under the output's name. The rename follows
    flush and fsync; a file that is replaced passes its mode and (where permitted) its owner on, a
    new one takes them from `like` if that exists, else obeys the umask, and a symbolic link keeps
    pointing where it does. Existing devices, pipes and sockets are written to directly.

    Raises:
        ParameterError: a file of that name exists and `force` is false (checked before the work
            starts and again before the rename).
        OSError: the directory or device refuses; `filename` is the output, never the temporary.
    """
    shown = os.fspath(path)
    status = _status_of(shown)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    if status is not None and not stat.S_ISREG(status.st_mode):
        with _direct_output(shown) as file:
            yield file
        return
    check_overwrite(shown, force=force)
    if status is None and like is not None:
        status = _status_of(os.fspath(like))
    target = os.path.realpath(shown)
    temporary = _temporary_name(target)
    with undone_at_end(lambda: os.unlink(temporary)):
        try:
            with _opened_temporary(temporary, shown, status) as file:
                yield file
            if force or not _linked(temporary, target, shown):
                _named(shown, os.replace, temporary, target)
            _synchronise_folder(target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def check_overwrite(path: PathArgument, *, force: bool) -> None:
    """Refuse an output that exists as a regular file, unless forced.

    Commands call it before long work; `atomic_output` calls it by itself.

    Raises:
        ParameterError: the file exists and `force` is false.
    """
    status = _status_of(os.fspath(path))
    if not force and status is not None and stat.S_ISREG(status.st_mode):
        raise ParameterError(f"{os.fspath(path)} exists: choose another name or pass --force")


def _status_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _temporary_name(target: str) -> str:
    directory, name = os.path.split(target)
    # Cut so that long names stay under the 255 bytes a directory entry may have.
    stem = os.fsdecode(os.fsencode(name)[:160])
    return os.path.join(directory, f".{stem}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


@contextlib.contextmanager
def _opened_temporary(
    temporary: str, shown: str, like: os.stat_result | None
) -> Iterator[BinaryIO]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = _named(shown, os.open, temporary, flags, 0o666)
    with _buffered(descriptor, shown) as file:
        if like is not None:
            _give_away(descriptor, like)
            _named(shown, os.fchmod, descriptor, stat.S_IMODE(like.st_mode))
        yield file
        file.flush()
        _named(shown, os.fsync, descriptor)


def _give_away(descriptor: int, like: os.stat_result) -> None:
    """The other file's owner and group, or the group alone, where this process may do so."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) == (like.st_uid, like.st_gid):
        return
    for user in (like.st_uid, -1):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, user, like.st_gid)
            return


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


def synchronise(file: BinaryIO) -> None:
    """Wait until the disk has what was flushed to an output; devices and pipes have no such thing.

    Raises:
        OSError: it does not take it; `filename` is the output.
    """
    raw = getattr(file, "raw", None)
    shown = raw.shown if isinstance(raw, _OutputFile) else ""
    try:
        getattr(os, "fdatasync", os.fsync)(file.fileno())  # macOS has the latter only
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise _renamed(error, shown) from error


def _linked(temporary: str, target: str, shown: str) -> bool:
    """Take a name that must be free: a link, unlike a rename, is refused if somebody was faster.
    False where there are no links; then a moment is left between a look and the rename."""
    try:
        os.link(temporary, target)
    except OSError:
        check_overwrite(shown, force=False)
        return False
    return True


def _synchronise_folder(target: str) -> None:
    # Some file systems cannot; the file itself is already safe.
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
