"""Inputs by folder, pattern or URL: which files are meant, and their bytes.

Owns everything that touches fsspec, which is imported only for URLs. Reading a store survives its
short failures: it goes on where it stopped, a few times, before one line says that it gave up.
"""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lookup_tools.errors import CorpusError, ParameterError
from lookup_tools.system.compressed import regular_size

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")

# Waits before the second to the last try; what a store needs to come back after a restart.
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
# Read ahead of a stream; more, smaller requests would wait for the store most of the time.
_BLOCK_BYTES = 1 << 22
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?:::|://)")
_PATTERN = re.compile(r"[*?\[]")


def is_url(location: str) -> bool:
    """Whether this is for fsspec rather than a path."""
    return _URL.match(location) is not None


def expand_inputs(locations: Sequence[str], suffixes: tuple[str, ...] = ()) -> list[str]:
    """The files that the given files, folders, patterns and URLs of those mean, in order.

    Folders and patterns give their files sorted by path, without names that begin with `.` or `_`;
    with `suffixes` those kinds only. A file named outright is taken as it is.

    Raises:
        CorpusError: a folder or pattern without files, or a store that does not answer.
        OSError: there is no such file.
    """
    files: list[str] = []
    for location in locations:
        if location == "-":
            files.append(location)
        elif is_url(location):
            files += _expand_url(location, suffixes)
        elif os.path.isdir(location):
            found = (os.path.join(folder, name) for folder, _, names in os.walk(location)
                     for name in names)  # fmt: skip
            files += _chosen(found, location, suffixes)
        elif _PATTERN.search(location) and not os.path.exists(location):
            matches = filter(os.path.isfile, glob.iglob(location, recursive=True))
            files += _chosen(matches, location, suffixes)
        else:
            files.append(location)
    return files


def _expand_url(url: str, suffixes: tuple[str, ...]) -> list[str]:
    fs, path = filesystem_of(url)

    def listed() -> list[str] | None:
        # A question mark belongs to a web address; what stores call so is a pattern.
        if _PATTERN.search(path if not _is_web(url) else path.partition("?")[0]):
            return [name for name, info in fs.glob(path, detail=True).items()
                    if info["type"] == "file"]  # fmt: skip
        if url.endswith("/") or (not _is_web(url) and fs.isdir(path)):
            return list(fs.find(path))
        return None

    found = retried(listed, url)
    if found is None:
        return [url]
    return _chosen((str(fs.unstrip_protocol(name)) for name in found), url, suffixes, path)


def _chosen(
    files: Iterable[str], given: str, suffixes: tuple[str, ...], base: str | None = None
) -> list[str]:
    """The wanted ones of some files below `base` (default: what was given), sorted."""
    root = (base if base is not None else given).rstrip("/")

    def wanted(file: str) -> bool:
        name = file.rpartition("/")[2]
        below = file[file.find(root) + len(root) :] if root in file else name
        hidden = any(part[0] in "_." for part in below.split("/") if part)
        return not hidden and name[:1] not in ("_", ".") and name.endswith(suffixes or "")

    chosen = sorted(file for file in files if wanted(file))
    if not chosen:
        kinds = f" named {' or '.join('*' + suffix for suffix in suffixes)}" if suffixes else ""
        raise CorpusError(f"{given}: found no files{kinds}, expected at least one; check the path")
    return chosen


def _is_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def filesystem_of(url: str) -> tuple[Any, str]:
    """fsspec's file system of a URL, and the path in it.

    Raises:
        ParameterError: fsspec or the package for that kind of store is not installed, or nobody
            knows the kind.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ParameterError(
            f"{url}: found no package fsspec, expected it for URLs; pip install "
            "'lookup-tools[remote]'"
        ) from error
    try:
        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    except ImportError as error:
        raise ParameterError(
            f"{url}: its kind of store needs another package: {_reason(error)}"
        ) from error
    except ValueError as error:
        raise ParameterError(
            f"{url}: {_reason(error)}: expected a path or a URL that fsspec knows, such as s3:// "
            "or https://"
        ) from error


def size_of(location: str) -> int | None:
    """Bytes of a file; None where that is not known beforehand (a pipe, some web servers)."""
    if not is_url(location):
        return regular_size(location)
    fs, path = filesystem_of(location)
    size = retried(lambda: fs.info(path).get("size"), location)
    return None if size is None else int(size)


def open_stored(location: str, *, random: bool = False) -> io.RawIOBase:
    """A file's stored bytes; `random` reads no more than is asked for."""
    if is_url(location):
        return StoredFile(location, random=random)
    return open(location, "rb", buffering=0)


