"""The annex of a constmap file: metadata, keys and a checksum of the entries (docs/format.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from lookup_tools._native import check, ffi, i32, lib, u8, u32
from lookup_tools.errors import FormatError
from lookup_tools.formats.meta import CacheMeta

MAGIC = b"ltannex1"
_U64 = struct.Struct("<Q")
_TAIL = struct.Struct("<Q8s")
# No 2-gram takes more: 5 bytes each for a first token, its group's size, a second token, a length.
_MOST_KEY_BYTES = 20


@dataclass(frozen=True, slots=True)
class Annex:
    """A located annex: its metadata, and where in the map section its zstd frame of keys stands.
    The keys stay on the disk until somebody enumerates the cache."""

    meta: CacheMeta
    keys_start: int
    keys_size: int
    entries_hash: int


def encode_annex(
    meta: CacheMeta,
    ngrams: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.uint32],
    entries_hash: int,
) -> bytes:
    """The annex for sorted 2-grams (n, 2) and their numbers of followers."""
    keys = _encode_keys(ngrams, lengths)
    text = meta.to_json()
    body = (
        MAGIC + _U64.pack(len(text)) + text + _U64.pack(len(keys)) + keys + _U64.pack(entries_hash)
    )
    return body + _TAIL.pack(len(body) + _TAIL.size, MAGIC)


def find_annex(map_section: memoryview, map_bytes: int, where: str) -> Annex | None:
    """The annex behind a map of `map_bytes` bytes, or None where there is none of ours.

    Raises:
        FormatError: it is there (its tail is) but damaged.
    """
    room = map_section[map_bytes:]
    if len(room) < _TAIL.size:
        return None
    length, magic = _TAIL.unpack(room[-_TAIL.size :])
    if magic != MAGIC:
        return None
    start = len(room) - length
    if not 0 <= start < 8 or bytes(room[start : start + 8]) != MAGIC:
        raise FormatError(
            f"{where}: found an annex of {length} bytes, expected it to fill the {len(room)} "
            "behind the map; rebuild the cache"
        )
    body = room[start + 8 : len(room) - _TAIL.size]
    text_size = _field_size(body, 0, where)
    keys_size = _field_size(body, 8 + text_size, where)
    hash_at = 16 + text_size + keys_size
    if len(body) - hash_at != _U64.size:
        raise FormatError(
            f"{where}: found {len(body) - hash_at} bytes after the annex's keys, expected "
            f"{_U64.size}; rebuild the cache"
        )
    meta = CacheMeta.from_json(bytes(body[8 : 8 + text_size]), where)
    keys_start = map_bytes + start + 8 + 16 + text_size
    return Annex(meta, keys_start, keys_size, _U64.unpack(body[hash_at:])[0])


def _field_size(body: memoryview, at: int, where: str) -> int:
    left = len(body) - at - 8
    size = _U64.unpack(body[at : at + 8])[0] if left >= 0 else -1
    if not 0 <= size <= left:
        raise FormatError(
            f"{where}: found an annex field of {size} bytes, expected at most {max(left, 0)}; "
            "rebuild the cache"
        )
    return int(size)


def _encode_keys(ngrams: npt.NDArray[np.int32], lengths: npt.NDArray[np.uint32]) -> bytes:
    # Only the bytes written become resident, however generous the bound.
    out = np.empty(len(lengths) * _MOST_KEY_BYTES, np.uint8)
    used = ffi.new("size_t *")
    check(
        lib.lookup_keys_encode(
            i32(ngrams.reshape(-1)), u32(lengths), len(lengths), u8(out), len(out), used
        )
    )
    try:
        return zstandard.ZstdCompressor(level=3).compress(out[: used[0]].data)
    except zstandard.ZstdError as error:  # nothing else can go wrong
        raise MemoryError(str(error)) from error


def decode_keys(
    annex: Annex, map_section: Any, where: str
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """The sorted 2-grams (n, 2) and the lengths of their spans.

    Raises:
        FormatError: the key table is damaged.
    """
    n = annex.meta.n_ngrams
    data = _decompress(
        bytes(map_section[annex.keys_start : annex.keys_start + annex.keys_size]), n, where
    )
    ngrams = np.empty((n, 2), np.int32)
    lengths = np.empty(n, np.uint32)
    view: Any = ffi.from_buffer("uint8_t[]", data)
    check(lib.lookup_keys_decode(view, len(data), n, i32(ngrams.reshape(-1)), u32(lengths)), where)
    return ngrams, lengths


def _decompress(frame: bytes, n: int, where: str) -> bytes:
    try:
        size = zstandard.frame_content_size(frame)
        # The size is checked before anything is allocated; every n-gram takes at least two bytes.
        if not 2 * n <= size <= n * _MOST_KEY_BYTES:
            raise FormatError(
                f"{where}: found a key table of {size} bytes for {n} n-grams; rebuild the cache"
            )
        return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as error:
        raise FormatError(
            f"{where}: found a key table that is no zstd frame ({error}); rebuild the cache"
        ) from None
