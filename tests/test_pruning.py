"""Fitting a size: the file fits, the rarest pairs went, and everybody gets the same bytes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from helpers import (
    FORMATS,
    Counts,
    n_pairs,
    random_counts,
    random_stream,
    read_counts,
    run,
    write_counts,
)
from helpers import create_from as create
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tools import merge_caches, open_cache
from lookup_tools.building.fit_size import size_bound
from lookup_tools.building.merge import MergeOptions
from lookup_tools.errors import BuildError
from lookup_tools.formats.meta import CacheMeta


def shrink(path: Path, output: Path, fmt: str, max_size: int, **options: Any) -> Counts:
    """What a cache holds after it was made to fit, asked n-gram by n-gram: it may lack keys."""
    made = MergeOptions(
        **{"fmt": fmt, "max_size": max_size, "force": True, "threads": 1, **options}
    )
    merge_caches([path], output, made)
    if not output.stat().st_size:
        return {}
    with open_cache(output) as cache:
        found = {ngram: dict(cache.followers(ngram).tolist()) for ngram in read_counts(path)}
        assert sum(map(len, found.values())) == cache.n_pairs
    return {ngram: followers for ngram, followers in found.items() if followers}


def check_kept(before: Counts, after: Counts) -> None:
    """What is left is a part of what was there, and nothing dropped was counted more often than
    anything kept."""
    kept = {
        (ngram, token): count
        for ngram, followers in after.items()
        for token, count in followers.items()
    }
    all_pairs = {
        (ngram, token): count
        for ngram, followers in before.items()
        for token, count in followers.items()
    }
    assert kept.items() <= all_pairs.items()
    dropped = [count for pair, count in all_pairs.items() if pair not in kept]
    if dropped and kept:
        assert max(dropped) <= min(kept.values())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 1500),
    vocab=st.sampled_from([40, 300]),
    fmt=st.sampled_from(FORMATS),
    annex=st.booleans(),
    share=st.floats(0.02, 1.1),
)
def test_the_file_fits_and_the_rarest_pairs_go_first(
    tmp_path: Path, seed: int, n: int, vocab: int, fmt: str, annex: bool, share: float
) -> None:
    before = random_counts(random.Random(seed), n, vocab=vocab, followers=8)
    path, out = tmp_path / "in", tmp_path / "out"
    write_counts(path, before, "legacy")
    unlimited = write_counts(tmp_path / "whole", before, fmt, annex=annex).file_bytes
    max_size = max(1, int(share * unlimited))
    if max_size < size_bound(fmt, 0, 0, annex=annex):  # type: ignore[arg-type]
        with pytest.raises(BuildError, match=f"found --max-size {max_size}, expected at least"):
            shrink(path, out, fmt, max_size, annex=annex)
        return
    after = shrink(path, out, fmt, max_size, annex=annex)
    assert out.stat().st_size <= max_size
    check_kept(before, after)


@settings(max_examples=40)
@given(
    n_ngrams=st.integers(0, 10**7),
    n_pairs_more=st.integers(0, 10**7),
    fmt=st.sampled_from(FORMATS),
    annex=st.booleans(),
)
def test_the_bound_grows_with_what_is_in_the_file(
    n_ngrams: int, n_pairs_more: int, fmt: str, annex: bool
) -> None:
    pairs = n_ngrams + n_pairs_more
    here = size_bound(fmt, n_ngrams, pairs, annex=annex)  # type: ignore[arg-type]
    assert here < size_bound(fmt, n_ngrams, pairs + 1, annex=annex)  # type: ignore[arg-type]
    assert here <= size_bound(fmt, n_ngrams + 1, pairs, annex=annex)  # type: ignore[arg-type]
    assert here >= 8 * pairs


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("n", [0, 1, 2, 5, 100, 1000, 11_480, 40_000])
def test_no_file_is_larger_than_its_bound(tmp_path: Path, fmt: str, n: int) -> None:
    made = random_counts(random.Random(n), n, vocab=500)
    meta = CacheMeta(
        fingerprint="f" * 32,
        tokenizer="a vocabulary with a name",
        vocab_size=500,
        corpora=("c",) * 3,
    )
    for annex in (True, False):
        size = write_counts(tmp_path / "cache", made, fmt, meta, annex=annex).file_bytes
        assert size <= size_bound(fmt, n, n_pairs(made), annex=annex)  # type: ignore[arg-type]


@pytest.mark.parametrize("fmt", FORMATS)
def test_most_of_the_room_is_used(tmp_path: Path, fmt: str) -> None:
    before = random_counts(random.Random(1), 20_000, vocab=500, followers=8)
    write_counts(tmp_path / "in", before, "legacy")
    whole = write_counts(tmp_path / "whole", before, fmt).file_bytes
    for share in (0.3, 0.6, 0.9):
        shrink(tmp_path / "in", tmp_path / "out", fmt, int(share * whole))
        assert (tmp_path / "out").stat().st_size >= 0.85 * share * whole


@pytest.mark.parametrize("fmt", FORMATS)
def test_neither_threads_nor_memory_nor_input_formats_change_the_bytes(
    tmp_path: Path, fmt: str
) -> None:
    before = random_counts(random.Random(2), 4000, vocab=300, followers=8)
    outputs = set()
    for kind in FORMATS:
        write_counts(tmp_path / "in", before, kind)
        for threads, memory in ((1, None), (2, 40_000)):
            shrink(
                tmp_path / "in",
                tmp_path / "out",
                fmt,
                90_000,
                threads=threads,
                memory=memory,
                annex=False,
            )
            outputs.add((tmp_path / "out").read_bytes())
    assert len(outputs) == 1


def test_creating_to_a_size(tmp_path: Path) -> None:
    documents = [random_stream(random.Random(seed), 3000, 200) for seed in range(5)]
    create(tmp_path / "whole", documents)
    before = read_counts(tmp_path / "whole")
    outputs = set()
    for threads, memory in ((1, None), (2, 50_000)):
        options = {"threads": threads, "memory": memory, "tmpdir": str(tmp_path)}
        create(
            tmp_path / "out", documents, cuts=range(0, 15_000, 1000), max_size=100_000, **options
        )
        outputs.add((tmp_path / "out").read_bytes())
    assert len(outputs) == 1
    assert (tmp_path / "out").stat().st_size <= 100_000
    check_kept(before, read_counts(tmp_path / "out"))


def test_a_limit_that_is_not_reached_changes_nothing(tmp_path: Path) -> None:
    before = random_counts(random.Random(3), 200)
    write_counts(tmp_path / "in", before)
    assert shrink(tmp_path / "in", tmp_path / "out", "constmap", 10**9) == before


def test_ties_are_cut_in_key_order(tmp_path: Path) -> None:
    before: Counts = {(a, b): dict.fromkeys(range(5), 1) for a in range(10) for b in range(10)}
    write_counts(tmp_path / "in", before, "legacy")
    after = shrink(tmp_path / "in", tmp_path / "out", "legacy", 3000)
    kept = [(*ngram, token) for ngram, followers in after.items() for token in followers]
    everything = [
        (*ngram, token)
        for ngram, followers in sorted(before.items())
        for token in sorted(followers)
    ]
    assert sorted(kept) == everything[: len(kept)]
    assert 2900 < (tmp_path / "out").stat().st_size <= 3000


@pytest.mark.parametrize("fmt", FORMATS[1:])
def test_a_size_below_the_smallest_file(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "in", random_counts(random.Random(4), 50))
    result = run(
        "merge", tmp_path / "in", "-o", tmp_path / "out", "--format", fmt, "--max-size", 50, code=1
    )
    assert "found --max-size 50, expected at least" in result.stderr
    assert not (tmp_path / "out").exists()