class StoredFile(io.RawIOBase):
    """A file of a store, for reading; seekable where its size is known."""

    def __init__(self, url: str, *, random: bool = False) -> None:
        self._url = url
        self._random = random
        self._fs, self._path = filesystem_of(url)
        self._at = 0
        self._file: Any = None
        self._size = retried(lambda: self._opened().size, url)

    def _opened(self) -> Any:
        if self._file is None:
            options = {"cache_type": "none" if self._random else "readahead"}
            file = self._fs.open(self._path, "rb", block_size=_BLOCK_BYTES, **options)
            self._file = file if hasattr(file, "size") else _Sized(file)
            if self._at:
                _go_to(self._file, self._at)
        return self._file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._size is not None

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if self._size is None:
            raise io.UnsupportedOperation(f"{self._url}: its size is not known")
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = retried(lambda: self._read(len(view)), self._url, self._drop)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read(self, size: int) -> bytes:
        if self._size is not None:
            size = min(size, max(0, self._size - self._at))
            if not size:
                return b""
        file = self._opened()
        if self._size is not None and file.tell() != self._at:
            file.seek(self._at)
        data: bytes = file.read(size)
        if not data and self._size is not None:
            raise EOFError(f"it ended at byte {self._at} of {self._size}")
        return data

    def _drop(self) -> None:
        """Forget the connection; the next read opens another one where this one stopped."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except Exception:  # it is broken already
                return

    def close(self) -> None:
        if not self.closed:
            self._drop()
        super().close()


class LinesBetween(io.RawIOBase):
    """The lines that begin in the bytes `start` to `stop` of an open file, which it takes over."""

    def __init__(self, file: io.RawIOBase, start: int, stop: int) -> None:
        self._file = file
        first = self._line_from(start)
        self._left = max(0, self._line_from(stop) - first)
        file.seek(first)

    def _line_from(self, offset: int) -> int:
        """Where the first line begins that begins at `offset` or later; the end if none does."""
        if offset == 0:
            return 0
        at = self._file.seek(offset - 1)
        while data := self._file.read(1 << 16):
            if (newline := data.find(b"\n")) >= 0:
                return at + newline + 1
            at += len(data)
        return at

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._file.read(min(len(view), self._left)) or b""
        view[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Sized:
    """A stream of a server that does not tell how long it is."""

    size = None

    def __init__(self, file: Any) -> None:
        self.read, self.close = file.read, file.close


def _go_to(file: Any, at: int) -> None:
    if file.size is not None:
        file.seek(at)
        return
    while at:
        skipped = len(file.read(min(at, _BLOCK_BYTES)))
        if not skipped:
            raise EOFError("it became shorter")
        at -= skipped


def retried(call: Callable[[], T], url: str, between: Callable[[], None] = lambda: None) -> T:
    """Call a store again while it fails in a way that may pass.

    Raises:
        FileNotFoundError, PermissionError: at once, naming the URL.
        CorpusError: it failed every time.
    """
    for wait in (*RETRY_SECONDS, None):
        try:
            return call()
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error
        except PermissionError as error:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), url) from error
        except (ParameterError, MemoryError):
            raise
        except Exception as error:  # dozens of classes from as many libraries
            between()
            if wait is None or _is_final(error):
                raise CorpusError(
                    f"{url}: cannot be read: {_reason(error)}: check the address, the credentials "
                    "and the store"
                ) from error
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def _is_final(error: Exception) -> bool:
    """Whether another try cannot help: a wrong request, no credentials."""
    name = type(error).__name__
    status = getattr(error, "status", None)
    wrong = isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)
    return wrong or name in ("NoCredentialsError", "ParamValidationError", "InvalidURL")


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
