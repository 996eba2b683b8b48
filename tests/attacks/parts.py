"""Good files in parts, written from docs/format.md alone but for the map, which the package builds.

Every function takes the part to replace, so that an attack is one argument.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import xxhash
import zstandard

from lookup_tools.formats.constmap import build_map

VOCABULARY = 12
Counts = dict[tuple[int, ...], dict[int, int]]
COUNTS: Counts = {
    (1, 2): {3: 5, 4: 1},
    (2, 3): {4: 2},
    (2, 4): {1: 1, 5: 7, 9: 1},
    (3, 4): {1: 4},
    (4, 1): {2: 3},
    (4, 5): {1: 1},
}
META: dict[str, Any] = {
    "kind": "static",
    "fingerprint": "0123456789abcdef0123456789abcdef",
    "tokenizer": "twelve ids",
    "vocab_size": VOCABULARY,
    "corpora": ["made up"],
    "n_tokens": 40,
    "n_ngrams": len(COUNTS),
    "n_pairs": sum(map(len, COUNTS.values())),
    "options": {},
    "tool": "attack",
}

Entry = tuple[int, int]  # token, count
Key = tuple[int, int, int, int]  # t0, t1, offset, length


def entries_of(counts: Counts = COUNTS) -> list[Entry]:
    """All followers, n-gram by n-gram."""
    return [pair for followers in counts.values() for pair in followers.items()]


def keys_of(counts: Counts = COUNTS) -> list[Key]:
    """All 2-grams with their spans."""
    keys, at = [], 0
    for (t0, t1), followers in counts.items():
        keys.append((t0, t1, at, len(followers)))
        at += len(followers)
    return keys


# ---- legacy


def record(tokens: tuple[int, ...], followers: list[Entry], n: int | None = None) -> bytes:
    """One legacy record; `tokens` are padded with -1, `n` overrides the number of followers."""
    padded = (*tokens, *(-1,) * (4 - len(tokens)))
    head = struct.pack("<5i", *padded, len(followers) if n is None else n)
    return head + b"".join(struct.pack("<2i", *pair) for pair in followers)


def legacy(counts: Counts = COUNTS) -> bytes:
    return b"".join(record(ngram, list(counts[ngram].items())) for ngram in counts)


def sidecar(data: bytes, *, meta: Any = META, size: Any = None, **replaced: Any) -> bytes:
    """A sidecar that vouches for `data`; keywords replace fields of the record or the body."""
    found = {"size": len(data) if size is None else size, "xxh64": xxhash.xxh64(data).hexdigest()}
    record = {**found, "meta": meta} | {k: v for k, v in replaced.items() if k == "xxh64"}
    body = {"format": "lookup-tools sidecar 1", "files": [record]}
    return json.dumps(body | {k: v for k, v in replaced.items() if k != "xxh64"}).encode()


# ---- the map


def map_of(
    keys: list[Key] | None = None, *, values: dict[tuple[int, int], int] | None = None
) -> bytes:
    """A serialized map of the keys' spans; `values` replaces some of its raw values."""
    records = []
    for t0, t1, offset, length in keys_of() if keys is None else keys:
        value = (values or {}).get((t0, t1), offset << 24 | length)
        records += [t0 | t1 << 32, value]
    return build_map(np.array(records, np.uint64), 0).tobytes()


def fnv1a(data: bytes) -> int:
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def map_with(at: int, field: bytes, data: bytes | None = None) -> bytes:
    """A map with some bytes replaced, its checksum recomputed."""
    data = map_of() if data is None else data
    body = data[:at] + field + data[at + len(field) : -8]
    return body + struct.pack("<Q", fnv1a(body))


# ---- the annex


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def key_table(keys: list[Key] | None = None) -> bytes:
    """The key table before compression: groups by first token, then all lengths."""
    keys = keys_of() if keys is None else keys
    groups: dict[int, list[int]] = {}
    for t0, t1, _, _ in keys:
        groups.setdefault(t0, []).append(t1)
    out, before0 = b"", 0
    for t0, seconds in groups.items():
        out += varint(t0 - before0) + varint(len(seconds))
        out += b"".join(varint(b - a) for a, b in zip([0, *seconds], seconds, strict=False))
        before0 = t0
    return out + b"".join(varint(length) for *_, length in keys)


def sized(data: bytes, size: int | None = None) -> bytes:
    return struct.pack("<Q", len(data) if size is None else size) + data


def packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def annex(
    *,
    entries: list[Entry] | None = None,
    meta: bytes | dict[str, Any] = META,
    keys: bytes | None = None,
    fields: bytes | None = None,
    entries_hash: int | None = None,
    head: bytes = b"ltannex1",
    length: int | None = None,
) -> bytes:
    """An annex. `keys` is the compressed table, `fields` everything between head and hash."""
    text = meta if isinstance(meta, bytes) else json.dumps(meta).encode()
    if fields is None:
        fields = sized(text) + sized(packed(key_table()) if keys is None else keys)
    if entries_hash is None:
        entries_hash = xxhash.xxh64(entry_bytes(entries)).intdigest()
    body = head + fields + struct.pack("<Q", entries_hash)
    total = len(body) + 16 if length is None else length
    return body + struct.pack("<Q", total) + b"ltannex1"


# ---- constmap files


def entry_bytes(entries: list[Entry] | None = None) -> bytes:
    pairs = entries_of() if entries is None else entries
    return b"".join(struct.pack("<2i", *pair) for pair in pairs)


def constmap(
    *,
    entries: list[Entry] | None = None,
    map_bytes: bytes | None = None,
    annex_bytes: bytes | None = None,
    n_entries: int | None = None,
    map_size: int | None = None,
) -> bytes:
    """A constmap file; `annex_bytes` b"" leaves the annex out."""
    data = entry_bytes(entries)
    map_bytes = map_of() if map_bytes is None else map_bytes
    section = map_bytes + (annex(entries=entries) if annex_bytes is None else annex_bytes)
    head = struct.pack(
        "<8sQQ",
        b"ggngcmap",
        len(data) // 8 if n_entries is None else n_entries,
        len(section) if map_size is None else map_size,
    )
    return head + data + section


def constmap2(
    *, keys: list[Key] | None = None, n_keys: int | None = None, annex_bytes: bytes = b""
) -> bytes:
    """A constmap2 file, without an annex unless one is given."""
    keys = keys_of() if keys is None else keys
    data, section = entry_bytes(), map_of() + annex_bytes
    n = len(keys) if n_keys is None else n_keys
    head = struct.pack("<8sQQQ", b"ggngcmp2", len(data) // 8, len(section), n)
    tail = b"".join(struct.pack("<2iQ", t0, t1, o << 24 | length) for t0, t1, o, length in keys)
    return head + data + section + tail
