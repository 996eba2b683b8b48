"""Attacks on legacy records, and files that are no caches."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from attacks.parts import constmap, legacy, record
from attacks.rules import breaks


@breaks("file-empty")
def empty() -> Iterator[bytes]:
    yield b""


@breaks("file-foreign")
def foreign() -> Iterator[bytes]:
    for magic in (b"GGUF", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"PK\x03\x04"):
        yield magic + legacy()
    for magic in (b"VMAP0001", b"VCMP0002", b"lttokens", b"PAR1"):
        yield magic + legacy()


@breaks("file-version")
def other_version() -> Iterator[bytes]:
    yield b"ggngcmp3" + constmap()[8:]
    yield b"ggngc"


@breaks("file-text")
def text() -> Iterator[bytes]:
    yield b"Once upon a time there was a cache.\n"
    yield b'{"format": "json"}\n'


@breaks("legacy-cut-head")
def cut_head() -> Iterator[bytes]:
    yield legacy() + record((1, 2), [(3, 1)])[:19]
    yield legacy() + b"\0"


@breaks("legacy-cut-followers")
def cut_followers() -> Iterator[bytes]:
    yield legacy()[:-1]
    yield legacy() + record((7, 8), [(3, 1)], n=2)
    yield legacy() + record((7, 8), [(3, 1)], n=2**31 - 1)


@breaks("legacy-ngram-empty")
def no_tokens() -> Iterator[bytes]:
    yield legacy() + record((), [(3, 1)])


@breaks("legacy-ngram-gap")
def gap() -> Iterator[bytes]:
    yield legacy() + record((7, -1, 8), [(3, 1)])
    yield legacy() + record((-1, 8), [(3, 1)])


@breaks("legacy-ngram-negative")
def negative() -> Iterator[bytes]:
    yield legacy() + record((7, -2), [(3, 1)])
    yield legacy() + record((-(2**31), 7), [(3, 1)])


@breaks("legacy-followers")
def no_followers() -> Iterator[bytes]:
    yield legacy() + record((7, 8), [])
    yield legacy() + struct.pack("<5i", 7, 8, -1, -1, -5)


@breaks("legacy-follower-token")
def follower_token() -> Iterator[bytes]:
    yield legacy() + record((7, 8), [(-1, 1)])


@breaks("legacy-follower-count")
def follower_count() -> Iterator[bytes]:
    yield legacy() + record((7, 8), [(3, 0)])
    yield legacy() + record((7, 8), [(3, -1)])


@breaks("legacy-follower-twice")
def follower_twice() -> Iterator[bytes]:
    yield legacy() + record((7, 8), [(3, 1), (3, 2)])
    yield legacy() + record((7, 8), [(3, 1), (2, 1), (3, 2)])
