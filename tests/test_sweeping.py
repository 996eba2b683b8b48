"""Sweeps and the threshold tuner."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from helpers import GOLDEN, needs_shared, random_stream

import lookup_tools as lt
from lookup_tools.errors import ParameterError
from lookup_tools.evaluation.sweep import best_point, parse_sweep, sweep
from lookup_tools.evaluation.tune import split_text, tune
from lookup_tools.evaluation.verify_cost_files import read_cost
from lookup_tools.replaying.chunks import ReplayOptions


def text_of(seed: int, n: int = 1200, vocab: int = 6) -> np.ndarray:
    return np.array(random_stream(random.Random(seed), n, vocab), np.int32)


def test_a_sweep_is_every_combination() -> None:
    axes = parse_sweep("ngram-suffix:ngram-min-match=2..4,draft=1,3,8,draft-max=4..8..2")
    assert axes.values == {
        "ngram_min_match": [2, 3, 4], "draft": [1, 3, 8], "draft_max": [4, 6, 8],
    }  # fmt: skip
    points = list(axes.points(99))
    assert len(points) == 27
    found = {(s.values()["min_match"], s.values()["draft"], most) for s, most in points}
    assert found == set(itertools.product([2, 3, 4], [1, 3, 8], [4, 6, 8]))


def test_a_sweep_takes_short_names_and_fixed_parameters() -> None:
    spec, most = next(parse_sweep("ngram-mod:n-match=16").points(7, {"spec_ngram_mod_n_min": 2}))
    assert spec.values() == {"n_match": 16, "n_min": 2, "n_max": 64}
    assert most == 7
    chain = parse_sweep("ngram-mod,ngram-suffix:min-match=4,draft=2,3")
    assert [spec.values()["draft"] for spec, _ in chain.points(8)] == [2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ngram-suffix", "expected SOURCE:parameter=values"),
        ("ngram-suffix:", "expected SOURCE:parameter=values"),
        ("ngram-suffix:3", "expected SOURCE:parameter=values"),
        ("ngram-suffix:draft=", "found '' in sweep"),
        ("ngram-suffix:draft=5..2", "expected a rising range"),
        ("ngram-suffix:draft=1..5..0", "found '1..5..0'"),
        ("ngram-suffix:draft=9", "draft: found 9, expected 1 to 8"),
        ("ngram-suffix:draft=1,draft=2", "found draft twice"),
        ("ngram-suffix:n-match=2", "found parameter 'n-match', expected one of draft"),
        ("ngram-suffix:draft-max=0", "found draft_max 0"),
        ("ngram-what:draft=1", "found spec type 'ngram-what'"),
        ("ngram-mod:n-max=1..1000,n-min=0..1000", "found 1001000 points"),
    ],
)
def test_a_bad_sweep_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_sweep(text)


@pytest.mark.parametrize("threads", [1, 3])
def test_each_point_is_what_a_replay_of_it_finds(threads: int) -> None:
    tokens, curve = text_of(1), read_cost("moe")
    points = list(parse_sweep("ngram-cache:context-samples-1=1..3,draft-max=2,5").points(8))
    found = sweep(tokens, points, ReplayOptions(n_ctx=300), curve=curve, threads=threads)
    assert [(point.spec, point.draft_max) for point in found] == points
    for point in found:
        alone = lt.replay(
            tokens, [point.spec], options=lt.ReplayOptions(n_ctx=300, draft_max=point.draft_max)
        ).sources[0]
        assert point.report.n_accept == alone.n_accept
        assert point.report.drafted_length_histogram == alone.drafted_length_histogram
        assert point.projection is not None
        assert point.merit == point.projection.speedup
    merits = [point.merit for point in found]
    top = best_point(found)
    assert top is None or top.merit == max(merits)


def test_without_a_cost_the_merit_is_tokens_per_decode() -> None:
    points = list(parse_sweep("ngram-suffix:min-match=2..3").points(8))
    found = sweep(text_of(2), points, ReplayOptions(n_ctx=300))
    assert [point.merit for point in found] == [point.report.tokens_per_decode for point in found]
    assert best_point(found) is not None


def test_off_is_a_result() -> None:
    """Each further token costs as much as a step of its own: nothing can pay."""
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 4, 2000).astype(np.int32)
    points = list(parse_sweep("ngram-suffix:min-match=2..5,draft=1,3").points(8))
    dear = sweep(tokens, points, ReplayOptions(n_ctx=500), curve=read_cost("1:1,2:2,9:9"))
    assert best_point(dear) is None
    free = sweep(tokens, points, ReplayOptions(n_ctx=500), curve=read_cost("1:1,9:1"))
    assert best_point(free) is not None
    assert best_point([]) is None


def shape_of_the_table(tokens: np.ndarray, n_ctx: int) -> None:
    """bmoe's table: with min_match precision rises and coverage falls; a dense engine gains, a
    mixture of experts is better off without."""
    points = list(parse_sweep("ngram-suffix:ngram-min-match=2..8,draft=1,3").points(8))
    dense = sweep(tokens, points, ReplayOptions(n_ctx), curve=read_cost("dense"), threads=2)
    for draft in (1, 3):
        rows = [point.report for point in dense if point.spec.values()["draft"] == draft]
        coverages = [row.coverage for row in rows]
        assert coverages == sorted(coverages, reverse=True)
        assert rows[-1].accept_rate > rows[3].accept_rate > rows[0].accept_rate
    assert best_point(dense) is not None
    moe = sweep(tokens, points, ReplayOptions(n_ctx), curve=read_cost("moe"), threads=2)
    assert best_point(moe) is None


@needs_shared
def test_prose_has_the_shape_of_the_published_table() -> None:
    shape_of_the_table(lt.load_tokens(GOLDEN / "wiki.test.smollm2.u16.zst").ids[: 10 * 4096], 4096)


def test_copies_with_slips_have_the_shape_of_the_published_table() -> None:
    """Common words repeat by chance, so short matches mislead; stretches copied from before make
    long ones, which rarely do."""
    rng = np.random.default_rng(7)
    tokens: list[int] = rng.integers(0, 40, 50).tolist()
    while len(tokens) < 12_000:
        tokens += np.minimum(rng.zipf(1.3, 30), 3000).tolist()
        start = int(rng.integers(0, len(tokens) - 40))
        tokens += tokens[start : start + int(rng.geometric(0.1))]
    shape_of_the_table(np.array(tokens, np.int32), 4000)


# ---- tuning


def test_tuning_never_does_worse_where_it_searched() -> None:
    tokens, curve = text_of(3, 2400, 12), read_cost("moe")
    search, rest = split_text(tokens, 300)
    assert (len(search), len(rest)) == (1200, 1200)
    found = tune(search, rest, ReplayOptions(n_ctx=300), curve)
    before = sweep(search, [(lt.SourceSpec(), 8)], ReplayOptions(n_ctx=300), curve=curve)[0]
    assert found.found_speedup >= before.merit
    tuned = lt.SourceSpec("ngram-cache", found.params)
    again = lt.replay(
        rest, [tuned], options=lt.ReplayOptions(n_ctx=300, draft_max=found.draft_max)
    ).sources[0]
    assert found.tuned.report.n_accept == again.n_accept
    assert found.default.spec == lt.SourceSpec()
    assert found.searched > 50


def test_tuning_finds_a_planted_threshold() -> None:
    """A follower seen once is right half the time, seen twice always: with dear batches, wait."""
    rng = np.random.default_rng(5)
    tokens: list[int] = []
    for block in range(60):
        noise = [1000 + 40 * block + k for k in range(16)]
        for _ in range(2):
            tokens += noise[: int(rng.integers(6, 16))]
    found = tune(
        np.array(tokens, np.int32), np.array(tokens, np.int32), ReplayOptions(n_ctx=len(tokens)),
        read_cost("1:1,2:1.9,9:8"),
    )  # fmt: skip
    assert found.tuned.merit >= found.default.merit
    assert found.draft_max <= 8


def test_tuning_ngram_adaptive_searches_the_longest_draft() -> None:
    """A text that repeats 40 tokens pays for drafts longer than 8, and wide batches cost little."""
    rng = np.random.default_rng(6)
    block = rng.integers(0, 3000, 40).tolist()
    tokens = np.array([*block, 7] * 40, np.int32)
    options = ReplayOptions(n_ctx=len(tokens) // 2, draft_max=8)
    start = lt.SourceSpec("ngram-adaptive")
    half = len(tokens) // 2
    curve = read_cost("1:1,64:1.5")
    found = tune(tokens[:half], tokens[half:], replace(options, curve=curve), curve, start=start)
    assert found.tuned.spec == start
    assert found.params == {}
    assert found.draft_max > 8
    assert found.tuned.merit > found.default.merit
    assert found.searched > 10


def test_tuning_needs_two_parts_and_ngram_cache() -> None:
    with pytest.raises(ParameterError, match="found 300 tokens, expected at least 400"):
        split_text(text_of(1, 300), 200)
    with pytest.raises(ParameterError, match="found ngram-mod, expected ngram-cache or "):
        tune(
            text_of(1), text_of(1), ReplayOptions(n_ctx=300), read_cost("dense"),
            start=lt.SourceSpec("ngram-mod"),
        )  # fmt: skip
