"""The Drafter: an engine's view of the ngram-cache source."""

from __future__ import annotations

import array
import gc
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Counts, cache_drafter, count_documents, random_stream, write_counts
from hypothesis import given
from hypothesis import strategies as st

from lookup_tools import Drafter, DynamicTable, open_cache
from lookup_tools.cache import Cache
from lookup_tools.errors import ClosedError, ParameterError

Opener = Callable[..., Cache]


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """Make an open cache of counts; closed again when the test ends."""
    caches = []

    def make(counts: Counts, fmt: str = "constmap", **options: Any) -> Cache:
        path = tmp_path / f"cache-{len(caches)}"
        write_counts(path, counts, fmt)
        caches.append(open_cache(path, **options))
        return caches[-1]

    yield make
    gc.collect()
    for cache in caches:
        cache.close()


def drafted(drafter: Drafter) -> list[int]:
    found = drafter.draft()
    assert found.dtype == np.int32
    return list(map(int, found))


# ---- following a history that somebody else keeps


@pytest.mark.parametrize(
    ("spec_type", "params"),
    [
        ("ngram-cache", {}),
        ("ngram-simple", {"size_n": 2, "size_m": 3}),
        ("ngram-suffix", {"min_match": 1}),
        ("ngram-suffix,ngram-cache", {}),
    ],
)
@given(seed=st.integers(0, 2**32), vocab=st.integers(1, 6))
def test_a_followed_history_drafts_as_if_it_had_always_been_so(
    spec_type: str, params: dict[str, int], seed: int, vocab: int
) -> None:
    """Whatever happens to it: more is said, its end is taken back, another one begins."""
    rng = random.Random(seed)
    history: list[int] = []
    with Drafter(spec_type=spec_type, n_draft=5, **params) as drafter:
        for _ in range(20):
            before = drafter.tokens.tolist()
            drafter.draft()
            if rng.random() < 0.4:
                history = history[: rng.randint(0, len(history))]
            history = history + random_stream(rng, rng.randint(0, 9), vocab)
            kept = drafter.follow(np.array(history, np.intc))
            assert before[:kept] == history[:kept]
            assert kept == min(len(before), len(history)) or before[kept] != history[kept]
            assert drafter.tokens.tolist() == history
            with Drafter(spec_type=spec_type, n_draft=5, **params) as fresh:
                fresh.begin(history)
                assert drafted(drafter) == drafted(fresh)


