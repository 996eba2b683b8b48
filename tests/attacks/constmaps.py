"""Attacks on the header, the map, the spans and the entries of constmap files."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from attacks.parts import (
    Entry,
    annex,
    constmap,
    constmap2,
    entries_of,
    keys_of,
    map_of,
    map_with,
)
from attacks.rules import breaks


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


# ---- the file's header


@breaks("constmap-head")
def short_head() -> Iterator[bytes]:
    yield constmap()[:8]
    yield constmap()[:23]
    yield constmap2()[:31]


@breaks("constmap-size")
def wrong_size() -> Iterator[bytes]:
    yield constmap()[:-1]
    yield constmap() + b"\0"
    yield constmap(n_entries=len(entries_of()) + 1)
    yield constmap(n_entries=2**61)  # 8 times that is 2^64
    yield constmap(n_entries=2**64 - 1)
    yield constmap(map_size=0)
    yield constmap(map_size=2**64 - 8 * len(entries_of()))


@breaks("constmap2-keys-size")
def wrong_keys_size() -> Iterator[bytes]:
    yield constmap2(n_keys=len(keys_of()) - 1)
    yield constmap2(n_keys=len(keys_of()) + 1)
    yield constmap2(n_keys=2**60)  # 16 times that is 2^64
    yield constmap2() + b"\0"


# ---- the map


@breaks("map-head")
def no_map() -> Iterator[bytes]:
    yield constmap(map_bytes=b"", annex_bytes=b"")
    yield constmap(map_bytes=map_of()[:39], annex_bytes=b"")


@breaks("map-magic")
def map_magic() -> Iterator[bytes]:
    for magic in (b"VMAP0002", b"CMAP0001", bytes(8)):
        yield constmap(map_bytes=map_with(0, magic))


@breaks("map-segment-length")
def segment_length() -> Iterator[bytes]:
    length, count, _ = struct.unpack("<3I", map_of()[16:28])
    yield constmap(map_bytes=map_with(16, u32(0)))
    yield constmap(map_bytes=map_with(16, u32(3) + u32(count) + u32(3 * (count + 2))))
    yield constmap(map_bytes=map_with(16, u32(length + 1)))


@breaks("map-segment-count")
def segment_count() -> Iterator[bytes]:
    length, _, _ = struct.unpack("<3I", map_of()[16:28])
    yield constmap(map_bytes=map_with(20, u32(0) + u32(2 * length)))


@breaks("map-data-len")
def data_len() -> Iterator[bytes]:
    _, count, slots = struct.unpack("<3I", map_of()[16:28])
    yield constmap(map_bytes=map_with(24, u32(slots - 1)))
    yield constmap(map_bytes=map_with(24, u32(slots + 1)))
    yield constmap(map_bytes=map_with(16, u32(2**31) + u32(count)))
    yield constmap(map_bytes=map_with(20, u32(2**32 - 1)))


@breaks("map-size")
def map_size() -> Iterator[bytes]:
    length, _, _ = struct.unpack("<3I", map_of()[16:28])
    yield constmap(map_bytes=map_of()[:-8], annex_bytes=b"")
    yield constmap(map_bytes=map_with(20, u32(998) + u32(1000 * length)))


@breaks("map-checksum")
def map_checksum() -> Iterator[bytes]:
    data = map_of()
    yield constmap(map_bytes=data[:-1] + bytes([data[-1] ^ 1]))
    yield constmap(map_bytes=data[:40] + bytes([data[40] ^ 1]) + data[41:])


# ---- spans and entries


def with_entry(at: int, entry: Entry) -> list[Entry]:
    entries = entries_of()
    entries[at] = entry
    return entries


@breaks("span-bounds")
def span_bounds() -> Iterator[bytes]:
    n = len(entries_of())
    for value in (n << 24 | 1, (n - 1) << 24 | 2, 2**64 - 1, 3 << 24):
        yield constmap(map_bytes=map_of(values={(3, 4): value}))


@breaks("span-tiling")
def span_tiling() -> Iterator[bytes]:
    keys = keys_of()
    hole, overlap = keys[:-1], [*keys[:-1], (*keys[-1][:2], 0, keys[-1][3])]
    yield constmap2(keys=hole)
    yield constmap(map_bytes=map_of(hole), annex_bytes=b"")
    yield constmap(map_bytes=map_of(overlap), annex_bytes=b"")


@breaks("entry-token")
def entry_token() -> Iterator[bytes]:
    yield constmap(entries=with_entry(0, (-1, 5)))


@breaks("entry-order")
def entry_order() -> Iterator[bytes]:
    yield constmap(entries=with_entry(0, (4, 5)))
    yield constmap(entries=with_entry(0, (5, 5)))
    yield constmap(entries=with_entry(0, (5, 5)), annex_bytes=b"")


@breaks("entry-count")
def entry_count() -> Iterator[bytes]:
    yield constmap(entries=with_entry(2, (4, 0)))
    yield constmap(entries=with_entry(2, (4, -2)), annex_bytes=b"")


# ---- constmap2's keys


@breaks("constmap2-key-negative")
def key_negative() -> Iterator[bytes]:
    keys = keys_of()
    yield constmap2(keys=[(-1, *keys[0][1:]), *keys[1:]])


@breaks("constmap2-key-twice")
def key_twice() -> Iterator[bytes]:
    keys = keys_of()
    yield constmap2(keys=[*keys, keys[0]])


@breaks("constmap2-key-span")
def key_span() -> Iterator[bytes]:
    keys = keys_of()
    yield constmap2(keys=[(*keys[0][:2], keys[0][2], keys[0][3] + 1), *keys[1:]])
    yield constmap2(keys=[(9, 9, *keys[0][2:]), *keys[1:]])  # a key the map does not hold


@breaks("constmap2-key-annex")
def keys_differ() -> Iterator[bytes]:
    keys = keys_of()
    yield constmap2(keys=keys[:-1], annex_bytes=annex())
    yield constmap2(keys=[*keys[:-1], (4, 6, *keys[-1][2:])], annex_bytes=annex())
    yield constmap2(keys=[(*keys[0][:3], 1), *keys[1:]], annex_bytes=annex())


@breaks("keyless-ids")
def keyless_ids() -> Iterator[bytes]:
    for token in (2**24, 2**31 - 1):
        yield constmap(entries=with_entry(6, (token, 1)), annex_bytes=b"")


# ---- ids against the vocabulary the file names


@breaks("vocabulary-entry")
def large_follower() -> Iterator[bytes]:
    entries = with_entry(6, (2**31 - 1, 1))
    yield constmap(entries=entries)
    yield constmap(
        entries=with_entry(5, (12, 1)), annex_bytes=annex(entries=with_entry(5, (12, 1)))
    )
