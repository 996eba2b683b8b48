"""Replaying: the counters of the plain rules, chunk by chunk, and what must always hold."""

from __future__ import annotations

import math
import random
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from helpers import FORMATS, Counts, count_documents, random_counts, random_stream, write_counts
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Thresholds

from lookup_tools import ReplayOptions, SourceSpec, open_cache, replay
from lookup_tools.cache import Cache
from lookup_tools.errors import ClosedError, ParameterError
from lookup_tools.replaying.replay import ReplayReport, SourceReport
from lookup_tools.reports.builds import source_json


def counters(source: SourceReport) -> dict[str, Any]:
    assert source.tiers is not None
    return {
        "n_decode": source.n_decode,
        "n_drafted": source.n_drafted,
        "n_accept": source.n_accept,
        "drafted_steps": source.drafted_steps,
        "calls_accept": source.calls["accept"],
        "acc_drafts": source.acc_drafts,
        "tiers": {name: [tier.drafted, tier.accepted] for name, tier in source.tiers.items()},
        "histogram": {k: n for k, n in enumerate(source.accepted_length_histogram) if n},
    }


def check_identities(report: ReplayReport) -> None:
    """Row 14: acceptance is accepted over tested, and every figure adds up."""
    for source in report.sources:
        steps, drafts = source.n_decode, source.gen_drafts
        histogram = source.accepted_length_histogram
        assert sum(histogram) == steps == source.calls["draft"]
        assert sum(k * n for k, n in enumerate(histogram)) == source.n_accept == source.acc_tokens
        assert source.n_drafted == source.gen_tokens
        assert drafts == source.drafted_steps == source.calls["accept"]
        assert source.acc_drafts == sum(histogram[1:])
        assert source.calls["begin"] == report.n_chunks
        rates = source.accept_per_position
        assert len(rates) == report.draft_max
        assert all(a >= b for a, b in pairwise(rates))
        assert round(sum(rates) * drafts) == source.n_accept
        if source.tiers is not None:
            assert sum(tier.drafted for tier in source.tiers.values()) == source.n_drafted
            assert sum(tier.accepted for tier in source.tiers.values()) == source.n_accept
        # every step ends with the model's own token, but for a chunk's last
        assert 0 <= steps + source.n_accept - source.n_produced <= report.n_chunks
        for name, value in source_json(source).items():
            if isinstance(value, float):
                assert math.isfinite(value), name


STREAM = np.array(random_stream(random.Random(1), 4000, 40), np.int32)


@pytest.mark.parametrize("prompt", [0, 1, 5, 99])
@pytest.mark.parametrize("draft_max", [1, 3, 16])
def test_identities(prompt: int, draft_max: int) -> None:
    report = replay(
        STREAM, options=ReplayOptions(n_ctx=100, draft_max=draft_max, prompt_tokens=prompt)
    )
    check_identities(report)
    assert (report.n_tokens, report.n_chunks) == (4000, 40)
    assert report.n_predict == 40 * (100 - prompt)
    assert prompt == 99 or report.sources[0].n_drafted > 0


def test_nothing_to_predict_is_no_nan() -> None:
    """One token a chunk is left to say, and none of them has a draft before it."""
    report = replay(np.arange(50), options=ReplayOptions(n_ctx=10, prompt_tokens=9))
    check_identities(report)
    assert report.sources[0].n_decode == 0
    report = replay(np.arange(50), options=ReplayOptions(n_ctx=10))
    check_identities(report)
    assert report.sources[0].n_drafted == 0
    assert report.sources[0].accept_rate == 0


# ---- against the oracle


@st.composite
def thresholds(draw: st.DrawFn) -> Thresholds:
    def four(low: int, high: int) -> tuple[int, int, int, int]:
        return draw(st.tuples(*[st.integers(low, high)] * 4))

    if draw(st.booleans()):
        return Thresholds()
    return Thresholds(
        four(1, 5),
        four(0, 100),
        four(1, 5),
        four(0, 100),
        draw(st.integers(1, 5)),
        draw(st.integers(0, 100)),
    )