@given(seed=st.integers(0, 2**32), vocab=st.integers(1, 6), static=st.booleans())
def test_what_ngram_adaptive_learned_from_tokens_taken_back_is_forgotten(
    seed: int, vocab: int, static: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One text that grows and is cut back, never to nothing, which would be another text: drafts
    are those of a drafter that knows only what stands there now."""
    rng = random.Random(seed)
    history = random_stream(rng, 1 + rng.randint(0, 30), vocab)
    file = tmp_path_factory.mktemp("cut") / "cache"
    write_counts(file, count_documents([random_stream(rng, 200, vocab)], (2,)), "constmap")
    with open_cache(file) as opened:
        cache = opened if static else None
        with Drafter(cache, n_draft=5) as drafter:
            drafter.begin(history)
            for _ in range(20):
                drafter.draft()
                if rng.random() < 0.4:
                    history = history[: rng.randint(1, len(history))]
                history = history + random_stream(rng, rng.randint(0, 9), vocab)
                drafter.follow(np.array(history, np.intc))
                with Drafter(cache, n_draft=5) as fresh:
                    fresh.begin(history)
                    assert drafted(drafter) == drafted(fresh)


@pytest.mark.parametrize("spec_type", ["ngram-map-k", "ngram-map-k4v", "ngram-mod"])
def test_sources_that_learn_follow_too(spec_type: str) -> None:
    """What they learned stays; the text itself is the one given."""
    rng = random.Random(spec_type)
    history: list[int] = []
    drafts = 0
    with Drafter(spec_type=spec_type, n_draft=48) as drafter:
        for _ in range(300):
            history = history[: rng.randint(3 * len(history) // 4, len(history))]
            history += [k % 40 for k in range(len(history) % 40, len(history) % 40 + 70)]
            drafter.follow(history)
            assert drafter.tokens.tolist() == history
            drafts += len(drafter.draft()) > 0
    assert drafts > 50


def test_following_confirms_the_last_draft() -> None:
    """ngram-map-k drafts as many tokens as were confirmed the last time."""
    once = list(range(20))
    text = once * 4
    with Drafter(spec_type="ngram-map-k", n_draft=10, size_n=3, size_m=10) as drafter:
        drafter.begin(text)
        assert drafted(drafter) == once[:10]
        text += [*once[:4], 99, *once]
        assert drafter.follow(text) == 80
        assert drafted(drafter) == once[:4]


@pytest.mark.parametrize("before", [[], [9, 9, 9]])
def test_following_another_prompt_begins_it(before: list[int]) -> None:
    """ngram-map does not draft the same after a prompt as after the same tokens said."""
    text, n = random_stream(random.Random(1), 600, 6), 20
    with (
        Drafter(spec_type="ngram-map-k", size_n=3) as drafter,
        Drafter(spec_type="ngram-map-k", size_n=3) as fresh,
    ):
        drafter.follow(before)
        assert drafter.follow(text[:n]) == 0
        fresh.begin(text[:n])
        for token in text[n:]:
            assert drafted(drafter) == drafted(fresh)
            assert drafter.accept([token]) == fresh.accept([token])


def test_a_draft_keeps_to_the_budget() -> None:
    with cache_drafter(n_draft=8) as drafter:
        drafter.begin([1, 2, 3, 4, 5, 6, 7, 8, 9] * 3)
        assert [len(drafter.draft(limit)) for limit in (None, 9, 8, 2, 1, 0, -3)] == [
            8, 8, 8, 2, 1, 0, 0,
        ]  # fmt: skip


@pytest.mark.parametrize("ids", [[1, 2, -1], [[1, 2]], [0.5], np.array([1, -7], np.int32)])
def test_what_cannot_be_followed(ids: Any) -> None:
    with cache_drafter() as drafter:
        drafter.begin([1, 2])
        with pytest.raises(ParameterError, match="expected"):
            drafter.follow(ids)
        assert drafter.tokens.tolist() == [1, 2]


# ---- the rules (all of them against an oracle: test_models)


def test_row_01_begin_forgets() -> None:
    """Nothing of the last request is drafted in the next."""
    with cache_drafter() as drafter:
        drafter.begin([1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3])
        assert drafted(drafter)[:2] == [4, 5]
        drafter.begin([9, 1, 2, 3])
        assert drafted(drafter) == []
        assert drafter.tokens.tolist() == [9, 1, 2, 3]


def test_the_figures_of_a_text_do_not_depend_on_the_one_before() -> None:
    rng = random.Random(6)
    a, b = random_stream(rng, 500, 12), random_stream(rng, 200, 12)

    def figures(drafter: Drafter, text: list[int]) -> list[list[int]]:
        drafter.begin(text[:10])
        drafts = []
        for token in text[10:]:
            drafts.append(drafted(drafter))
            drafter.accept([token])
        return drafts

    with cache_drafter() as fresh, cache_drafter() as used:
        figures(used, a)
        assert figures(used, b) == figures(fresh, b)


@pytest.mark.parametrize("history", [[], [1], [1, 1], [1, 2], [1, 2, 3], [7, 7, 7]])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_row_12_short_histories(opened: Opener, history: list[int], n: int) -> None:
    """With fewer than two tokens there is no draft; longer n-grams are skipped."""
    dynamic = opened(
        {(1,): {2: 9}, (1, 2): {3: 9}, (1, 2, 3): {4: 9}, (1, 2, 3, 4): {5: 9}, (7, 7, 7): {7: 9}},
        "legacy",
    )
    history = history[:n]
    with cache_drafter(dynamic=dynamic, n_draft=4) as drafter:
        drafter.begin(history)
        found = drafted(drafter)
    if len(history) < 2:
        assert found == []
    elif history in ([1, 2], [1, 2, 3]):
        assert found[0] == history[-1] + 1


def test_row_11_scores_do_not_overflow(opened: Opener) -> None:
    """40 * 100 * 700,000 is beyond 32 bits, and the token with that score must win."""
    static = opened({(1, 2): {5: 700_000, 6: 1}})
    # (1, 2) is followed by 5 forty times and by 6 forty times: only the static counts decide
    text = [1, 2, 5] * 40 + [1, 2, 6] * 40 + [8, 1, 2]
    with cache_drafter(static, n_draft=1) as drafter:
        drafter.begin(text)
        assert drafted(drafter) == [5]
    # and the other way round, so that it is not the lowest id that wins
    static = opened({(1, 2): {5: 1, 6: 700_000}})
    with cache_drafter(static, n_draft=1) as drafter:
        drafter.begin(text)
        assert drafted(drafter) == [6]


def test_scores_beyond_64_bits(opened: Opener) -> None:
    """(2^31-1) * 100 * 85,899,346 is 2^64 and a little more; with one less it is a little below."""
    most = 2**31 - 1
    assert most * 100 * 85_899_345 < 2**64 < most * 100 * 85_899_346
    static = opened({(1, 2): {5: 85_899_345, 6: 85_899_346, 7: 1}})
    dynamic = opened({(1, 2): {5: most, 6: most, 7: 1}}, "legacy")
    with cache_drafter(static, dynamic, n_draft=1, dynamic_percent_2=30) as drafter:
        drafter.begin([1, 2])
        assert drafter.draft().tolist() == [6]


def test_ties_go_to_the_lowest_id(opened: Opener) -> None:
    with cache_drafter(
        n_draft=1, context_percent_1=0, context_percent_2=0, context_samples_1=1
    ) as drafter:
        for order in ([9, 4, 7], [4, 7, 9], [7, 9, 4]):
            drafter.begin([token for follower in order for token in (1, 2, follower)] + [1, 2])
            assert drafted(drafter) == [4]
    static = opened({(1, 2): {3: 5, 4: 5, 8: 5}})
    with cache_drafter(static, n_draft=1, static_percent=30) as drafter:
        drafter.begin([1, 2])
        assert drafted(drafter) == [3]


def test_thresholds_are_parameters(opened: Opener) -> None:
    static = opened({(1, 2): {3: 3, 4: 2}})
    for samples, percent, expected in ((5, 60, [3]), (6, 60, []), (5, 61, []), (1, 0, [3])):
        with cache_drafter(
            static, n_draft=1, static_samples=samples, static_percent=percent
        ) as drafter:
            drafter.begin([1, 2])
            assert drafted(drafter) == expected


# ---- the interface


@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        lambda ids: np.array(ids, np.int32),
        lambda ids: np.array(ids, np.int64),
        lambda ids: np.array(ids, np.uint16),
        lambda ids: array.array("i", ids),
        lambda ids: memoryview(np.array(ids, np.int32)),
        lambda ids: np.repeat(np.array(ids, np.int32), 2)[::2],
    ],
    ids=["list", "tuple", "int32", "int64", "uint16", "array", "memoryview", "strided"],
)
def test_ids_of_any_integer_kind(convert: Callable[[list[int]], Any]) -> None:
    with cache_drafter(n_draft=2) as drafter:
        drafter.begin(convert([5, 6, 7, 5, 6, 7, 5]))
        assert drafted(drafter) == [6, 7]
        assert drafter.accept(convert([6, 9])) == 1
        assert drafter.tokens.tolist() == [5, 6, 7, 5, 6, 7, 5, 6, 9]


@pytest.mark.parametrize(
    "ids",
    [
        [1.5],
        ["a"],
        [None],
        [-1],
        [2**31],
        [2**63],
        [True],
        [[1, 2], [3, 4]],
        7,
        b"abc",
        np.array([1.0, 2.0]),
    ],
    ids=str,
)
def test_ids_that_are_none(ids: Any) -> None:
    with cache_drafter() as drafter:
        drafter.begin([1, 2])
        for call in (drafter.begin, drafter.accept):
            with pytest.raises(ParameterError):
                call(ids)
        # a refused call changes nothing
        assert drafter.tokens.tolist() == [1, 2]


def test_a_callers_array_is_not_kept() -> None:
    ids = np.array([5, 6, 7, 5, 6, 7, 5, 6], np.int32)
    with cache_drafter(n_draft=1) as drafter:
        drafter.begin(ids)
        ids[:] = 0
        assert drafted(drafter) == [7]
        found = drafter.draft()
        found[:] = 0
        assert drafted(drafter) == [7]


@pytest.mark.parametrize("n_draft", [0, -1, 1025])
def test_draft_lengths_out_of_bounds(n_draft: int) -> None:
    with pytest.raises(ParameterError, match="expected 1 to 1024"):
        cache_drafter(n_draft=n_draft)


def test_draft_lengths_at_their_bounds() -> None:
    loop = [1, 2, 3] * 5
    for n_draft in (1, 2, 1023, 1024):
        with cache_drafter(n_draft=n_draft) as drafter:
            drafter.begin(loop)
            assert len(drafter.draft()) == n_draft


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"spec_type": "mtp"}, "spec type 'mtp'"),
        ({"n_max": 3}, "parameter 'n_max'"),
        ({"static_percent": 101}, "static_percent: found 101"),
    ],
)
def test_arguments_nobody_knows(opened: Opener, arguments: dict[str, Any], message: str) -> None:
    cache = opened({(1, 2): {3: 1}})
    with pytest.raises(ParameterError, match=message):
        cache_drafter(cache, **arguments)
    cache.close()  # the failed drafter does not hold it


def test_drafting_before_begin_and_saying_nothing() -> None:
    with cache_drafter() as drafter:
        assert drafted(drafter) == []
        assert drafter.accept([]) == 0
        assert drafter.accept([1, 2, 3, 1, 2, 3, 1, 2]) == 0
        assert drafted(drafter)[0] == 3
        assert drafter.accept([]) == 0


def test_only_the_last_draft_is_confirmed() -> None:
    with cache_drafter(n_draft=2) as drafter:
        drafter.begin([1, 2, 3, 1, 2, 3, 1])
        assert drafted(drafter) == [2, 3]
        assert drafter.accept([2, 3, 1]) == 2
        assert drafter.accept([2, 3]) == 0


def test_long_histories_grow() -> None:
    with cache_drafter(n_draft=4) as drafter:
        drafter.begin([1, 2, 3])
        for _ in range(3000):
            drafter.accept([1, 2, 3])
        assert len(drafter.tokens) == 9003
        assert drafted(drafter) == [1, 2, 3, 1]


# ---- lifetimes


def test_a_closed_drafter_says_so(opened: Opener) -> None:
    cache = opened({(1, 2): {3: 1}})
    drafter = cache_drafter(cache)
    drafter.begin([1, 2])
    drafter.close()
    drafter.close()
    for use in (drafter.draft, lambda: drafter.begin([1]), lambda: drafter.accept([1])):
        with pytest.raises(ClosedError, match="found a closed drafter"):
            use()
    cache.close()


def test_a_cache_that_a_drafter_holds_does_not_close(opened: Opener) -> None:
    for fmt in ("constmap", "legacy"):
        cache = opened({(1, 2): {3: 5}}, fmt)
        with cache_drafter(cache) as drafter:
            with pytest.raises(ClosedError, match="1 drafter"):
                cache.close()
            drafter.begin([1, 2])
            assert drafted(drafter) == [3]
        cache.close()
        with pytest.raises(ClosedError):
            cache_drafter(cache)


def test_a_forgotten_drafter_lets_go(opened: Opener) -> None:
    cache = opened({(1, 2): {3: 5}})
    drafter = cache_drafter(cache)
    del drafter
    gc.collect()
    cache.close()


def test_a_dynamic_cache_is_copied(opened: Opener) -> None:
    cache = opened({(1, 2): {3: 9}}, "legacy")
    with cache_drafter(dynamic=cache, n_draft=1) as drafter:
        cache.close()
        drafter.begin([1, 2])
        assert drafted(drafter) == [3]


# ---- sharing


def test_row_18_drafters_and_threads_share_one_cache(opened: Opener) -> None:
    """Eight sequences at once on one view, each as if alone."""
    rng = random.Random(7)
    static = opened(count_documents([random_stream(rng, 5000, 60)]))
    dynamic = opened(count_documents([random_stream(rng, 3000, 60)], (1, 2, 3, 4)), "legacy")
    texts = [random_stream(rng, 400, 60) for _ in range(8)]
    shared = DynamicTable(dynamic)
    barrier = threading.Barrier(8)

    def figures(text: list[int], together: bool) -> list[list[int]]:
        with cache_drafter(static, shared) as drafter:
            if together:
                barrier.wait(timeout=30)
            drafter.begin(text[:5])
            found = []
            for token in text[5:]:
                found.append(drafted(drafter))
                drafter.accept([token])
            return found

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda text: figures(text, True), texts))
    assert together == [figures(text, False) for text in texts]
    assert any(draft for drafts in together for draft in drafts)


@pytest.mark.parametrize("load", ["mmap", "read"])
def test_load_modes_draft_the_same(opened: Opener, load: str) -> None:
    rng = random.Random(8)
    counts = count_documents([random_stream(rng, 3000, 50)])
    text = random_stream(rng, 600, 50)
    with (
        cache_drafter(opened(counts, load=load)) as one,
        cache_drafter(opened(counts, "legacy")) as two,
    ):
        one.begin(text[:3])
        two.begin(text[:3])
        for token in text[3:]:
            assert drafted(one) == drafted(two)
            one.accept([token])
            two.accept([token])
