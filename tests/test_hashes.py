"""The hashes, against xxhash and against their byte-at-a-time definition."""

from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from lookup_tools._native import ffi, lib

FNV_START, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
U64 = st.integers(0, 2**64 - 1)
TOKEN = st.integers(-(2**31), 2**31 - 1)


def noise(n: int, seed: int = 0) -> bytes:
    """Bytes without a pattern, the same every time."""
    return (
        xxhash.xxh3_128_digest(struct.pack("<Q", seed)) * (n // 16 + 1)
        if n < 64
        else b"".join(
            xxhash.xxh3_128_digest(struct.pack("<QQ", seed, k)) for k in range(n // 16 + 1)
        )
    )


@given(data=st.binary(max_size=300), seed=U64)
@example(data=b"", seed=0)
@example(data=b"\xff" * 32, seed=2**64 - 1)
def test_xxh64(data: bytes, seed: int) -> None:
    assert lib.lookup_xxh64(data, len(data), seed) == xxhash.xxh64_intdigest(data, seed)


@pytest.mark.parametrize("n", [*range(97), 1000, 1 << 16, (1 << 20) + 3])
def test_xxh64_of_every_length(n: int) -> None:
    data = noise(n)[:n]
    assert lib.lookup_xxh64(data, n, 0) == xxhash.xxh64_intdigest(data)


@pytest.mark.parametrize("offset", range(9))
def test_xxh64_at_any_alignment(offset: int) -> None:
    data = noise(200)
    buffer = ffi.new("char[]", 300)
    ffi.memmove(buffer + offset, data, 150)
    assert lib.lookup_xxh64(buffer + offset, 150, 0) == xxhash.xxh64_intdigest(data[:150])


@given(parts=st.lists(st.binary(max_size=80), max_size=8))
@example(parts=[b"", b"x" * 31, b"y", b"z" * 64])
def test_xxh64_in_parts(parts: list[bytes]) -> None:
    state = ffi.new("lookup_xxh64_state *")
    known = xxhash.xxh64()
    for part in parts:
        lib.lookup_xxh64_update(state, part, len(part))
        known.update(part)
        # a digest does not end the stream
        assert lib.lookup_xxh64_digest(state) == known.intdigest()


@given(t0=TOKEN, t1=TOKEN)
@example(t0=0, t1=0)
@example(t0=-1, t1=2**31 - 1)
def test_key_hashes(t0: int, t1: int) -> None:
    key = struct.pack("<ii", t0, t1)
    assert lib.lookup_key_xxh64(t0, t1) == xxhash.xxh64_intdigest(key)
    assert lib.lookup_key_xxh3(t0, t1) == xxhash.xxh3_64_intdigest(key)


def fnv1a(state: int, data: bytes) -> int:
    for byte in data:
        state = ((state ^ byte) * FNV_PRIME) % 2**64
    return state


@given(data=st.binary(max_size=200), state=U64)
@example(data=b"", state=FNV_START)
@example(data=b"\0" * 64, state=0)
def test_fnv_is_the_definition(data: bytes, state: int) -> None:
    expected = fnv1a(state, data)
    assert lib.lookup_fnv1a_serial(state, data, len(data)) == expected
    assert lib.lookup_fnv1a(state, data, len(data)) == expected


def test_fnv_known_answers() -> None:
    # from the FNV authors' test vectors
    assert lib.lookup_fnv1a(FNV_START, b"", 0) == 0xCBF29CE484222325
    assert lib.lookup_fnv1a(FNV_START, b"a", 1) == 0xAF63DC4C8601EC8C
    assert lib.lookup_fnv1a(FNV_START, b"foobar", 6) == 0x85944171F73967E8


@given(
    seed=st.integers(0, 1000),
    n=st.integers(0, 20_000),
    offset=st.integers(0, 8),
    filler=st.sampled_from([None, 0x00, 0xFF, 0x80]),
    state=U64,
)
def test_fnv_fast_equals_serial(
    seed: int, n: int, offset: int, filler: int | None, state: int
) -> None:
    data = noise(n, seed)[:n] if filler is None else bytes([filler]) * n
    buffer = ffi.new("char[]", n + 16)
    ffi.memmove(buffer + offset, data, n)
    start = buffer + offset
    assert lib.lookup_fnv1a(state, start, n) == lib.lookup_fnv1a_serial(state, start, n)


@pytest.mark.parametrize("n", [*range(140), 1023, 1024, 1025, 4095, 4097, (1 << 20) + 5])
def test_fnv_around_its_block_sizes(n: int) -> None:
    data = noise(n, 7)[:n]
    assert lib.lookup_fnv1a(FNV_START, data, n) == lib.lookup_fnv1a_serial(FNV_START, data, n)


@given(data=st.binary(max_size=400), cut=st.integers(0, 400))
def test_fnv_goes_on_from_any_state(data: bytes, cut: int) -> None:
    head, tail = data[:cut], data[cut:]
    middle = lib.lookup_fnv1a(FNV_START, head, len(head))
    assert lib.lookup_fnv1a(middle, tail, len(tail)) == lib.lookup_fnv1a(FNV_START, data, len(data))
