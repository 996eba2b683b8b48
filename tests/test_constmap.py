"""The verified constmap: against a dict, and against fastconstmap in both directions."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import fastconstmap
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tools._native import check, ffi, lib, u8, u64
from lookup_tools.errors import BuildError, ChecksumError, FormatError, TruncatedError
from lookup_tools.formats.constmap import HASHES, build_map

SIZES = [0, 1, 2, 3, 4, 5, 6, 17, 100, 1000, 11_480, 100_000]
HASH_NAMES = ["xxh64", "xxh3"]
MAGICS = {"xxh64": b"VMAP0001", "xxh3": b"VCMP0002"}
FNV_START = 0xCBF29CE484222325


@cache
def table(n: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """n x {key, value}: distinct keys of two tokens below 2^31, any values."""
    rng = np.random.default_rng(n + 1)
    keys = np.unique(
        rng.integers(0, 2**31, 2 * n + 2, np.uint64) << np.uint64(32)
        | rng.integers(0, 2**31, 2 * n + 2, np.uint64)
    )
    values = rng.integers(0, 2**64, n, np.uint64)
    return np.stack([rng.permutation(keys)[:n], values], axis=1).reshape(-1)


@cache
def built(n: int, hash_name: str) -> bytes:
    return build_map(table(n), HASHES[hash_name]).tobytes()


class Map:
    """A map in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = np.frombuffer(bytearray(data), np.uint8)
        self.pointer = u8(self.data)
        self.view = ffi.new("lookup_map *")
        check(lib.lookup_map_open(self.view, self.pointer, len(data)), "map")

    def verify(self) -> None:
        check(lib.lookup_map_verify(self.view, self.pointer), "map")

    def get(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, found = np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint8)
        check(lib.lookup_map_get_many(self.view, u64(keys), len(keys), u64(values), u8(found)))
        return values, found


def absent_keys(present: np.ndarray, n: int = 2000) -> np.ndarray:
    keys = np.random.default_rng(5).integers(0, 2**63, n, np.uint64)
    return np.setdiff1d(np.concatenate([keys, np.array([0, 2**64 - 1], np.uint64)]), present)


def key_bytes(keys: np.ndarray) -> list[bytes]:
    raw = keys.tobytes()
    return [raw[k : k + 8] for k in range(0, len(raw), 8)]


@pytest.mark.parametrize("hash_name", HASH_NAMES)
@pytest.mark.parametrize("n", SIZES)
def test_every_key_is_found_and_no_other(n: int, hash_name: str) -> None:
    keys, values = np.ascontiguousarray(table(n)[::2]), table(n)[1::2]
    ours = Map(built(n, hash_name))
    ours.verify()
    got, found = ours.get(keys)
    assert found.all()
    assert np.array_equal(got, values)
    got, found = ours.get(absent_keys(keys))
    # a check word has 64 bits: 2,000 wrong answers in 2^64 do not happen
    assert not found.any()
    assert not got.any()


@pytest.mark.parametrize("hash_name", HASH_NAMES)
@pytest.mark.parametrize("n", SIZES)
def test_fastconstmap_opens_ours(n: int, hash_name: str) -> None:
    keys, values = table(n)[::2], table(n)[1::2]
    theirs = fastconstmap.VerifiedConstMap.from_bytes(built(n, hash_name))
    assert theirs.hash == hash_name
    assert theirs.get_many(key_bytes(keys)) == values.tolist()
    absent = key_bytes(absent_keys(keys, 300))
    assert theirs.get_many(absent) == [None] * len(absent)


@pytest.mark.parametrize("hash_name", HASH_NAMES)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 100, 1000, 11_480])
def test_row_05_we_open_fastconstmaps(n: int, hash_name: str) -> None:
    """Two hashes are in use, and each file says which."""
    keys, values = np.ascontiguousarray(table(n)[::2]), table(n)[1::2]
    pairs = dict(zip(key_bytes(keys), values.tolist(), strict=True))
    data = fastconstmap.VerifiedConstMap(pairs, hash=hash_name).to_bytes()
    assert data[:8] == MAGICS[hash_name]
    ours = Map(data)
    ours.verify()
    assert ours.view.bytes == len(data)
    got, found = ours.get(keys)
    assert found.all()
    assert np.array_equal(got, values)
    assert not ours.get(absent_keys(keys))[1].any()


@pytest.mark.parametrize("n", [0, 3, 1000, 11_480, 100_000])
def test_the_geometry_is_fastconstmaps(n: int) -> None:
    """The same sizes, so that files are no larger than the format's own."""
    pairs = dict(zip(key_bytes(table(n)[::2]), table(n)[1::2].tolist(), strict=True))
    assert len(built(n, "xxh64")) == len(fastconstmap.VerifiedConstMap(pairs).to_bytes())


