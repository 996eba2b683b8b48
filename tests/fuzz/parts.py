"""What the Python targets share: an input read piece by piece, and a file to write it to."""

from __future__ import annotations

from pathlib import Path

from lookup_tools.errors import LookupToolsError

# What may come out of reading any bytes. Everything else is a finding.
EXPECTED = (LookupToolsError, OSError)


class Input:
    """Numbers and bytes from the front of an input; behind its end it is all zeros."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def byte(self) -> int:
        return self.bytes(1)[0]

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "little")

    def bytes(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part.ljust(size, b"\0")

    def rest(self) -> bytes:
        return self.bytes(self.left)


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path
