"""The keys of a constmap that carries none: found by walking from key to follower to key, proved
complete when their spans tile the entries (docs/format.md, "Files without keys")."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, lib, u32, u64
from lookup_tools.cache import ConstmapCache
from lookup_tools.cache.constmap import unpack_records
from lookup_tools.counting.counts import Layout, Records, sort_records
from lookup_tools.errors import FormatError
from lookup_tools.system.progress import Progress

CHUNK_KEYS = 1 << 14
MAX_GUESS = 1 << 24  # no vocabulary comes near it
MAX_PAIRS = 1 << 35  # a vocabulary of 185,000: about three quarters of an hour of look-ups
SAMPLE_ENTRIES = 1 << 20  # enough to see which followers are frequent
START_TOKENS = 64  # frequent followers tried as first tokens before all pairs are


@dataclass(frozen=True, slots=True)
class RecoveredKeys:
    """All keys of a map: sorted 2-grams (n, 2), the offset and length of each one's span, and how
    they were found (`walk` or `all pairs`)."""

    ngrams: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint32]
    method: str


class _Worker:
    """What one thread of a walk keeps for itself."""

    def __init__(self, search: _Search) -> None:
        self._search = search
        self._stamps = np.zeros(search.vocab_size, np.uint32)
        self._stamp = ffi.new("uint32_t *")
        self._room = np.empty(2 * max(1 << 17, 2 * search.longest + 64), np.uint64)

    def step(self, known: Records) -> tuple[list[Records], int]:
        """The new keys that some known ones lead to, and the entries they cover."""
        search, room = self._search, self._room
        parts: list[Records] = []
        total = 0
        at, out, covered = ffi.new("size_t *"), ffi.new("size_t *"), ffi.new("uint64_t *")
        while at[0] < len(known) // 2:
            status = lib.lookup_recover_step(
                search.view,
                u64(known),
                len(known) // 2,
                at,
                u64(search.marks),
                u32(self._stamps),
                len(self._stamps),
                self._stamp,
                u64(room),
                len(room) // 2,
                out,
                covered,
            )
            check(status, search.name)
            parts.append(room[: 2 * out[0]].copy())
            total += covered[0]
        return parts, total


class _Search:
    """Marks spans in a bitmap that all threads share, so that each key is found once."""

    def __init__(
        self, cache: ConstmapCache, vocab_size: int, pool: ThreadPoolExecutor | None
    ) -> None:
        self.view = cache.static_view()
        self.name = cache.path
        self.n_entries = cache.n_pairs
        self.vocab_size = vocab_size
        self.longest = min(vocab_size, cache.n_pairs)
        self.marks = np.zeros(self.n_entries // 64 + 1, np.uint64)
        self.found: list[Records] = []
        self.covered = 0
        self._pool = pool
        self._idle: SimpleQueue[_Worker] = SimpleQueue()  # as many as threads were at it at once

    @property
    def complete(self) -> bool:
        return self.covered == self.n_entries

    def pairs(self, first: int) -> Records:
        """Look (first, t1) up for every second token."""
        room = np.empty(2 * self.vocab_size, np.uint64)
        out, covered = ffi.new("size_t *"), ffi.new("uint64_t *")
        status = lib.lookup_recover_pairs(
            self.view, first, 1, self.vocab_size, u64(self.marks), u64(room), self.vocab_size,
            out, covered,
        )  # fmt: skip
        check(status, self.name)
        keys = room[: 2 * out[0]].copy()
        self.found.append(keys)
        self.covered += covered[0]
        return keys

    def _step(self, known: Records) -> tuple[list[Records], int]:
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = _Worker(self)
        try:
            return worker.step(known)
        finally:
            self._idle.put(worker)

    def walk(self, frontier: Records, progress: Progress | None) -> None:
        """Follow keys until no new ones turn up."""
        size = 2 * CHUNK_KEYS
        while len(frontier) and not self.complete:
            frontier = by_second_token(frontier, self.name)
            chunks = [frontier[k : k + size] for k in range(0, len(frontier), size)]
            each = self._pool.map(self._step, chunks) if self._pool else map(self._step, chunks)
            new: list[Records] = []
            for parts, covered in each:
                new += parts
                self.covered += covered
                if progress is not None:
                    progress("recover keys", self.covered, self.n_entries)
            self.found += new
            frontier = np.concatenate([*new, frontier[:0]])


def by_second_token(records: Records, name: str) -> Records:
    """{key, value} records in ascending order of (second token, first token)."""
    return _sorted(records, name, second_first=True)


def _sorted(records: Records, name: str, *, second_first: bool) -> Records:
    """Sorted copies: both tokens are packed in the wanted order for the C core to sort."""
    keys = records[::2]
    low, high = keys & np.uint64(0xFFFFFFFF), keys >> np.uint64(32)
    largest = int(max(low.max(initial=0), high.max(initial=0)))
    if largest >= 2**31:
        raise FormatError(f"{name}: found a key with a negative id; rebuild the cache")
    layout = Layout.of(1, largest)
    bits = np.uint64(layout.raw.bits)
    major, minor = (high, low) if second_first else (low, high)
    packed = records.copy()
    packed[::2] = (major << bits) | minor
    sort_records(layout, packed)
    major, minor = packed[::2] >> bits, packed[::2] & ((np.uint64(1) << bits) - np.uint64(1))
    low, high = (minor, major) if second_first else (major, minor)
    packed[::2] = low | (high << np.uint64(32))
    return packed


def recover_keys(
    cache: ConstmapCache,
    *,
    vocab_size: int | None = None,
    pool: ThreadPoolExecutor | None = None,
    progress: Progress | None = None,
) -> RecoveredKeys:
    """Find every key of a constmap.

    Starts from the most frequent follower and walks; starts again from the next most frequent ones
    while entries are uncovered; then tries all pairs of ids below `vocab_size` (default: one more
    than the largest follower).

    Raises:
        FormatError: the spans found do not tile the entries; the covered share is given.
    """
    with cache.held():
        entries = cache.entries()
        asked = vocab_size is not None
        if vocab_size is None:
            vocab_size = _guessed_vocab_size(cache.path, entries)
        search = _Search(cache, vocab_size, pool)
        method = "walk"
        for token in _frequent(entries, vocab_size):
            if search.complete:
                break
            search.walk(search.pairs(token), progress)
        if not search.complete:
            method = "all pairs"
            _all_pairs(search, asked, progress)
        return _proved(search, method)


def _guessed_vocab_size(name: str, entries: npt.NDArray[np.int32]) -> int:
    """One more than the largest follower, if that can be: memory grows with it."""
    largest = int(entries[:, 0].max(initial=0))
    if largest >= MAX_GUESS:
        at = int(np.argmax(entries[:, 0]))
        raise FormatError(
            f"{name}: found id {largest} at entry {at}, expected ids below {MAX_GUESS}; if they "
            "are real, pass --vocab-size"
        )
    return largest + 1


def _frequent(entries: npt.NDArray[np.int32], vocab_size: int) -> list[int]:
    step = max(1, len(entries) // SAMPLE_ENTRIES)
    tokens = entries[::step, 0]
    tokens = tokens[(tokens >= 0) & (tokens < vocab_size)]
    if not len(tokens):
        return []
    totals = np.bincount(tokens)
    return [
        int(token) for token in np.argsort(-totals, kind="stable")[:START_TOKENS] if totals[token]
    ]


def _all_pairs(search: _Search, asked: bool, progress: Progress | None) -> None:
    """Try every pair of ids, as long as that ends within hours or the user wants it."""
    if not asked and search.vocab_size**2 > MAX_PAIRS:
        raise FormatError(
            f"{search.name}: found keys for {search.covered} of {search.n_entries} entries by "
            f"walking, and {search.vocab_size}^2 pairs of ids are too many to try; pass "
            "--vocab-size if you want to, or rebuild the cache with lookup-create"
        )
    for first in range(search.vocab_size):
        if search.complete:
            return
        search.walk(search.pairs(first), None)
        if progress is not None and first % 64 == 0:
            progress("try all pairs", first, search.vocab_size)


def _proved(search: _Search, method: str) -> RecoveredKeys:
    found = np.concatenate([*search.found, np.empty(0, np.uint64)])
    search.found.clear()
    records = _sorted(found, search.name, second_first=False)
    ngrams, offsets, lengths = unpack_records(records)
    check_tiling(search.name, search.n_entries, offsets, lengths)
    return RecoveredKeys(ngrams, offsets, lengths, method)


def check_tiling(
    name: str, n_entries: int, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint32]
) -> None:
    """The proof that a set of spans is all there is.

    Raises:
        FormatError: a hole or an overlap; the covered share is given.
    """
    marks = np.zeros(n_entries // 64 + 1, np.uint64)
    covered: Any = ffi.new("uint64_t *")
    status = lib.lookup_static_check_tiling(
        n_entries, u64(offsets), u32(lengths), len(offsets), u64(marks), covered
    )
    if status == lib.LOOKUP_E_TILING:
        share = 100 * covered[0] / n_entries if n_entries else 100.0
        raise FormatError(
            f"{name}: found keys for {covered[0]} of {n_entries} entries ({share:.1f} %), "
            "expected all of them exactly once; "
            "the file has keys that cannot be found this way: rebuild it with lookup-create"
        )
    check(status, name)
