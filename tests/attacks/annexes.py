"""Attacks on the annex of constmap files."""

from __future__ import annotations

import json
from collections.abc import Iterator

from attacks.parts import (
    COUNTS,
    META,
    annex,
    constmap,
    entries_of,
    key_table,
    keys_of,
    map_of,
    packed,
    sized,
    varint,
)
from attacks.rules import breaks

TEXT = json.dumps(META).encode()
KEYS = packed(key_table())


def with_annex(data: bytes) -> bytes:
    return constmap(annex_bytes=data)


@breaks("annex-length")
def wrong_length() -> Iterator[bytes]:
    good = len(annex())
    for length in (0, 16, good - 8, good + 1, 2**64 - 1):
        yield with_annex(annex(length=length))
    yield with_annex(bytes(8) + annex())


@breaks("annex-head")
def wrong_head() -> Iterator[bytes]:
    yield with_annex(annex(head=b"ltannex2"))


@breaks("annex-field")
def field_too_long() -> Iterator[bytes]:
    yield with_annex(annex(fields=sized(TEXT, 2**64 - 1) + sized(KEYS)))
    yield with_annex(annex(fields=sized(TEXT) + sized(KEYS, len(KEYS) + 9)))
    yield with_annex(annex(fields=b""))


@breaks("annex-rest")
def bytes_left() -> Iterator[bytes]:
    yield with_annex(annex(fields=sized(TEXT) + sized(KEYS) + b"\0"))
    yield with_annex(annex(fields=sized(TEXT) + sized(KEYS, len(KEYS) - 1)))


@breaks("annex-meta")
def meta() -> Iterator[bytes]:
    for text in (b"", b"\xff", b"[]", b"{", b'"text"', b"1", b"[" * 100_000):
        yield with_annex(annex(meta=text))
    wrong: dict[str, list[object]] = {
        "n_ngrams": [6.0, -1, 10**30],
        "n_pairs": [True],
        "n_tokens": [-1, "40"],
        "vocab_size": ["12", 0, -5, 2**31 + 1, 10**20],
        "fingerprint": [7],
        "tokenizer": ["\ud800"],
        "corpora": [1, [None], "text", {}],
    }
    for field, values in wrong.items():
        for value in values:
            yield with_annex(annex(meta=META | {field: value}))


@breaks("annex-n-ngrams")
def more_keys_than_slots() -> Iterator[bytes]:
    for n in (25, 10**6, 2**63 - 1):
        yield with_annex(annex(meta=META | {"n_ngrams": n}))


@breaks("annex-n-pairs")
def other_number_of_pairs() -> Iterator[bytes]:
    for n in (0, META["n_pairs"] + 1):
        yield with_annex(annex(meta=META | {"n_pairs": n}))


@breaks("annex-keys-frame")
def no_frame() -> Iterator[bytes]:
    yield with_annex(annex(keys=b"no zstd frame"))
    yield with_annex(annex(keys=KEYS[:-1]))


@breaks("annex-keys-size")
def frame_size() -> Iterator[bytes]:
    yield with_annex(annex(keys=packed(bytes(2 * len(COUNTS) - 1))))
    yield with_annex(annex(keys=packed(bytes(10**6))))  # a bomb, in the small


@breaks("annex-keys-table")
def table() -> Iterator[bytes]:
    good = key_table()
    lengths = b"".join(varint(length) for *_, length in keys_of())
    yield with_annex(annex(keys=packed(good[:-1])))
    yield with_annex(annex(keys=packed(good + b"\1")))
    yield with_annex(annex(keys=packed(good[:-1] + b"\0")))  # a length of 0
    yield with_annex(annex(keys=packed(good[:-1] + b"\x81")))  # a varint that does not end
    yield with_annex(annex(keys=packed(b"\1\0" + good[2:])))  # a group of 0
    yield with_annex(annex(keys=packed(b"\1\7" + good[2:])))  # more keys than there are
    yield with_annex(
        annex(keys=packed(b"\1\2\2\0\1\4\4\1\1\1\1\1\1" + lengths))
    )  # the same key twice
    yield with_annex(annex(keys=packed(varint(2**31) + good[1:])))  # a token of 2^31


@breaks("annex-keys-pairs")
def pairs() -> Iterator[bytes]:
    keys = keys_of()
    keys[-1] = (*keys[-1][:3], 2)
    yield with_annex(annex(keys=packed(key_table(keys))))


@breaks("annex-keys-span")
def spans() -> Iterator[bytes]:
    keys = keys_of()
    keys[0], keys[1] = (*keys[0][:3], 1), (*keys[1][:3], 2)
    yield with_annex(annex(keys=packed(key_table(keys))))
    keys = keys_of()
    keys[-1] = (4, 6, *keys[-1][2:])  # a key the map does not hold
    yield with_annex(annex(keys=packed(key_table(keys))))


@breaks("annex-entries-hash")
def entries_hash() -> Iterator[bytes]:
    entries = entries_of()
    entries[0] = (entries[0][0], entries[0][1] + 1)
    yield constmap(entries=entries, annex_bytes=annex())
    yield with_annex(annex(entries_hash=0))


@breaks("vocabulary-key")
def large_key() -> Iterator[bytes]:
    keys = keys_of()
    keys[-1] = (4, 12, *keys[-1][2:])
    data = annex(keys=packed(key_table(keys)))
    yield constmap(map_bytes=map_of(keys), annex_bytes=data)
