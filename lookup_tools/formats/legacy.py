"""llama.cpp's record files: strict reading, sorted writing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np

from lookup_tools._native import check, ffi, i32, lib, strerror, u32, u64
from lookup_tools.counting.counts import (
    ORDERS,
    CountsBlock,
    Layout,
    Records,
    aggregate_records,
    sort_records,
)
from lookup_tools.errors import FormatError, TruncatedError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sidecar import (
    SidecarRecord,
    find_record,
    match_hash,
    sidecar_path,
    write_sidecar,
)
from lookup_tools.formats.sniff import sniff

NGRAM_BYTES, PAIR_BYTES = 20, 8


class LegacyWriter:
    """Writes one legacy file into an open binary file: blocks in ascending (order, n-gram)."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = ffi.new("lookup_xxh64_state *")
        self._record: SidecarRecord | None = None
        self.n_ngrams = 0
        self.n_pairs = 0
        self.build_seconds = 0.0  # there is no index to build

    def write(self, block: CountsBlock) -> None:
        """Append a block."""
        out = np.empty(NGRAM_BYTES * block.n_ngrams + PAIR_BYTES * block.n_pairs, np.uint8)
        check(
            lib.lookup_legacy_write(
                block.order,
                i32(block.ngrams.reshape(-1)),
                u32(block.lengths),
                i32(block.entries.reshape(-1)),
                block.n_ngrams,
                ffi.from_buffer("char[]", out),
            )
        )
        lib.lookup_xxh64_update(self._hash, ffi.from_buffer("char[]", out), len(out))
        self._file.write(out.data)
        self.n_ngrams += block.n_ngrams
        self.n_pairs += block.n_pairs

    @property
    def n_bytes(self) -> int:
        """Bytes written so far."""
        return NGRAM_BYTES * self.n_ngrams + PAIR_BYTES * self.n_pairs

    def finish(self, meta: CacheMeta) -> None:
        """Note what a sidecar should say of the file as written so far."""
        meta = replace(meta, n_ngrams=self.n_ngrams, n_pairs=self.n_pairs)
        digest = f"{lib.lookup_xxh64_digest(self._hash):016x}"
        self._record = SidecarRecord(self.n_bytes, digest, meta)

    def vouch(self, path: str | os.PathLike[str]) -> bool:
        """Write the sidecar for the file, finished and about to appear as `path`; whether there was
        none before."""
        if os.path.exists(path) and not os.path.isfile(path):
            return False
        assert self._record is not None
        new = not os.path.exists(sidecar_path(path))
        write_sidecar(path, self._record, _standing(path))
        return new


def _standing(path: str | os.PathLike[str]) -> list[SidecarRecord]:
    """What a sidecar has to say of the file that is at `path` now, so that it still fits that file
    if this run is killed before its rename. Nothing where there is none, or one that is refused
    already.

    A run that was killed has left a record of what it meant to put there. Only the contents tell
    which record is the file's.
    """
    try:
        size = os.path.getsize(path)
        known = find_record(path, size)
        if not known and sniff(path) != "legacy":  # no other format is asked for a sidecar
            return []
        digest = _digest(path)
    except (OSError, FormatError):
        return []
    return [
        record for record in known or [SidecarRecord(size, digest, None)] if record.xxh64 == digest
    ]


def _digest(path: str | os.PathLike[str]) -> str:
    state = ffi.new("lookup_xxh64_state *")
    with open(path, "rb") as file:
        while chunk := file.read(1 << 22):
            lib.lookup_xxh64_update(state, chunk, len(chunk))
    return f"{lib.lookup_xxh64_digest(state):016x}"


