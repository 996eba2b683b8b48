"""Writing constmap cache files: entries as they come, then the map, then the annex."""

from __future__ import annotations

import contextlib
import io
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, i32, lib, u32, u64
from lookup_tools.counting.counts import CountsBlock
from lookup_tools.errors import BuildError, ParameterError
from lookup_tools.formats.annex import encode_annex
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sniff import CONSTMAP2_MAGIC, CONSTMAP_MAGIC
from lookup_tools.system.atomic import synchronise
from lookup_tools.system.mapping import GrowingWords
from lookup_tools.system.memory import release_free_memory
from lookup_tools.system.workers import run_halves

HASHES = {"xxh64": int(lib.LOOKUP_HASH_XXH64), "xxh3": int(lib.LOOKUP_HASH_XXH3)}
MAX_FOLLOWERS = (1 << int(lib.LOOKUP_SPAN_BITS)) - 1


class ConstmapWriter:
    """Writes one constmap (or constmap2) file into an open, seekable, empty binary file.

    Feed sorted blocks of 2-grams to `write`, then call `finish`. Memory: 16 bytes a 2-gram while
    writing, about 55 while the map is built.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        second_version: bool = False,
        map_hash: str = "xxh64",
        annex: bool = True,
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        if map_hash not in HASHES:
            raise ParameterError(
                f"found map hash {map_hash!r}, expected one of {', '.join(HASHES)}"
            )
        self._file = file
        self._second = second_version
        self._hash = HASHES[map_hash]
        self._annex = annex
        self._pool = pool
        self._records = GrowingWords()
        self._entries_hash = ffi.new("lookup_xxh64_state *")
        self.n_ngrams = 0
        self.n_pairs = 0
        self.build_seconds = 0.0
        file.write(self._header(0))

    def _header(self, map_size: int) -> bytes:
        magic = CONSTMAP2_MAGIC if self._second else CONSTMAP_MAGIC
        head = magic + struct.pack("<QQ", self.n_pairs, map_size)
        return head + struct.pack("<Q", self.n_ngrams) if self._second else head

    def write(self, block: CountsBlock) -> None:
        """Append a block of 2-grams that sort after all earlier ones.

        Raises:
            BuildError: more followers of one n-gram than a span can hold.
        """
        if block.order != 2:
            raise ParameterError(
                f"found {block.order}-grams, expected 2-grams: constmap files hold no others; use "
                "--format legacy"
            )
        if len(block.lengths) and int(block.lengths.max()) > MAX_FOLLOWERS:
            raise BuildError(
                f"found an n-gram with {int(block.lengths.max())} followers, expected at most "
                f"{MAX_FOLLOWERS}; pass --top-k"
            )
        records = np.empty(2 * block.n_ngrams, np.uint64)
        check(
            lib.lookup_static_records(
                i32(block.ngrams.reshape(-1)),
                u32(block.lengths),
                block.n_ngrams,
                self.n_pairs,
                u64(records),
            )
        )
        self._records.append(records)
        data = block.entries.reshape(-1).view(np.uint8).data
        lib.lookup_xxh64_update(self._entries_hash, ffi.from_buffer(data), len(data))
        self._file.write(data)
        self.n_ngrams += block.n_ngrams
        self.n_pairs += block.n_pairs

    @property
    def n_bytes(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def finish(self, meta: CacheMeta) -> None:
        """Build and append the map and the annex; `meta`'s counts are filled in here.

        Raises:
            BuildError: no map could be built within the bounded number of tries.
        """
        records = self._records.words()
        release_free_memory()  # what counting has left, before the map takes its share
        start = time.perf_counter()
        with self._written_meanwhile():
            map_data = build_map(records, self._hash, self._pool)
        self.build_seconds = time.perf_counter() - start
        self._file.write(map_data.data)
        annex = b""
        if self._annex:
            meta = replace(meta, n_ngrams=self.n_ngrams, n_pairs=self.n_pairs)
            annex = self._encode_annex(records, meta)
            self._file.write(annex)
        map_size = len(map_data) + len(annex)
        del map_data
        if self._second:  # {i32 t0, i32 t1, u64 span} is what the map's records are
            self._file.write(records.data)
        self._file.seek(0)
        self._file.write(self._header(map_size))

    @contextlib.contextmanager
    def _written_meanwhile(self) -> Iterator[None]:
        """Let the disk take the entries while the processors do something else."""
        failed: list[OSError] = []

        def sync() -> None:
            try:
                synchronise(self._file)
            except OSError as error:
                failed.append(error)

        try:
            self._file.flush()
            self._file.fileno()
        except io.UnsupportedOperation:  # a file in memory
            yield
            return
        thread = threading.Thread(target=sync)
        thread.start()
        try:
            yield
        finally:
            thread.join()
        if failed:  # the system tells of a fault once: the flush at the end would know of none
            raise failed[0]

    def _encode_annex(self, records: npt.NDArray[np.uint64], meta: CacheMeta) -> bytes:
        fields = records.view(np.int32).reshape(-1, 4)
        ngrams = np.ascontiguousarray(fields[:, :2])
        lengths = (records[1::2] & np.uint64(MAX_FOLLOWERS)).astype(np.uint32)
        return encode_annex(meta, ngrams, lengths, int(lib.lookup_xxh64_digest(self._entries_hash)))


def build_map(
    records: npt.NDArray[np.uint64], map_hash: int, pool: ThreadPoolExecutor | None = None
) -> npt.NDArray[np.uint8]:
    """A serialized verified constmap of {key, value} records (flat, keys distinct).

    The bytes depend on the records alone, not on the pool. Cost: about 120 ns a key on one core.

    Raises:
        BuildError: the bounded number of tries did not suffice.
        FormatError: two neighbouring records have the same key (records are sorted).
    """
    plan = ffi.new("lookup_map_plan *")
    check(lib.lookup_map_plan_first(plan, len(records) // 2, map_hash), "building the map")
    while True:
        out = np.empty(plan.map_bytes, np.uint8)
        status = _one_try(plan, records, out, pool)
        if status != lib.LOOKUP_E_CONSTRUCTION:
            check(status, "building the map")
            return out
        check(lib.lookup_map_plan_next(plan), f"building the map, {plan.tries} tries")


def _one_try(
    plan: Any,
    records: npt.NDArray[np.uint64],
    out: npt.NDArray[np.uint8],
    pool: ThreadPoolExecutor | None,
) -> int:
    scratch = np.empty(plan.scratch_bytes, np.uint8)
    to, work, pairs = (
        ffi.from_buffer("char[]", out),
        ffi.from_buffer("char[]", scratch),
        u64(records),
    )
    for phase in range(int(lib.LOOKUP_MAP_PHASES)):
        status = run_halves(partial(_half, plan, phase, pairs, to, work), pool)
        if status:
            return status
    return 0


def _half(plan: Any, phase: int, pairs: Any, to: Any, work: Any, half: int) -> int:
    return int(lib.lookup_map_phase(plan, phase, half, pairs, to, work))
