"""The full check of a cache file: everything that opening it in O(1) leaves unproved."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from lookup_tools._native import check, ffi, lib, u32, u64
from lookup_tools.cache import Cache, ConstmapCache, LegacyCache
from lookup_tools.cache.recover_keys import check_tiling, recover_keys
from lookup_tools.errors import ChecksumError, FormatError


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked, in sentences, and what could not be."""

    checked: tuple[str, ...]
    unproved: tuple[str, ...]


def verify_cache(cache: Cache, pool: ThreadPoolExecutor | None = None) -> VerifyReport:
    """Check a whole file: checksums, keys against the map, spans, followers, ids. O(size).

    Raises:
        ChecksumError: the contents differ from a checksum.
        FormatError: a rule of the format is broken; the message says which and where.
    """
    with cache.held():
        if isinstance(cache, LegacyCache):
            return _verify_legacy(cache)
        assert isinstance(cache, ConstmapCache)
        return _verify_constmap(cache, pool)


def _verify_legacy(cache: LegacyCache) -> VerifyReport:
    checked = [f"{sum(cache.file.n_ngrams.values())} records are well-formed"]
    if n_duplicates := cache.n_duplicates:
        checked.append(f"{n_duplicates} n-grams stand in more than one record and are summed")
    if cache.meta is None:
        return VerifyReport(
            tuple(checked),
            (
                "the counts and whether records are missing: there is no sidecar",
                "the vocabulary: the file does not name it",
            ),
        )
    checked.append("size and hash are those of the sidecar")
    _require_ids_below(cache, cache.file.max_token)
    return VerifyReport((*checked, "all ids are below the vocabulary size"), ())


def _require_ids_below(cache: Cache, largest: int) -> None:
    size = cache.meta.vocab_size if cache.meta else None
    if size is not None and largest >= size:
        raise FormatError(
            f"{cache.path}: found id {largest}, expected ids below the vocabulary size {size}; "
            "rebuild the cache"
        )


def _verify_constmap(cache: ConstmapCache, pool: ThreadPoolExecutor | None) -> VerifyReport:
    view = cache.static_view()
    check(
        lib.lookup_map_verify(ffi.addressof(view, "map"), view.map_start),
        f"{cache.path}: damaged map",
    )
    checked, unproved = ["the map's checksum matches"], []
    if cache.annex is not None:
        _verify_entries_hash(cache)
        checked.append("the entries' checksum matches")
    else:
        unproved.append("the counts: no checksum covers the entries")
    if cache.has_keys:
        ngrams, offsets, lengths = cache.keys()
        _verify_spans(cache, ngrams, offsets, lengths)
        checked.append(f"the map gives all {len(lengths)} stored keys their spans")
        if cache.n_second_keys is not None:
            _verify_second_keys(cache, ngrams, offsets, lengths)
            checked.append("the key records repeat them")
    else:
        found = recover_keys(cache, pool=pool)
        ngrams, offsets, lengths = found.ngrams, found.offsets, found.lengths
        checked.append(f"{len(lengths)} keys were recovered ({found.method})")
    check_tiling(cache.path, cache.n_pairs, offsets, lengths)
    checked.append("their spans tile the entries exactly")
    _verify_followers(cache, ngrams, offsets, lengths)
    checked.append("followers ascend, counts are positive")
    if cache.meta is None or cache.meta.vocab_size is None:
        unproved.append("the vocabulary: the file does not name it")
    else:
        checked.append("all ids are below the vocabulary size")
    return VerifyReport(tuple(checked), tuple(unproved))


def _verify_entries_hash(cache: ConstmapCache) -> None:
    assert cache.annex is not None
    view = cache.static_view()
    found = lib.lookup_xxh64(view.entries, 8 * cache.n_pairs, 0)
    if found != cache.annex.entries_hash:
        raise ChecksumError(
            f"{cache.path}: found entries with hash {found:016x}, expected "
            f"{cache.annex.entries_hash:016x}; rebuild or copy the file again"
        )


def _verify_second_keys(
    cache: ConstmapCache, ngrams: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
) -> None:
    """A constmap2 with an annex lists its keys twice."""
    again = cache.key_records()
    same = (
        np.array_equal(ngrams, again[0])
        and np.array_equal(offsets, again[1])
        and np.array_equal(lengths, again[2])
    )
    if not same:
        raise FormatError(
            f"{cache.path}: found key records that differ from the annex's keys; rebuild the cache"
        )


def _verify_spans(
    cache: ConstmapCache, ngrams: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
) -> None:
    keys = np.ascontiguousarray(ngrams).view(np.uint64).reshape(-1)
    at, n = np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint32)
    check(
        lib.lookup_static_spans(cache.static_view(), u64(keys), len(keys), u64(at), u32(n)),
        cache.path,
    )
    wrong = np.flatnonzero((at != offsets) | (n != lengths))
    if len(wrong):
        k = int(wrong[0])
        raise FormatError(
            f"{cache.path}: found span {int(at[k])}+{int(n[k])} for key {ngrams[k].tolist()}, "
            "expected "
            f"{int(offsets[k])}+{int(lengths[k])} as the key table says; rebuild the cache"
        )


def _verify_followers(
    cache: ConstmapCache, ngrams: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
) -> None:
    size = cache.meta.vocab_size if cache.meta else None
    limit = (size or 2**31) - 1
    _require_ids_below(cache, int(ngrams.max(initial=0)))
    bad = ffi.new("uint64_t *")
    status = lib.lookup_static_check_entries(
        cache.static_view(),
        u64(np.ascontiguousarray(offsets)),
        u32(lengths),
        len(lengths),
        limit,
        bad,
    )
    check(status, f"{cache.path}: found a bad follower at entry {bad[0]}")
