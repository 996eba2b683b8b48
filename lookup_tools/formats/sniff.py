"""Telling what a file is before reading it as something else."""

from __future__ import annotations

import os
from typing import BinaryIO, Literal

from lookup_tools.errors import FormatError, TruncatedError

CacheFormat = Literal["legacy", "constmap", "constmap2"]
FORMATS: tuple[CacheFormat, ...] = ("legacy", "constmap", "constmap2")

CONSTMAP_MAGIC = b"ggngcmap"
CONSTMAP2_MAGIC = b"ggngcmp2"

# What people pass by mistake, and what to do about it.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"ggngc", "a ggngc file of an unknown version", "ggngcmap and ggngcmp2 are known"),
    (b"GGUF", "a GGUF model", "pass the model with -m and a cache here"),
    # Three bytes, not two: a legacy file may start with a small id that ends in 1f 8b.
    (b"\x1f\x8b\x08", "a gzip file", "decompress it first (gzip -d)"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "decompress it first (zstd -d)"),
    (b"\xfd7zXZ\x00", "an xz file", "decompress it first (xz -d)"),
    (b"PK\x03\x04", "a zip file", "unpack it first"),
    (b"VMAP0001", "a bare constmap", "it has no followers: expected a cache around it"),
    (b"VCMP0002", "a bare constmap", "it has no followers: expected a cache around it"),
    (b"lttokens", "a token file", "pass it with --tokens"),
    (b"PAR1", "a parquet file", "build a cache from it with lookup-create --dataset-path"),
)

_EXPECTED = "expected a cache file (legacy, constmap or constmap2)"


def sniff(path: str | os.PathLike[str]) -> CacheFormat:
    """The format of a cache file, by its magic; no magic means legacy.

    Raises:
        TruncatedError: the file is empty or shorter than any cache.
        FormatError: the file is recognisably something else; the message says what.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return sniff_file(file, os.fspath(path))


def sniff_file(file: BinaryIO, name: str) -> CacheFormat:
    """`sniff` for an open file; leaves it at its start."""
    head = file.read(4096)
    file.seek(0)
    if not head:
        raise TruncatedError(
            f"{name}: found an empty file, {_EXPECTED}; build one with lookup-create"
        )
    if head.startswith(CONSTMAP_MAGIC):
        return "constmap"
    if head.startswith(CONSTMAP2_MAGIC):
        return "constmap2"
    for magic, what, advice in _FOREIGN:
        if head.startswith(magic):
            raise FormatError(f"{name}: found {what}, {_EXPECTED}; {advice}")
    if _is_text(head):
        what = "a JSON file" if head.lstrip()[:1] in (b"{", b"[") else "a text file"
        raise FormatError(
            f"{name}: found {what}, {_EXPECTED}; build a cache from text with lookup-create -f"
        )
    return "legacy"


def _is_text(head: bytes) -> bool:
    """Text has no NUL; a legacy record (small ids and counts) is full of them."""
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3  # a character cut at the end of what was read
    return True