@settings(max_examples=120)
@given(
    seed=st.integers(0, 2**32),
    vocab=st.integers(1, 9),
    n=st.integers(61, 400),
    n_ctx=st.integers(2, 60),
    draft_max=st.integers(1, 12),
    prompt=st.integers(0, 20),
    limits=thresholds(),
    with_static=st.booleans(),
    with_dynamic=st.booleans(),
    compat=st.booleans(),
    fmt=st.sampled_from(FORMATS),
)
def test_counters_equal_the_plain_rules(
    tmp_path: Path,
    seed: int,
    vocab: int,
    n: int,
    n_ctx: int,
    draft_max: int,
    prompt: int,
    limits: Thresholds,
    with_static: bool,
    with_dynamic: bool,
    compat: bool,
    fmt: str,
) -> None:
    """Tiny alphabets: ties everywhere, all tiers at work, any thresholds."""
    rng = random.Random(seed)
    tokens = random_stream(rng, n, vocab)
    static: Counts = (
        random_counts(rng, min(vocab, 6) ** 2 // 2 + 1, vocab=vocab, followers=5)
        if with_static
        else {}
    )
    dynamic = count_documents([random_stream(rng, 80, vocab)], (1, 2, 3, 4)) if with_dynamic else {}
    prompt = min(prompt, n_ctx - 1)
    expected = oracles.replay(
        tokens,
        static,
        dynamic,
        limits,
        n_ctx=n_ctx,
        draft_max=draft_max,
        prompt=prompt,
        compat=compat,
    )
    caches: list[Cache | None] = []
    for name, counts, kind in (("static", static, fmt), ("dynamic", dynamic, "legacy")):
        if counts:
            write_counts(tmp_path / name, counts, kind)
        caches.append(open_cache(tmp_path / name) if counts else None)
    report = replay(
        tokens,
        [SourceSpec("ngram-cache", limits.params())],
        static=caches[0],
        dynamic=caches[1],
        options=ReplayOptions(
            n_ctx=n_ctx,
            draft_max=draft_max,
            prompt_tokens=prompt,
            compat="llama.cpp" if compat else None,
        ),
    )
    assert counters(report.sources[0]) == asdict(expected)
    check_identities(report)
    for cache in caches:
        if cache is not None:
            cache.close()


def test_the_oracle_is_not_trivial(tmp_path: Path) -> None:
    """The comparison above means something: all tiers draft, and some tokens are accepted."""
    rng = random.Random(3)
    tokens = random_stream(rng, 600, 30)
    static = random_counts(rng, 300, vocab=30)
    found = oracles.replay(tokens, static, {}, n_ctx=60, draft_max=6)
    assert all(drafted > 20 and accepted > 0 for drafted, accepted in found.tiers.values())
    assert any(found.histogram.get(k) for k in range(3, 7))


@pytest.mark.parametrize("load", ["mmap", "read"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_formats_and_load_modes_draft_the_same(tmp_path: Path, fmt: str, load: str) -> None:
    static = count_documents([random_stream(random.Random(4), 3000, 40)])
    write_counts(tmp_path / "cache", static, fmt)
    expected = oracles.replay(STREAM.tolist(), static, n_ctx=200, draft_max=8)
    with open_cache(tmp_path / "cache", load=load) as cache:  # type: ignore[arg-type]
        report = replay(STREAM, static=cache, options=ReplayOptions(n_ctx=200))
    assert counters(report.sources[0]) == asdict(expected)


def test_the_dynamic_cache_learns_chunk_by_chunk(tmp_path: Path) -> None:
    """The second chunk knows the first; the file is never written."""
    text = random_stream(random.Random(5), 100, 50)
    # said three times, so that the thresholds of the dynamic tier are met
    report = replay(text * 4, options=ReplayOptions(n_ctx=100))
    tiers = report.sources[0].tiers
    assert tiers is not None
    assert tiers["dynamic"].accepted > 50
    write_counts(tmp_path / "cache", count_documents([text * 3], (1, 2, 3, 4)), "legacy")
    before = (tmp_path / "cache").read_bytes()
    with open_cache(tmp_path / "cache") as cache:
        first = replay(text, dynamic=cache, options=ReplayOptions(n_ctx=100)).sources[0]
        again = replay(text, dynamic=cache, options=ReplayOptions(n_ctx=100)).sources[0]
    assert first.tiers is not None
    assert first.tiers["dynamic"].accepted > 30
    assert counters(first) == counters(again)
    assert (tmp_path / "cache").read_bytes() == before


def test_several_sources_are_replayed_one_by_one() -> None:
    sharp = SourceSpec("ngram-cache", {"context_samples_1": 9, "context_samples_2": 9})
    both = replay(STREAM, ["ngram-cache", sharp], options=ReplayOptions(n_ctx=500))
    assert [counters(source) for source in both.sources] == [
        counters(replay(STREAM, [each], options=ReplayOptions(n_ctx=500)).sources[0])
        for each in ("ngram-cache", sharp)
    ]
    assert both.sources[0].n_drafted > both.sources[1].n_drafted
    assert both.sources[1].params["context_samples_1"] == 9


# ---- which tokens are replayed


@pytest.mark.parametrize(
    ("n", "compat", "chunks"),
    [
        (100, None, 1),
        (101, None, 1),
        (199, None, 1),
        (200, None, 2),
        (1000, None, 10),
        (101, "llama.cpp", 1),
        (200, "llama.cpp", 1),
        (201, "llama.cpp", 2),
        (1000, "llama.cpp", 9),
    ],
)
def test_row_13_chunks(n: int, compat: str | None, chunks: int) -> None:
    """The last chunk of an exact multiple is there, unless llama.cpp's way is asked for."""
    report = replay(STREAM[:n], options=ReplayOptions(n_ctx=100, compat=compat))
    assert report.n_chunks == chunks
    assert report.n_predict == 100 * chunks
    assert report.sources[0].n_produced == 99 * chunks
    check_identities(report)


@pytest.mark.parametrize(
    ("n", "compat", "least"),
    [
        (0, None, 100),
        (1, None, 100),
        (99, None, 100),
        (99, "llama.cpp", 101),
        (100, "llama.cpp", 101),
    ],
)
def test_too_short_a_text_says_what_is_needed(n: int, compat: str | None, least: int) -> None:
    with pytest.raises(
        ParameterError, match=f"found {n} tokens, expected at least {least} for one chunk"
    ):
        replay(STREAM[:n], options=ReplayOptions(n_ctx=100, compat=compat))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_ctx": 1}, "found n_ctx 1, expected at least 2"),
        ({"n_ctx": 0}, "found n_ctx 0"),
        ({"draft_max": 0}, "found draft_max 0, expected 1 to 1024"),
        ({"draft_max": 1025}, "found draft_max 1025"),
        ({"prompt_tokens": -1}, "found prompt_tokens -1, expected 0 to 99"),
        ({"prompt_tokens": 100}, "found prompt_tokens 100, expected 0 to 99"),
        ({"compat": "vllm"}, "found compat 'vllm', expected llama.cpp"),
    ],
)
def test_options_outside_their_bounds(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        replay(STREAM, options=ReplayOptions(**{"n_ctx": 100, **options}))


@pytest.mark.parametrize(
    "options", [{"n_ctx": 2}, {"draft_max": 1}, {"draft_max": 1024}, {"prompt_tokens": 99}]
)
def test_options_at_their_bounds(options: dict[str, Any]) -> None:
    check_identities(replay(STREAM, options=ReplayOptions(**{"n_ctx": 100, **options})))


@pytest.mark.parametrize(
    "tokens", [[0.5] * 200, [[1, 2]] * 200, [-1] * 200, [2**31] * 200, ["a"] * 200]
)
def test_tokens_that_are_none(tokens: list[Any]) -> None:
    with pytest.raises(ParameterError):
        replay(tokens, options=ReplayOptions(n_ctx=100))


def test_a_cache_in_replay_is_held_and_let_go(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", {(1, 2): {3: 1}})
    cache = open_cache(tmp_path / "cache")
    seen = []

    def progress(phase: str, done: int, total: int | None) -> None:
        with pytest.raises(ClosedError):
            cache.close()
        seen.append((done, total))

    replay(STREAM, static=cache, options=ReplayOptions(n_ctx=1000), progress=progress)
    assert seen == [(k + 1, 4) for k in range(4)]
    cache.close()
    with pytest.raises(ClosedError):
        replay(STREAM, static=cache, options=ReplayOptions(n_ctx=1000))


def test_an_unknown_source_lists_the_known() -> None:
    with pytest.raises(ParameterError, match="found spec type 'mtp', expected one of ngram-cache"):
        replay(STREAM, ["mtp"], options=ReplayOptions(n_ctx=100))
