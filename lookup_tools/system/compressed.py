"""Bytes from files and pipes, decompressed on the fly.

Owns compression: it is recognised by its first bytes, never by the file's name, and a stream that
ends in the middle is an error instead of a short read.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from lookup_tools.errors import LookupToolsError
from lookup_tools.system.closing import Closing

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# (path as shown, what is wrong, whether the file merely ends too early) -> the error to raise
Damaged = Callable[[str, str, bool], LookupToolsError]

MAGICS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
}
# zstd's own command line unpacks windows of up to 2**27 bytes without asking (--long=27).
_ZSTD_WINDOW_BYTES = 1 << 27
# A block of 128 KB takes 4 bytes at least, so one slice of input expands to at most 128 MB even in
# a hostile file. Larger slices are no faster.
_SLICE_BYTES = 1 << 12
_BUFFER_BYTES = 1 << 18
_HEAD_BYTES = 8


def compression_of(head: bytes) -> str | None:
    """The name of the compression a file starting with `head` (6 bytes or more) uses."""
    if len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        return "zstd"  # a skippable frame, which may precede the first frame with data
    return next((name for magic, name in MAGICS.items() if head.startswith(magic)), None)


class ByteStream(Closing):
    """One input: `read` and `readline` give decompressed bytes, `position` counts stored ones.

    `position` is how far the file on the disk was consumed, for progress against `size_bytes`
    (None for pipes). Every failure of the compressed layer is raised as what `damaged` makes of
    it; `OSError` passes.
    """

    def __init__(
        self, path: str, damaged: Damaged, raw: BinaryIO | None = None, *, owned: bool = False
    ) -> None:
        self.name = path
        self._damaged = damaged
        self._owned = owned or raw is None  # whether to close it
        self._raw: BinaryIO = open(path, "rb", buffering=0) if raw is None else raw  # noqa: SIM115 (closed by close)
        self.size_bytes = None if raw is not None else regular_size(path)
        self._counter = _Counter(self._raw)
        stored = io.BufferedReader(self._counter, _BUFFER_BYTES)
        self.compression = compression_of(stored.peek(_HEAD_BYTES)[:_HEAD_BYTES])
        self._reader = _decompressor(cast(BinaryIO, stored), self.compression)

    @property
    def position(self) -> int:
        return self._counter.position

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, fewer only at the end."""
        return self._guarded(self._reader.read, size)

    def peek(self, size: int) -> bytes:
        """Up to `size` of the bytes to come, which `read` gives again; empty at the end only."""
        reader = cast(io.BufferedReader, self._reader)
        return self._guarded(reader.peek, size)[:size]

    def readline(self) -> bytes:
        """The next line with its newline byte; empty at the end."""
        return self._guarded(self._reader.readline)

    def close(self) -> None:
        if self._owned:
            self._raw.close()

    def _guarded(self, read: Callable[..., bytes], *arguments: int) -> bytes:
        try:
            return read(*arguments)
        except EOFError as error:
            raise self._damaged(self.name, f"the {self.compression} data ends early", True) from (
                error
            )
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, _ZstdDamageError) as error:
            detail = f"the {self.compression} data is damaged ({error})"
            raise self._damaged(self.name, detail, False) from error


def regular_size(path: str) -> int | None:
    """Size of a regular file in bytes, None for a pipe or device."""
    status = os.stat(path)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _ZstdDamageError(Exception):
    """zstandard's own error, without importing that library before it is needed."""


class _Counter(io.RawIOBase):
    """Counts what is read from the file or pipe below."""

    def __init__(self, below: BinaryIO) -> None:
        self._below = below
        self.position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._below.read(len(view)) or b""
        # A pipe may hand out its first bytes one by one; the magic has to be seen at once.
        while self.position == 0 and 0 < len(data) < _HEAD_BYTES:
            more = self._below.read(len(view) - len(data))
            if not more:
                break
            data += more
        view[: len(data)] = data
        self.position += len(data)
        return len(data)


class _ZstdReader(io.RawIOBase):
    """Concatenated zstd frames as one stream.

    zstandard's own `stream_reader` takes the end of the input inside a frame for the end of the
    data, so frames are followed here by hand.
    """

    def __init__(self, stored: BinaryIO) -> None:
        import zstandard

        self._stored = stored
        self._error = zstandard.ZstdError
        self._factory = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._frame: Any = None
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        while not self._pending:
            if not self._advance():
                return 0
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._pending))
        view[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _advance(self, rest: bytes = b"") -> bool:
        """Decompress one more slice of input; False at the end of the last frame."""
        data = self._stored.read(_SLICE_BYTES)
        if not data:
            if self._frame is not None:
                raise EOFError("inside a zstd frame")
            return False
        unpacked = []
        while data:
            if self._frame is None:
                self._frame = self._factory.decompressobj()
            try:
                unpacked.append(self._frame.decompress(data))
            except self._error as error:
                raise _ZstdDamageError(_zstd_reason(error)) from error
            data = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        self._pending = memoryview(b"".join(unpacked))
        return True


class _XzReader(io.RawIOBase):
    """Concatenated xz streams as one, as `xz -dc` takes them: padding of 4, 8, 12... NUL bytes
    may follow each, and nothing else may.

    lzma.LZMAFile takes whatever it cannot read behind a stream for the end of the data.
    """

    def __init__(self, stored: BinaryIO) -> None:
        self._stored = stored
        self._stream: lzma.LZMADecompressor | None = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        self._padding = 0
        self._given = b""  # read, but not taken by a stream yet

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while True:
            if self._stream is None and not self._next_stream():
                return 0
            assert self._stream is not None
            if self._stream.needs_input and not self._given:
                self._given = self._stored.read(_SLICE_BYTES)
                if not self._given:
                    raise EOFError("inside an xz stream")
            data = self._stream.decompress(self._given, len(view))
            self._given = b""
            if self._stream.eof:
                self._given, self._stream = self._stream.unused_data, None
            if data:
                view[: len(data)] = data
                return len(data)

    def _next_stream(self) -> bool:
        """Skip the padding and begin the stream behind it; False at the end of the input."""
        while not (rest := self._given.lstrip(b"\0")):
            self._padding += len(self._given)
            self._given = self._stored.read(_SLICE_BYTES)
            if not self._given:
                self._require_padding()
                return False
        self._padding += len(self._given) - len(rest)
        self._require_padding()
        self._given, self._padding = rest, 0
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        return True

    def _require_padding(self) -> None:
        if self._padding % 4:
            raise lzma.LZMAError(f"{self._padding} NUL bytes behind a stream, no multiple of 4")


def _zstd_reason(error: Exception) -> str:
    reason = str(error).removeprefix("zstd decompressor error: ")
    if "ictionary" in reason:
        return "it was made with a dictionary, which is not here: compress again without one"
    if "too much memory" in reason:
        return "a window above 128 MB: compress again with --long=27 or less"
    return reason


def _decompressor(stored: BinaryIO, compression: str | None) -> BinaryIO:
    if compression is None:
        return stored
    if compression == "gzip":
        unpacked: Any = gzip.GzipFile(fileobj=stored)
    elif compression == "xz":
        unpacked = _XzReader(stored)
    else:
        unpacked = _ZstdReader(stored)
    return cast(BinaryIO, io.BufferedReader(unpacked, _BUFFER_BYTES))