@dataclass(frozen=True, slots=True)
class LegacyFile:
    """A legacy file that passed its scan. `data` is borrowed and must outlive this object."""

    path: str
    data: Any
    n_ngrams: dict[int, int]
    n_pairs: dict[int, int]
    max_token: int
    ascending: bool  # records and followers stand in our order, each n-gram once
    meta: CacheMeta | None

    @property
    def orders(self) -> tuple[int, ...]:
        return tuple(order for order in ORDERS if self.n_ngrams[order])

    def records(
        self,
        layout: Layout,
        weight: Fraction = Fraction(1),
        start: int = 0,
        stop: int | None = None,
    ) -> Records:
        """Counted records of one order, sorted, duplicate n-grams summed; of the whole file or of
        the bytes [start, stop), which must be whole records."""
        data = memoryview(self.data)[start:stop]
        n_pairs = self.n_pairs if len(data) == len(self.data) else _n_pairs(data)
        records = np.empty(n_pairs[layout.order] * layout.stride, np.uint64)
        check(
            lib.lookup_legacy_records(
                ffi.from_buffer(data),
                len(data),
                layout.counted,
                weight.numerator,
                weight.denominator,
                u64(records),
                n_pairs[layout.order],
            ),
            self.path,
        )
        if self.ascending:
            return records
        sort_records(layout, records)
        return aggregate_records(layout, records)


def _n_pairs(data: Any) -> dict[int, int]:
    """Pairs by order in whole, checked records."""
    info = ffi.new("lookup_legacy_info *")
    check(lib.lookup_legacy_scan(ffi.from_buffer(data), len(data), info))
    return _by_order(info.n_pairs)


def _by_order(numbers: Any) -> dict[int, int]:
    return {order: int(numbers[order - 1]) for order in ORDERS}


def read_legacy(path: str | os.PathLike[str], data: Any) -> LegacyFile:
    """Check a legacy file in memory (any buffer) and count what it holds. O(size).

    Raises:
        TruncatedError: the file ends inside a record, or differs in size from its sidecar.
        FormatError: a record is malformed, or the contents differ from the sidecar's hash.
    """
    name = os.fspath(path)
    info = ffi.new("lookup_legacy_info *")
    buffer = ffi.from_buffer(data)
    status = lib.lookup_legacy_scan(buffer, len(data), info)
    if status:
        _refuse(status, name, int(info.bytes), len(data))
    vouched = find_record(path, len(data))
    digest = f"{lib.lookup_xxh64(buffer, len(data), 0):016x}" if vouched else ""
    meta = match_hash(path, vouched, digest)
    if meta is not None:
        _require_pairs(name, meta, sum(_by_order(info.n_pairs).values()))
    return LegacyFile(
        path=name,
        data=data,
        n_ngrams=_by_order(info.n_ngrams),
        n_pairs=_by_order(info.n_pairs),
        max_token=int(info.max_token),
        ascending=bool(info.ascending),
        meta=meta,
    )


def _require_pairs(name: str, meta: CacheMeta, found: int) -> None:
    # N-grams may stand in several records, so only the pairs can be compared.
    if meta.n_pairs != found:
        raise FormatError(
            f"{name}: found {found} pairs, expected {meta.n_pairs} as its sidecar says; "
            "rebuild the cache"
        )


def _refuse(status: int, name: str, at: int, size: int) -> None:
    if status == lib.LOOKUP_E_TRUNCATED:
        raise TruncatedError(
            f"{name}: found {size} bytes ending inside the record at byte {at}, expected whole "
            "records: the file was cut "
            "or is no llama.cpp lookup cache; rebuild or copy it again"
        )
    check_format = status in (
        lib.LOOKUP_E_NGRAM,
        lib.LOOKUP_E_COUNT,
        lib.LOOKUP_E_TOKEN,
        lib.LOOKUP_E_DUPLICATE,
    )
    if check_format:
        raise FormatError(
            f"{name}: found a bad record at byte {at} ({strerror(status)}), expected a "
            "llama.cpp lookup cache; "
            "check that this is the right file, or rebuild it"
        )
    check(status, name)


def record_parts(data: Any, part_bytes: int) -> Iterator[tuple[int, int]]:
    """Byte ranges of at least `part_bytes` (but for the last) that hold whole records."""
    buffer = ffi.from_buffer(data)
    end = ffi.new("size_t *")
    start = 0
    while start < len(data):
        check(lib.lookup_legacy_boundary(buffer, len(data), start, part_bytes, end))
        yield start, end[0]
        start = end[0]