@pytest.mark.parametrize("n", [0, 1, 5, 1000, 11_480, 100_000])
def test_the_same_bytes_with_and_without_a_pool(n: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert build_map(table(n), HASHES["xxh64"], pool).tobytes() == built(n, "xxh64")


@given(keys=st.sets(st.integers(0, 2**64 - 1), max_size=40), hash_name=st.sampled_from(HASH_NAMES))
def test_small_maps(keys: set[int], hash_name: str) -> None:
    ordered = np.array(sorted(keys), np.uint64)
    records = np.stack([ordered, ~ordered], axis=1).reshape(-1)
    ours = Map(build_map(records, HASHES[hash_name]).tobytes())
    values, found = ours.get(ordered)
    assert found.all()
    assert np.array_equal(values, ~ordered)


@pytest.mark.parametrize("n", range(11_400, 11_560, 10))
def test_sizes_whose_first_geometry_mostly_fails(n: int) -> None:
    records = np.stack([np.arange(n, dtype=np.uint64)] * 2, axis=1).reshape(-1)
    keys = np.ascontiguousarray(records[::2])
    values, found = Map(build_map(records, HASHES["xxh64"]).tobytes()).get(keys)
    assert found.all()
    assert np.array_equal(values, keys)


@pytest.mark.parametrize("n", [2, 5, 1000, 50_000])
def test_row_07_a_key_that_stands_twice_is_refused(n: int) -> None:
    """Never an endless search for a map that cannot be."""
    records = table(n).copy()
    records[2] = records[0]
    with pytest.raises(FormatError, match="twice"):
        build_map(records, HASHES["xxh64"])


def test_keys_that_stand_twice_far_apart_end_the_tries() -> None:
    records = table(1000).copy()
    records[2 * 999] = records[0]
    with pytest.raises((BuildError, FormatError)):
        build_map(records, HASHES["xxh64"])


def test_tries_are_bounded() -> None:
    plan = ffi.new("lookup_map_plan *")
    check(lib.lookup_map_plan_first(plan, 1000, 0))
    tries = 1
    while (status := lib.lookup_map_plan_next(plan)) == 0:
        tries += 1
        assert tries <= lib.LOOKUP_MAP_MAX_TRIES
    assert status == lib.LOOKUP_E_CONSTRUCTION
    assert tries == lib.LOOKUP_MAP_MAX_TRIES


def test_too_many_keys_are_refused() -> None:
    plan = ffi.new("lookup_map_plan *")
    with pytest.raises(BuildError):
        check(lib.lookup_map_plan_first(plan, 2**32, 0))


# ---- row 10: headers that contradict themselves, with a checksum that fits


def with_checksum(body: bytes) -> bytes:
    return body + struct.pack("<Q", lib.lookup_fnv1a_serial(FNV_START, body, len(body)))


def forged(**fields: int) -> bytes:
    """A map of 1,000 keys with header fields replaced and the checksum made to fit."""
    data = built(1000, "xxh64")
    names = ("seed", "segment_length", "segment_count", "data_len", "n")
    header = dict(zip(names, struct.unpack("<QIIII", data[8:32]), strict=True)) | fields
    head = data[:8] + struct.pack("<QIIII", *(header[name] for name in names))
    return with_checksum(head + data[32:-8])


def slots() -> int:
    return int(struct.unpack("<I", built(1000, "xxh64")[24:28])[0])


@pytest.mark.parametrize(
    "fields",
    [
        {"segment_length": 0},
        {"segment_length": 3},
        {"segment_length": 2**31},
        {"segment_length": 2**32 - 1},
        {"segment_count": 0},
        {"segment_count": 2**32 - 1},
        {"data_len": "+1"},
        {"data_len": "-1"},
        {"data_len": 2**32 - 1},
        {"segment_length": 1, "segment_count": "slots"},
    ],
    ids=str,
)
def test_a_forged_header_is_refused(fields: dict[str, Any]) -> None:
    replaced = {"+1": slots() + 1, "-1": slots() - 1, "slots": slots()}
    fields = {name: replaced.get(value, value) for name, value in fields.items()}
    with pytest.raises(FormatError):
        Map(forged(**fields))


def test_a_geometry_that_only_fits_the_size_is_harmless() -> None:
    """Another segment length with the same number of slots is legal; reads stay inside."""
    data = built(1000, "xxh64")
    length, count = struct.unpack("<II", data[16:24])
    ours = Map(forged(segment_length=length // 2, segment_count=2 * (count + 2) - 2))
    ours.verify()
    assert not ours.get(absent_keys(table(1000)[::2]))[1].any()


def test_a_map_that_claims_to_be_empty_finds_nothing() -> None:
    for fields in ({"data_len": 0}, {"data_len": 0, "segment_length": 3, "segment_count": 0}):
        ours = Map(forged(**fields))
        assert not ours.get(np.ascontiguousarray(table(1000)[::2]))[1].any()
        with pytest.raises(ChecksumError):
            ours.verify()


def test_the_key_count_in_the_header_does_not_matter() -> None:
    ours = Map(forged(n=0))
    assert ours.get(np.ascontiguousarray(table(1000)[::2]))[1].all()


@pytest.mark.parametrize("magic", [b"VMAP0002", b"VCMP0001", b"GMAP0001", bytes(8)])
def test_another_magic_is_refused(magic: bytes) -> None:
    with pytest.raises(FormatError):
        Map(with_checksum(magic + built(5, "xxh64")[8:-8]))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_every_prefix_is_refused(n: int) -> None:
    data = built(n, "xxh64")
    for size in range(len(data)):
        with pytest.raises((TruncatedError, FormatError)):
            Map(data[:size])


def test_bytes_behind_the_map_are_ignored() -> None:
    data = built(100, "xxh64")
    ours = Map(data + b"an annex, say")
    ours.verify()
    assert ours.view.bytes == len(data)


def test_every_changed_byte_is_caught() -> None:
    data = bytearray(built(5, "xxh64"))
    keys = np.ascontiguousarray(table(5)[::2])
    for at in range(len(data)):
        data[at] ^= 0x41
        try:
            changed = Map(bytes(data))
            changed.get(keys)
            changed.get(absent_keys(keys, 50))
        except FormatError:
            pass
        else:
            with pytest.raises(ChecksumError):
                changed.verify()
        data[at] ^= 0x41


@given(data=st.binary(max_size=200), head=st.sampled_from([b"", *MAGICS.values()]))
def test_any_bytes_at_all(data: bytes, head: bytes) -> None:
    try:
        ours = Map(head + data)
    except FormatError:
        return
    ours.get(absent_keys(np.empty(0, np.uint64), 100))
