"""Keys of constmaps that carry none: found by walking, or by trying all pairs, or refused."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Counts,
    add,
    count_documents,
    golden_bytes,
    golden_tokens,
    needs_shared,
    random_counts,
    random_stream,
    read_counts,
    run,
    write_counts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_formats import foreign_constmap

from lookup_tools import merge_caches, open_cache, recover_keys, verify_cache
from lookup_tools.building.merge import MergeOptions
from lookup_tools.cache import ConstmapCache
from lookup_tools.cache.recover_keys import RecoveredKeys, check_tiling
from lookup_tools.errors import FormatError

# Two islands that no walk connects: no token of one follows anything in the other.
ISLANDS: Counts = {(1, 2): {3: 5}, (2, 3): {1: 1}, (20, 21): {22: 1}, (21, 22): {20: 1}}


def recovered(path: Path, **options: Any) -> RecoveredKeys:
    with open_cache(path) as cache:
        assert isinstance(cache, ConstmapCache)
        return recover_keys(cache, **options)


def keys_of(found: RecoveredKeys) -> list[tuple[int, ...]]:
    return [tuple(ngram) for ngram in found.ngrams.tolist()]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), n=st.integers(3, 400), vocab=st.integers(1, 40))
def test_a_counted_text_is_recovered(tmp_path: Path, seed: int, n: int, vocab: int) -> None:
    path = tmp_path / "keyless"
    made = count_documents([random_stream(random.Random(seed), n, vocab)])
    write_counts(path, made, annex=False)
    first_only = {a for ngram in made for a in ngram} - {f for fs in made.values() for f in fs}
    found = recovered(path, vocab_size=vocab)
    assert keys_of(found) == sorted(made)
    assert found.lengths.tolist() == [len(made[ngram]) for ngram in sorted(made)]
    if not first_only:
        assert read_counts(path) == made


def test_the_walk_suffices_for_ordinary_text(tmp_path: Path) -> None:
    stream = random_stream(random.Random(1), 5000, 300)
    write_counts(tmp_path / "keyless", count_documents([stream]), annex=False)
    assert recovered(tmp_path / "keyless", vocab_size=300).method == "walk"


def test_row_04_what_no_walk_reaches_is_found_among_all_pairs(tmp_path: Path) -> None:
    """A merged or pruned file. Starting tokens are frequent followers, so a key whose
    tokens follow nothing is left for the fall-back."""
    made: Counts = {**ISLANDS, (7, 8): {1: 1}, (30, 31): {2: 1}}
    write_counts(tmp_path / "keyless", made, annex=False)
    found = recovered(tmp_path / "keyless", vocab_size=32)
    assert keys_of(found) == sorted(made)
    assert found.method == "all pairs"


@pytest.mark.parametrize("min_count", [2, 3])
def test_a_pruned_file_is_completed(tmp_path: Path, min_count: int) -> None:
    made = count_documents([random_stream(random.Random(3), 3000, 60)])
    pruned = {
        ngram: kept
        for ngram, followers in made.items()
        if (kept := {token: count for token, count in followers.items() if count >= min_count})
    }
    write_counts(tmp_path / "keyless", pruned, annex=False)
    assert keys_of(recovered(tmp_path / "keyless", vocab_size=60)) == sorted(pruned)
    merge_caches([tmp_path / "keyless"], tmp_path / "out", MergeOptions(vocab_size=60, threads=2))
    assert read_counts(tmp_path / "out") == pruned


def test_row_04_what_cannot_be_found_is_refused_with_the_covered_share(tmp_path: Path) -> None:
    """A key with an id beyond all followers, and nobody said how many ids there are."""
    made: Counts = {(1, 2): {3: 5, 1: 1}, (2, 3): {1: 1}, (99, 1): {2: 1}}
    path = tmp_path / "keyless"
    write_counts(path, made, annex=False)
    with pytest.raises(FormatError, match=r"found keys for 3 of 4 entries \(75\.0 %\)"):
        recovered(path)
    result = run("merge", path, "-o", tmp_path / "out", code=1)
    assert "75.0 %" in result.stderr
    assert not (tmp_path / "out").exists()
    run("merge", path, "-o", tmp_path / "out", "--vocab-size", 100)
    assert read_counts(tmp_path / "out") == made


def test_a_value_nobody_can_ask_for_is_refused(tmp_path: Path) -> None:
    """A file with an entry that belongs to no key."""
    data = foreign_constmap({(1, 2): {3: 1, 4: 1}, (2, 3): {1: 1}}, spans={(1, 2): (0, 1)})
    (tmp_path / "cache").write_bytes(data)
    with pytest.raises(FormatError, match=r"found keys for 2 of 3 entries \(66\.7 %\)"):
        recovered(tmp_path / "cache")


def test_spans_that_overlap_are_no_proof(tmp_path: Path) -> None:
    made: Counts = {(1, 2): {2: 1, 3: 1}, (2, 3): {1: 1, 2: 1}}
    data = foreign_constmap(made, spans={(1, 2): (0, 2), (2, 3): (1, 2)})
    (tmp_path / "cache").write_bytes(data)
    with pytest.raises(FormatError):
        recovered(tmp_path / "cache")


@pytest.mark.parametrize(
    ("spans", "n"),
    [
        ([(0, 2), (2, 2)], 5),
        ([(0, 3), (2, 2)], 4),
        ([(0, 5)], 4),
        ([(3, 2)], 4),
        ([(0, 0), (0, 4), (0, 4)], 4),
        ([], 1),
    ],
)
def test_tilings_that_are_none(spans: list[tuple[int, int]], n: int) -> None:
    offsets = np.array([at for at, _ in spans], np.uint64)
    lengths = np.array([size for _, size in spans], np.uint32)
    with pytest.raises(FormatError):
        check_tiling("x", n, offsets, lengths)


def test_tilings_in_any_order() -> None:
    check_tiling("x", 5, np.array([3, 0, 1], np.uint64), np.array([2, 1, 2], np.uint32))
    check_tiling("x", 0, np.empty(0, np.uint64), np.empty(0, np.uint32))


def test_threads_find_the_same(tmp_path: Path) -> None:
    stream = random_stream(random.Random(8), 40_000, 3000)
    write_counts(tmp_path / "keyless", count_documents([stream]), annex=False)
    alone = recovered(tmp_path / "keyless", vocab_size=3000)
    with ThreadPoolExecutor(2) as pool:
        together = recovered(tmp_path / "keyless", vocab_size=3000, pool=pool)
    for name in ("ngrams", "offsets", "lengths"):
        assert np.array_equal(getattr(alone, name), getattr(together, name))


def test_keyless_files_merge_like_their_twins(tmp_path: Path) -> None:
    """Two foreign files, spans in hash order, give what their legacy twins give."""
    made = [count_documents([random_stream(random.Random(seed), 2000, 50)]) for seed in (1, 2)]
    for k, counts in enumerate(made):
        order = random.Random(k).sample(sorted(counts), len(counts))
        (tmp_path / f"foreign-{k}").write_bytes(foreign_constmap(counts, order=order))
        write_counts(tmp_path / f"twin-{k}", counts, "legacy", annex=False)
    options = MergeOptions(fmt="constmap", threads=2, vocab_size=50)
    for name in ("foreign", "twin"):
        merge_caches([tmp_path / f"{name}-{k}" for k in (0, 1)], tmp_path / f"{name}-out", options)
    assert (tmp_path / "foreign-out").read_bytes() == (tmp_path / "twin-out").read_bytes()
    assert read_counts(tmp_path / "foreign-out") == add(*made)


def test_recovery_can_be_switched_off(tmp_path: Path) -> None:
    write_counts(tmp_path / "keyless", ISLANDS, annex=False)
    result = run("merge", tmp_path / "keyless", "-o", tmp_path / "out", "--no-recover-keys", code=1)
    assert "without keys" in result.stderr


def test_inspect_reports_recovery(tmp_path: Path) -> None:
    write_counts(tmp_path / "keyless", ISLANDS, annex=False)
    result = run("inspect", tmp_path / "keyless", "--recover-keys")
    assert "recovered 4 keys by" in result.stdout
    assert "an unknown number of n-grams" in result.stdout
    write_counts(tmp_path / "legacy", ISLANDS, "legacy")
    assert (
        "found a legacy file"
        in run("inspect", tmp_path / "legacy", "--recover-keys", code=1).stderr
    )


def test_verifying_a_keyless_file_recovers_its_keys(tmp_path: Path) -> None:
    made = random_counts(random.Random(2), 300, vocab=20)
    write_counts(tmp_path / "keyless", made, annex=False)
    with open_cache(tmp_path / "keyless") as cache:
        assert any("300 keys were recovered" in line for line in verify_cache(cache).checked)


@pytest.mark.parametrize("follower", [2**24 + 3, 2**31 - 1])
def test_an_absurd_id_does_not_start_an_endless_search(tmp_path: Path, follower: int) -> None:
    """One damaged byte in the entries must not mean (2^31)^2 look-ups."""
    made: Counts = {(1, 2): {3: 1}, (2, 3): {follower: 1}, (9, 7): {3: 1}}
    write_counts(tmp_path / "keyless", made, annex=False)
    with pytest.raises(FormatError):
        recovered(tmp_path / "keyless")


# ---- the golden pair: the same corpus as a keyless foreign file and as stock's records


@needs_shared
def test_the_golden_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(golden_bytes("foreign.wiki.valid.ggngcmap.zst"))
    tokens = golden_tokens("wiki.valid").tolist()
    with ThreadPoolExecutor(2) as pool:
        found = recovered(path, pool=pool)
    assert len(found.lengths) == 110_700
    assert int(found.lengths.sum()) == 185_850
    counts = read_counts(path)
    assert counts == count_documents([tokens])
    # stock dropped the final newline: its last token is a space, not a space and a newline
    (tmp_path / "stock").write_bytes(golden_bytes("stock.wiki.valid.legacy.zst"))
    assert (tokens[-1], 216) == (3717, 216)
    assert read_counts(tmp_path / "stock") == count_documents([[*tokens[:-1], 216]])
