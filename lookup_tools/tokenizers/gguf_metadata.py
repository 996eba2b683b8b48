"""Reads the metadata of a GGUF file, and nothing else of it.

The ``gguf`` package builds an object for every array element, which takes seconds on a vocabulary;
this reader takes milliseconds. Layout (GGUF versions 2 and 3, little-endian)::

    0  "GGUF" | 4  u32 version | 8  u64 tensors | 16  u64 key count | 24  key-value pairs
    pair   = string key, u32 type, value
    string = u64 length, UTF-8 bytes
    array  = u32 element type, u64 count, elements

Every length is checked against the file before it is used.

Source: the GGUF specification (ggml repository, docs/gguf.md).
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from lookup_tools.errors import FormatError, TruncatedError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_STRING, _ARRAY, _BOOL = 8, 9, 7
# GGUF type number -> struct and numpy letter.
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
# llama.cpp's own limit is of this order; a forged count must not exhaust memory.
_MAX_PAIRS = 1 << 20

Metadata = dict[str, Any]


def read_metadata(path: str | os.PathLike[str]) -> Metadata:
    """Return the key-value pairs of a GGUF file.

    Scalars come as int, float, bool or str, numeric arrays as numpy arrays, string arrays as lists
    of ``bytes``. Cost: one pass over the metadata; tensors are never touched.

    Raises:
        OSError: the file cannot be opened.
        FormatError: not a GGUF file, an unknown version or a value that breaks the layout.
        TruncatedError: the file ends inside the metadata.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 24:
            raise TruncatedError(
                f"{path}: found a file of {size} bytes, expected a GGUF header of 24; "
                "give a complete GGUF file"
            )
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data, size, Path(path)).read()


class _Reader:
    """A cursor over the mapped file; ``at`` is the offset of the next unread byte."""

    def __init__(self, data: mmap.mmap, size: int, path: Path) -> None:
        self.data, self.size, self.path, self.at = data, size, path, 0

    def read(self) -> Metadata:
        if self.take(4) != MAGIC:
            self.fail("found no GGUF magic, expected the bytes 'GGUF'; give a GGUF file")
        version = self.u32()
        if version not in VERSIONS:
            big = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            found = "a big-endian GGUF file" if big else f"GGUF version {version}"
            self.fail(f"found {found}, expected little-endian version 2 or 3; convert it again")
        self.u64()
        count = self.u64()
        if count > _MAX_PAIRS:
            self.fail(f"found {count} metadata keys, expected at most {_MAX_PAIRS}; file damaged?")
        pairs: Metadata = {}
        for _ in range(count):
            key = self.text()
            if key in pairs:
                self.fail(f"found the key {key[:80]!r} twice, expected it once; file damaged?")
            pairs[key] = self.value(self.u32(), key)
        return pairs

    def fail(self, message: str) -> NoReturn:
        raise FormatError(f"{self.path}: {message}")

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        end = self.at + length
        if end > self.size:
            raise TruncatedError(
                f"{self.path}: found {self.size} bytes, expected at least {end} for the GGUF "
                "metadata; download the file again"
            )
        part: bytes = self.data[self.at : end]
        self.at = end
        return part

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def text(self) -> str:
        raw = self.take(self.u64())
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.fail(
                f"found bytes that are not UTF-8 near offset {self.at}, expected a string; "
                "download the file again"
            )

    def value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array(key)
        letter = self.letter(kind, key)
        (number,) = struct.unpack("<" + letter, self.take(struct.calcsize("<" + letter)))
        return bool(number) if kind == _BOOL else number

    def letter(self, kind: int, key: str) -> str:
        letter = _SCALARS.get(kind)
        if letter is None:
            self.fail(
                f"found value type {kind} at key {key[:80]!r}, expected 0 to 12; file damaged?"
            )
        return letter

    def array(self, key: str) -> Any:
        kind, count = self.u32(), self.u64()
        if kind == _STRING:
            return self.strings(count)
        if kind == _ARRAY:
            self.fail(
                f"found nested arrays at key {key[:80]!r}, expected flat ones; "
                "this reader does not support them"
            )
        dtype = np.dtype("<" + self.letter(kind, key))
        return np.frombuffer(self.take(count * dtype.itemsize), dtype=dtype)

    def strings(self, count: int) -> list[bytes]:
        """``count`` strings as bytes; the hot loop, about 0.2 us a string."""
        data, size, at, unpack = self.data, self.size, self.at, _U64.unpack_from
        found = []
        for _ in range(count):
            if at + 8 > size:
                break
            start = at + 8
            at = start + unpack(data, at)[0]
            if at > size:
                break
            found.append(data[start:at])
        if len(found) < count:
            self.at = size
            self.take(1)
        self.at = at
        return found
