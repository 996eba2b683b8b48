"""Attacks on the metadata of GGUF files."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from attacks.rules import Variant, breaks

U32, FLOAT, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def text(data: bytes, size: int | None = None) -> bytes:
    return struct.pack("<Q", len(data) if size is None else size) + data


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, items: list[bytes], n: int | None = None) -> bytes:
    return struct.pack("<IQ", kind, len(items) if n is None else n) + b"".join(items)


PAIRS = [
    pair(b"a.size", U32, struct.pack("<I", 7)),
    pair(b"name", STRING, text(b"small")),
    pair(b"good", BOOL, b"\1"),
    pair(b"scores", ARRAY, array(FLOAT, [struct.pack("<f", 0.5)] * 2)),
    pair(b"tokens", ARRAY, array(STRING, [text(b"a"), text(b"bc")])),
]


def file(
    pairs: list[bytes] = PAIRS, *, magic: bytes = b"GGUF", version: int = 3, n: int | None = None
) -> bytes:
    """A whole file without tensors; `n` is the claimed number of keys."""
    head = struct.pack("<4sIQQ", magic, version, 0, len(pairs) if n is None else n)
    return head + b"".join(pairs)


def gguf(data: bytes) -> Variant:
    return Variant(data, name="model.gguf", door="gguf")


@breaks("gguf-size")
def short() -> Iterator[Variant]:
    for size in (0, 4, 23):
        yield gguf(file()[:size])


@breaks("gguf-magic")
def magic() -> Iterator[Variant]:
    for other in (b"GGML", b"FUGG", bytes(4)):
        yield gguf(file(magic=other))


@breaks("gguf-version")
def version() -> Iterator[Variant]:
    for other in (0, 1, 4, 3 << 24, 2**32 - 1):
        yield gguf(file(version=other))


@breaks("gguf-keys")
def keys() -> Iterator[Variant]:
    for n in (2**20 + 1, 2**64 - 1):
        yield gguf(file(n=n))


@breaks("gguf-cut")
def cut() -> Iterator[Variant]:
    whole = file()
    for size in (24, 31, 40, len(whole) - 1):
        yield gguf(whole[:size])
    yield gguf(file(n=len(PAIRS) + 1))
    for value in (
        pair(b"k", STRING, text(b"x", 2**64 - 1)),
        pair(b"k", ARRAY, array(STRING, [text(b"x")], 2**63)),
        pair(b"k", ARRAY, array(STRING, [text(b"x", 2**63)])),
        pair(b"k", ARRAY, array(FLOAT, [bytes(4)], 2**62)),  # 4 times that is 2^64
        text(b"k", 2**64 - 8),
    ):
        yield gguf(file([value]))


@breaks("gguf-text")
def not_text() -> Iterator[Variant]:
    yield gguf(file([pair(b"\xff", BOOL, b"\1")]))
    yield gguf(file([pair(b"k", STRING, text(b"\xc3"))]))


@breaks("gguf-type")
def kind() -> Iterator[Variant]:
    for other in (13, 2**32 - 1):
        yield gguf(file([pair(b"k", other, bytes(16))]))
        yield gguf(file([pair(b"k", ARRAY, array(other, [bytes(16)]))]))


@breaks("gguf-nested")
def nested() -> Iterator[Variant]:
    yield gguf(file([pair(b"k", ARRAY, array(ARRAY, [array(U32, [bytes(4)])]))]))


@breaks("gguf-twice")
def twice() -> Iterator[Variant]:
    yield gguf(file([PAIRS[0], PAIRS[1], PAIRS[0]]))
