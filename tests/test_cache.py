"""One view type: the same questions and answers whatever door a cache came in by."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from attacks import parts
from helpers import (
    FORMATS,
    Counts,
    counts_of,
    n_pairs,
    random_counts,
    read_counts,
    write_counts,
)

from lookup_tools import merge_caches, open_cache, verify_cache
from lookup_tools._native import check, ffi, lib
from lookup_tools.building.merge import MergeOptions
from lookup_tools.cache import Cache
from lookup_tools.errors import ClosedError, FormatError, ParameterError

COUNTS = random_counts(random.Random(11), 400, vocab=60)
WIDE = {
    **random_counts(random.Random(12), 20, order=1),
    **random_counts(random.Random(13), 50, order=3),
    **random_counts(random.Random(14), 50, order=4),
    **random_counts(random.Random(15), 60),
}
ABSENT = [(60, 0), (0, 60), (61, 61), (2**31 - 1, 0), (0, 2**31 - 1)]


def check_everything(cache: Cache, made: Counts) -> None:
    """All that can be asked, against a dict."""
    for ngram, followers in made.items():
        found = cache.followers(ngram)
        assert found["token"].tolist() == sorted(followers)
        assert dict(found.tolist()) == followers
    for ngram in ABSENT:
        assert len(cache.followers(ngram)) == 0
    assert counts_of(cache) == made
    assert cache.orders == tuple(sorted({len(ngram) for ngram in made}))
    assert cache.n_ngrams in (len(made), None)
    assert cache.n_pairs == n_pairs(made)
    largest = max(max(*ngram, *followers) for ngram, followers in made.items())
    assert cache.max_token >= max(max(followers) for followers in made.values())
    if cache.has_keys if hasattr(cache, "has_keys") else True:
        assert cache.max_token >= largest
    verify_cache(cache)
    check_static(cache, made)


def check_static(cache: Cache, made: Counts) -> None:
    """The view that drafters read has the 2-grams."""
    view = cache.static_view()
    out = ffi.new("uint64_t[2]")
    for ngram in [ngram for ngram in made if len(ngram) == 2][:50]:
        check(lib.lookup_static_followers(view, *ngram, out, out + 1))
        assert out[1] == len(made[ngram])


@pytest.fixture(params=["mmap", "read", "populate"])
def load(request: pytest.FixtureRequest) -> dict[str, object]:
    if request.param == "populate":
        return {"load": "mmap", "populate": True}
    return {"load": request.param}


@pytest.mark.parametrize("annex", [True, False])
@pytest.mark.parametrize("fmt", FORMATS)
def test_written_and_opened(tmp_path: Path, fmt: str, annex: bool, load: dict[str, object]) -> None:
    path = tmp_path / "cache"
    write_counts(path, COUNTS, fmt, annex=annex)
    with open_cache(path, **load) as cache:  # type: ignore[arg-type]
        assert cache.path == str(path)
        assert cache.file_bytes == path.stat().st_size
        check_everything(cache, COUNTS)


def test_all_orders_in_a_legacy_file(tmp_path: Path, load: dict[str, object]) -> None:
    write_counts(tmp_path / "cache", WIDE, "legacy")
    with open_cache(tmp_path / "cache", **load) as cache:  # type: ignore[arg-type]
        check_everything(cache, WIDE)


@pytest.mark.parametrize("fmt", FORMATS)
def test_merged_and_converted(tmp_path: Path, fmt: str) -> None:
    for start in FORMATS:
        write_counts(tmp_path / "in", COUNTS, start)
        merge_caches(
            [tmp_path / "in"], tmp_path / "out", MergeOptions(fmt=fmt, threads=1, force=True)
        )  # type: ignore[arg-type]
        with open_cache(tmp_path / "out") as cache:
            check_everything(cache, COUNTS)


@pytest.mark.parametrize("fmt", FORMATS[1:])
def test_a_cache_of_nothing(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "cache", {}, fmt)
    with open_cache(tmp_path / "cache") as cache:
        assert counts_of(cache) == {}
        assert len(cache.followers((1, 2))) == 0
        verify_cache(cache)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("ngram", [(), (1, 2, 3, 4, 5), (-1, 2), (1, 2**31), (1, -(2**40))])
def test_n_grams_that_cannot_be(tmp_path: Path, fmt: str, ngram: tuple[int, ...]) -> None:
    write_counts(tmp_path / "cache", COUNTS, fmt)
    with (
        open_cache(tmp_path / "cache") as cache,
        pytest.raises(ParameterError, match="expected 1 to 4 token ids"),
    ):
        cache.followers(ngram)


def test_ids_may_be_numpys(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", COUNTS)
    ngram = next(iter(COUNTS))
    with open_cache(tmp_path / "cache") as cache:
        for ids in (np.array(ngram, np.int64), np.array(ngram, np.int32), list(ngram)):
            assert dict(cache.followers(ids).tolist()) == COUNTS[ngram]


@pytest.mark.parametrize("fmt", FORMATS)
def test_tables_hold_everything(tmp_path: Path, fmt: str) -> None:
    made = WIDE if fmt == "legacy" else COUNTS
    write_counts(tmp_path / "cache", made, fmt)
    with open_cache(tmp_path / "cache") as cache:
        table = cache.table()
    out, totals = ffi.new("size_t *"), ffi.new("uint32_t[2]")
    for ngram, followers in made.items():
        entries = ffi.new("int32_t[200]")
        check(
            lib.lookup_table_followers(
                table, list(ngram), len(ngram), entries, 100, out, totals, totals + 1
            )
        )
        assert {entries[2 * k]: entries[2 * k + 1] for k in range(out[0])} == followers
        assert list(totals) == [sum(followers.values()), max(followers.values())]


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_closed_cache_says_so(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "cache", COUNTS, fmt)
    cache = open_cache(tmp_path / "cache")
    blocks = cache.blocks(2)
    followers = cache.followers(next(iter(COUNTS)))
    cache.close()
    cache.close()
    assert cache.closed
    assert len(followers) > 0  # answers are copies
    for use in (
        lambda: cache.followers((1, 2)),
        lambda: cache.static_view(),
        lambda: next(blocks),
        lambda: list(cache.blocks(2)),
        lambda: cache.table(),
        lambda: cache.hold(),
    ):
        with pytest.raises(ClosedError, match="found a closed cache"):
            use()


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_cache_in_use_does_not_close(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "cache", COUNTS, fmt)
    cache = open_cache(tmp_path / "cache")
    cache.hold()
    cache.hold()
    with pytest.raises(ClosedError, match="2 drafter"):
        cache.close()
    cache.release()
    cache.release()
    cache.close()


def test_unknown_load_modes_are_refused(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", COUNTS)
    with pytest.raises(ParameterError, match="found load mode 'lazy', expected one of mmap, read"):
        open_cache(tmp_path / "cache", load="lazy")  # type: ignore[arg-type]


def test_a_replaced_file_does_not_disturb_its_readers(tmp_path: Path) -> None:
    """Writers rename, so whoever has the old file mapped keeps it."""
    path = tmp_path / "cache"
    write_counts(path, COUNTS)
    with open_cache(path) as cache:
        write_counts(path, {(1, 2): {3: 4}})
        check_everything(cache, COUNTS)
    assert read_counts(path) == {(1, 2): {3: 4}}


def test_a_file_read_into_memory_may_be_truncated(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    write_counts(path, COUNTS)
    with open_cache(path, load="read") as cache:
        path.write_bytes(b"")
        check_everything(cache, COUNTS)


@pytest.mark.parametrize("fmt", FORMATS)
def test_threads_share_a_cache(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "cache", COUNTS, fmt)
    ngrams = list(COUNTS)
    with open_cache(tmp_path / "cache") as cache, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(cache.followers, ngrams))
    assert [dict(each.tolist()) for each in found] == [COUNTS[ngram] for ngram in ngrams]


def test_a_hash_of_another_file_in_the_annex_is_seen(tmp_path: Path) -> None:
    """Entries are not under the map's checksum; the annex has one for them."""
    path = tmp_path / "cache"
    write_counts(path, COUNTS)
    data = bytearray(path.read_bytes())
    data[24 + 4] ^= 1  # the first count
    path.write_bytes(data)
    with open_cache(path) as cache, pytest.raises(FormatError, match="entries with hash"):
        verify_cache(cache)


def test_an_ngram_listed_without_followers_is_refused(tmp_path: Path) -> None:
    keys = parts.keys_of()
    path = tmp_path / "cache"
    path.write_bytes(parts.constmap2(keys=[(*keys[0][:3], 0), *keys[1:]]))
    with open_cache(path) as cache, pytest.raises(FormatError, match="outside the entries"):
        list(cache.blocks(2))
