"""The keys of a constmap that carries none: found by walking from key to follower to key, proved
complete when their spans tile the entries (docs/format.md, "Files without keys")."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, lib, u32, u64
from lookup_tools.cache import ConstmapCache
from lookup_tools.errors import FormatError

CHUNK_KEYS = 1 << 14
START_TOKENS = 64  # frequent followers tried as first tokens before all pairs are

Keys = npt.NDArray[np.uint64]
Progress = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True, slots=True)
class RecoveredKeys:
    """All keys of a map: sorted 2-grams (n, 2), the offset and length of each one's span, and how
    they were found (`walk` or `all pairs`)."""

    ngrams: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint32]
    method: str


class _Search:
    """Marks spans in a bitmap that all threads share, so that each key is found once."""

    def __init__(
        self, cache: ConstmapCache, vocab_size: int, pool: ThreadPoolExecutor | None
    ) -> None:
        self.view = cache.static_view()
        self.name = cache.path
        self.n_entries = cache.n_pairs
        self.vocab_size = vocab_size
        self.longest = 0
        self._pool = pool
        self.marks = np.zeros(self.n_entries // 64 + 1, np.uint64)
        self.found: list[Keys] = []
        self.covered = 0

    @property
    def complete(self) -> bool:
        return self.covered == self.n_entries

    def pairs(self, first: int, count: int) -> Keys:
        """Look (t0, t1) up for `count` first tokens and every second one."""
        room = np.empty(max(1, count * self.vocab_size), np.uint64)
        out, covered = ffi.new("size_t *"), ffi.new("uint64_t *")
        check(
            lib.lookup_recover_pairs(
                self.view,
                first,
                count,
                self.vocab_size,
                u64(self.marks),
                u64(room),
                len(room),
                out,
                covered,
            ),
            self.name,
        )
        return self._keep(room[: out[0]].copy(), covered[0])

    def _keep(self, keys: Keys, covered: int) -> Keys:
        self.found.append(keys)
        self.covered += covered
        return keys

    def step(self, known: Keys) -> tuple[list[Keys], int]:
        """The new keys that some known ones lead to, and the entries they cover."""
        parts: list[Keys] = []
        total = 0
        at, out, covered = ffi.new("size_t *"), ffi.new("size_t *"), ffi.new("uint64_t *")
        room = np.empty(max(1 << 17, 2 * self.longest + 64), np.uint64)
        while at[0] < len(known):
            status = lib.lookup_recover_step(
                self.view,
                u64(known),
                len(known),
                at,
                u64(self.marks),
                u64(room),
                len(room),
                out,
                covered,
            )
            check(status, self.name)
            parts.append(room[: out[0]].copy())
            total += covered[0]
        return parts, total

    def walk(self, frontier: Keys, progress: Progress | None) -> None:
        """Follow keys until no new ones turn up."""
        while len(frontier) and not self.complete:
            chunks = [frontier[k : k + CHUNK_KEYS] for k in range(0, len(frontier), CHUNK_KEYS)]
            results = (
                list(self._pool.map(self.step, chunks))
                if self._pool
                else [self.step(c) for c in chunks]
            )
            for parts, covered in results:
                self.found += parts
                self.covered += covered
            frontier = np.concatenate(
                [part for parts, _ in results for part in parts] or [frontier[:0]]
            )
            if progress is not None:
                progress("recover keys", self.covered, self.n_entries)


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
    entries = cache.entries()
    search = _Search(cache, vocab_size or (int(entries[:, 0].max(initial=0)) + 1), pool)
    search.longest = min(search.vocab_size, cache.n_pairs)
    method = "walk"
    for token in _frequent(entries):
        if search.complete:
            break
        search.walk(search.pairs(token, 1), progress)
    if not search.complete:
        method = "all pairs"
        _all_pairs(search, pool, progress)
    return _proved(search, method)


def _frequent(entries: npt.NDArray[np.int32]) -> list[int]:
    if not len(entries):
        return []
    totals = np.bincount(np.maximum(entries[:, 0], 0))
    return [
        int(token) for token in np.argsort(-totals, kind="stable")[:START_TOKENS] if totals[token]
    ]


def _all_pairs(search: _Search, pool: ThreadPoolExecutor | None, progress: Progress | None) -> None:
    for first in range(search.vocab_size):
        if search.complete:
            return
        search.walk(search.pairs(first, 1), None)
        if progress is not None and first % 64 == 0:
            progress("try all pairs", first, search.vocab_size)


def _proved(search: _Search, method: str) -> RecoveredKeys:
    keys = np.concatenate(search.found) if search.found else np.empty(0, np.uint64)
    half = np.uint64(32)
    keys = np.sort((keys << half) | (keys >> half))  # by first token, then second
    keys = (keys << half) | (keys >> half)
    offsets, lengths = np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint32)
    check(
        lib.lookup_static_spans(search.view, u64(keys), len(keys), u64(offsets), u32(lengths)),
        search.name,
    )
    check_tiling(search.name, search.n_entries, offsets, lengths)
    ngrams = np.ascontiguousarray(keys.view(np.int32).reshape(-1, 2))
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
