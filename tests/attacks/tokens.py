"""Attacks on token files and raw files of ids."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import random
import struct
from collections.abc import Iterator
from typing import Any

import zstandard

from attacks.rules import Variant, breaks

DESCRIPTION: dict[str, Any] = {
    "corpora": ["made up"],
    "fingerprint": "0123456789abcdef",
    "tokenizer": "ten ids",
    "vocab_size": 10,
}
IDS, ENDS = (1, 2, 3, 9, 4), (3, 3, 5)
MOST_IDS = 1 << 20


def head(
    *, version: int = 1, width: int = 2, size: int | None = None, description: Any = DESCRIPTION
) -> bytes:
    text = description if isinstance(description, bytes) else json.dumps(description).encode()
    return (
        struct.pack("<8sIIQ", b"lttokens", version, width, len(text) if size is None else size)
        + text
    )


def block(
    ids: tuple[int, ...] = IDS,
    ends: tuple[int, ...] = ENDS,
    *,
    width: int = 2,
    n: int | None = None,
) -> bytes:
    letter = "H" if width == 2 else "I"
    counts = struct.pack("<II", len(ids) if n is None else n, len(ends))
    return counts + struct.pack(f"<{len(ids)}{letter}{len(ends)}I", *ids, *ends)


def foot(
    body: bytes, stored: bytes, *, n_tokens: int = len(IDS), n_documents: int = len(ENDS),
    reserved: int = 0, ids_hash: bytes | None = None, file_hash: bytes | None = None,
    magic: bytes = b"lttokend",
) -> bytes:  # fmt: skip
    """The foot of a file whose blocks hold `stored` ids; keywords replace its fields."""
    claimed = hashlib.sha256(stored).digest() if ids_hash is None else ids_hash
    fields = struct.pack("<IIQQ32s", 0xFFFFFFFF, reserved, n_tokens, n_documents, claimed)
    digest = hashlib.sha256(body + fields).digest() if file_hash is None else file_hash
    return fields + digest + magic


def file(
    *, first: bytes | None = None, ids: tuple[int, ...] = IDS, ends: tuple[int, ...] = ENDS,
    width: int = 2, **replaced: Any,
) -> bytes:  # fmt: skip
    """A token file of one block; keywords replace parts of it."""
    body = (head(width=width) if first is None else first) + block(ids, ends, width=width)
    stored = struct.pack(f"<{len(ids)}{'H' if width == 2 else 'I'}", *ids)
    return body + foot(body, stored, **replaced)


def tokens(data: bytes, name: str = "t.u16") -> Variant:
    return Variant(data, name=name, door="tokens")


# ---- the head


@breaks("tokens-version")
def other_version() -> Iterator[Variant]:
    for version in (0, 2, 2**32 - 1):
        yield tokens(file(first=head(version=version)))


@breaks("tokens-width")
def other_width() -> Iterator[Variant]:
    for width in (0, 1, 3, 8):
        yield tokens(file(first=head(width=width)))


@breaks("tokens-width-vocabulary")
def wrong_width() -> Iterator[Variant]:
    yield tokens(file(width=4))
    yield tokens(file(first=head(description=DESCRIPTION | {"vocab_size": 65_537})))


@breaks("tokens-description-size")
def large_description() -> Iterator[Variant]:
    yield tokens(file(first=head(size=2**20 + 1)))
    yield tokens(file(first=head(size=2**64 - 1)))


@breaks("tokens-description")
def description() -> Iterator[Variant]:
    for text in (b"", b"\xff", b"[]", b"{}", b"{", b"[" * 100_000, b"null"):
        yield tokens(file(first=head(description=text)))
    wrong: dict[str, list[object]] = {
        "vocab_size": [0, -1, 2**31 + 1, 10.0, True, "10", None],
        "fingerprint": [7, 0, [], False],
        "tokenizer": [7, {}, "\ud800"],
        "corpora": [1, None, [None], "text", {}],
    }
    for field, values in wrong.items():
        for value in values:
            yield tokens(file(first=head(description=DESCRIPTION | {field: value})))


@breaks("tokens-cut-head")
def cut_head() -> Iterator[Variant]:
    whole = head()
    for size in (8, 12, 23, len(whole) - 1):
        yield tokens(whole[:size])


# ---- blocks


@breaks("tokens-block-size")
def large_block() -> Iterator[Variant]:
    for n in (MOST_IDS + 1, 0xFFFFFFF0):
        yield tokens(head() + struct.pack("<II", n, 1))


@breaks("tokens-id")
def large_id() -> Iterator[Variant]:
    yield tokens(file(ids=(1, 2, 3, 10, 4)))
    yield tokens(file(ids=(65_535, 2, 3, 9, 4)))
    wide = head(width=4, description=DESCRIPTION | {"vocab_size": 2**31})
    yield tokens(file(first=wide, ids=(1, 2, 3, 2**31, 4), width=4), "t.u32")


@breaks("tokens-ends")
def wrong_ends() -> Iterator[Variant]:
    for ends in ((3, 2, 5), (3, 3, 6), (3, 5, 2**32 - 1)):
        yield tokens(file(ends=ends))


@breaks("tokens-cut")
def cut() -> Iterator[Variant]:
    whole = file()
    for size in (len(head()), len(head()) + 7, len(head()) + 20, len(whole) - 80, len(whole) - 1):
        yield tokens(whole[:size])
    yield tokens(head() + struct.pack("<II", 0, 2**32 - 1))  # claims 16 GiB of ends


# ---- the foot


@breaks("tokens-reserved")
def reserved() -> Iterator[Variant]:
    for value in (1, 2**32 - 1):
        yield tokens(file(reserved=value))


@breaks("tokens-total")
def other_total() -> Iterator[Variant]:
    for n in (0, 6, 2**64 - 1):
        yield tokens(file(n_tokens=n))
    yield tokens(file(ends=(3, 3, 4)))  # the last document does not end


@breaks("tokens-documents")
def other_documents() -> Iterator[Variant]:
    for n in (0, 2, 2**64 - 1):
        yield tokens(file(n_documents=n))


@breaks("tokens-ids-hash")
def ids_hash() -> Iterator[Variant]:
    yield tokens(file(ids_hash=bytes(32)))


@breaks("tokens-hash")
def file_hash() -> Iterator[Variant]:
    yield tokens(file(file_hash=bytes(32)))
    yield tokens(file().replace(b"ten ids", b"two ids"))


@breaks("tokens-end")
def end() -> Iterator[Variant]:
    yield tokens(file(magic=b"lttokens"))


@breaks("tokens-rest")
def rest() -> Iterator[Variant]:
    yield tokens(file() + b"\0")
    yield tokens(file() + file())


# ---- raw ids, compressed files


@breaks("raw-name")
def raw_name() -> Iterator[Variant]:
    yield tokens(bytes(16), "ids.bin")
    yield tokens(bytes(16), "ids")
    yield tokens(b"lttoken" + file()[7:].replace(b"s", b"S", 1), "ids.zst")


@breaks("raw-empty")
def raw_empty() -> Iterator[Variant]:
    yield tokens(b"")
    yield tokens(b"lttoken")


@breaks("raw-size")
def raw_size() -> Iterator[Variant]:
    yield tokens(bytes(17))
    yield tokens(bytes(18), "t.u32")
    yield tokens(zstandard.compress(bytes(17)), "t.u16.zst")


@breaks("raw-id")
def raw_id() -> Iterator[Variant]:
    yield tokens(struct.pack("<4I", 1, 2, 2**31, 3), "t.u32")


@breaks("raw-lost-head")
def lost_head() -> Iterator[Variant]:
    whole = file(ids=(1, 2, 3, 9), ends=(3, 4), n_tokens=4, n_documents=2)
    yield tokens(b"Lttokens" + whole[8:] if len(whole) % 2 == 0 else b"L" + whole)


@breaks("packed-name")
def not_packed() -> Iterator[Variant]:
    yield tokens(b"\x28\xb5", "t.u16.zst")  # the beginning of a magic
    yield tokens(b"\x29" + zstandard.compress(bytes(99))[1:], "t.u16.zst")
    yield tokens(bytes(16), "t.u32.gz")


def large() -> bytes:
    """A file of which a reader has the head before it comes to the end, packed or not."""
    rng = random.Random(1)
    ids = tuple(rng.randrange(10) for _ in range(300_000))
    return file(ids=ids, ends=(len(ids),), n_tokens=len(ids), n_documents=1)


@breaks("packed-cut")
def packed_cut() -> Iterator[Variant]:
    for pack, name in ((zstandard.compress, "zst"), (gzip.compress, "gz"), (lzma.compress, "xz")):
        yield tokens(pack(large())[:-3], f"t.u16.{name}")


@breaks("packed-damaged")
def packed_damaged() -> Iterator[Variant]:
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(large()))
    data[-1] ^= 1
    yield tokens(bytes(data), "t.u16.zst")
    data = bytearray(gzip.compress(large()))
    data[-5] ^= 1  # of its CRC
    yield tokens(bytes(data), "t.u16.gz")
