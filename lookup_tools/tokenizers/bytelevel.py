"""The byte-to-character mapping of byte-level vocabularies, and back.

Printable bytes stand for themselves; the others are numbered from U+0100 on in byte order.
"""

from __future__ import annotations

from collections.abc import Container


def _table() -> dict[int, str]:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(256) if byte not in table)
    table.update({byte: chr(0x100 + i) for i, byte in enumerate(others)})
    return table


BYTE_TO_CHAR = _table()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


def to_bytes(token: str) -> bytes:
    """The bytes a byte-level token stands for; a character outside the mapping stays UTF-8."""
    if all(char in CHAR_TO_BYTE for char in token):
        return bytes(CHAR_TO_BYTE[char] for char in token)
    return token.encode("utf-8", "surrogateescape")


def to_chars(data: bytes) -> str:
    """The byte-level spelling of some bytes."""
    return "".join(BYTE_TO_CHAR[byte] for byte in data)


def missing_bytes(tokens: Container[str]) -> list[int]:
    """The bytes of UTF-8 text that a vocabulary has no token for.

    llama.cpp drops such bytes, but they still keep their neighbours from merging.
    """
    possible = (byte for byte in range(0xF5) if byte not in (0xC0, 0xC1))
    return [byte for byte in possible if BYTE_TO_CHAR[byte] not in tokens]


def code_points_of(first_byte: int) -> tuple[int, int]:
    """The first and last code point whose UTF-8 begins with this byte."""
    if first_byte < 0x80:
        return first_byte, first_byte
    shift = 6 if first_byte < 0xE0 else 12 if first_byte < 0xF0 else 18
    low = (first_byte & (0x3F >> (shift // 6))) << shift
    least = {6: 0x80, 12: 0x800, 18: 0x10000}[shift]
    return max(low, least), min(low + (1 << shift) - 1, 0x10FFFF)
