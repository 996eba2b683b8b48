"""Draft sources from Python: every golden counter through `replay`; chains, traces, bounds."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import GOLDEN, random_stream
from hypothesis import given
from hypothesis import strategies as st

import lookup_tools as lt
from lookup_tools.drafting.params import ALL_PARAMS, CACHE_PARAMS, SOURCE_PARAMS
from lookup_tools.errors import FormatError, ParameterError
from lookup_tools.replaying.replay import Part
from lookup_tools.replaying.source_report import SourceReport

SIX = [name for name in SOURCE_PARAMS if name not in ("trace", "ngram-adaptive")]
# Small sizes, so that short random texts give every source something to draft.
SMALL = {
    "ngram-cache": {},
    "ngram-simple": {"size_n": 2, "size_m": 4},
    "ngram-map-k": {"size_n": 2, "size_m": 4},
    "ngram-map-k4v": {"size_n": 2, "size_m": 4},
    "ngram-mod": {"n_match": 2, "n_max": 6, "n_min": 1},
    "ngram-suffix": {"min_match": 2, "draft": 4},
}
CHAIN = lt.SourceSpec(
    "ngram-mod,ngram-suffix,ngram-cache", {"n_match": 3, "n_min": 1, "min_match": 2}
)
GOLDEN_COUNTS = {
    "n_call_begin": lambda source: source.calls["begin"],
    "n_call_draft": lambda source: source.calls["draft"],
    "n_call_accept": lambda source: source.calls["accept"],
    "n_gen_drafts": lambda source: source.gen_drafts,
    "n_acc_drafts": lambda source: source.acc_drafts,
    "n_gen_tokens": lambda source: source.gen_tokens,
    "n_acc_tokens": lambda source: source.acc_tokens,
    "n_decode": lambda source: source.n_decode,
}


def small_specs() -> list[lt.SourceSpec]:
    return [*(lt.SourceSpec(name, SMALL[name]) for name in SIX), CHAIN]


def text_of(seed: int, n: int = 900, vocab: int = 5) -> np.ndarray:
    return np.array(random_stream(random.Random(seed), n, vocab), np.int32)


def counts(source: SourceReport) -> dict[str, Any]:
    """Everything a report says except how long it took."""
    names = [name for name in SourceReport.__dataclass_fields__ if "seconds" not in name]
    return {name: getattr(source, name) for name in names}


# ---- golden figures


def golden_rows() -> list[dict[str, Any]]:
    lines = (GOLDEN / "other-sources.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def wiki_test() -> np.ndarray:
    return lt.load_tokens(GOLDEN / "wiki.test.smollm2.u16.zst").ids


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["spec_type"])
def test_replay_counts_what_llama_cpp_counts(row: dict[str, Any], wiki_test: np.ndarray) -> None:
    report = lt.replay(
        wiki_test, [lt.SourceSpec(row["spec_type"], row["params"])],
        options=lt.ReplayOptions(
            row["n_ctx"], row["draft_max"], row["n_prompt"], "llama.cpp", row["state"], threads=2
        ),
    )  # fmt: skip
    found = {name: read(report.sources[0]) for name, read in GOLDEN_COUNTS.items()}
    assert found == {name: row[name] for name in GOLDEN_COUNTS}


# ---- identities


def check_identities(source: SourceReport, n_predict: int) -> None:
    accepted, drafted = source.accepted_length_histogram, source.drafted_length_histogram
    assert sum(accepted) == sum(drafted) == source.n_decode == source.calls["draft"]
    assert sum(k * n for k, n in enumerate(accepted)) == source.n_accept == source.acc_tokens
    assert sum(k * n for k, n in enumerate(drafted)) == source.n_drafted == source.gen_tokens
    assert source.n_decode - drafted[0] == source.drafted_steps == source.gen_drafts
    assert source.drafted_steps == source.calls["accept"]
    assert source.n_decode - accepted[0] == source.acc_drafts
    rates = source.accept_per_position
    assert all(first >= second for first, second in pairwise(rates))
    assert sum(rates) * source.gen_drafts == pytest.approx(source.n_accept)
    assert source.n_produced == n_predict - source.calls["begin"]  # the first is given
    assert source.n_produced - source.n_accept <= source.n_decode <= source.n_produced
    if source.tiers is not None:
        assert sum(tier.drafted for tier in source.tiers.values()) == source.n_drafted
        assert sum(tier.accepted for tier in source.tiers.values()) == source.n_accept
    if source.members:
        for name in ("gen_drafts", "acc_drafts", "gen_tokens", "acc_tokens"):
            assert sum(member[name] for member in source.members) == getattr(source, name)


@given(st.integers(0, 2**32), st.sampled_from([1, 3, 8]), st.sampled_from([0, 7]))
def test_row_14_what_is_accepted_was_tested(seed: int, draft_max: int, prompt: int) -> None:
    tokens = text_of(seed, 300)
    report = lt.replay(
        tokens,
        small_specs(),
        options=lt.ReplayOptions(n_ctx=60, draft_max=draft_max, prompt_tokens=prompt),
    )
    for source in report.sources:
        check_identities(source, report.n_predict)


def test_every_source_drafts_something_in_these_tests() -> None:
    for source in lt.replay(text_of(1), small_specs(), options=lt.ReplayOptions(n_ctx=300)).sources:
        assert source.n_accept > 0, source.spec_type


# ---- one session, two ways


def naive_replay(tokens: list[int], drafter: lt.Drafter, n_ctx: int, prompt: int) -> list[int]:
    """drafting.md, section 4, through the Drafter: steps, drafted, accepted."""
    steps = drafted = accepted = 0
    for start in range(0, len(tokens) - n_ctx + 1, n_ctx):
        chunk = tokens[start : start + n_ctx]
        drafter.begin(chunk[:prompt])
        drafter.accept(chunk[prompt : prompt + 1])
        at = prompt + 1
        while at < n_ctx:
            draft = drafter.draft().tolist()
            match = 0
            while match < len(draft) and at + match < n_ctx and draft[match] == chunk[at + match]:
                match += 1
            steps, drafted, accepted = steps + 1, drafted + len(draft), accepted + match
            at += match
            drafter.accept(chunk[at - match : at + 1])
            at += at < n_ctx
    return [steps, drafted, accepted]


@pytest.mark.parametrize("name", SIX)
def test_a_drafter_drafts_what_a_replay_counts(name: str) -> None:
    tokens = text_of(3)
    # ngram-mod and ngram-map keep state over begin(): shared. ngram-cache without a dynamic tier
    # is one chunk, whose context nothing precedes.
    n_ctx = len(tokens) if name == "ngram-cache" else 200
    source = lt.replay(
        tokens,
        [lt.SourceSpec(name, SMALL[name])],
        options=lt.ReplayOptions(n_ctx=n_ctx, state="shared", prompt_tokens=20),
    ).sources[0]
    with lt.Drafter(spec_type=name, n_draft=8, **SMALL[name]) as drafter:
        found = naive_replay(tokens.tolist(), drafter, n_ctx, 20)
    assert found == [source.n_decode, source.n_drafted, source.n_accept]
    assert source.n_accept > 0


def test_a_drafter_may_be_a_chain() -> None:
    chain = "ngram-mod,ngram-suffix"
    with lt.Drafter(spec_type=chain, n_draft=4, n_match=4, n_min=4, min_match=2) as drafter:
        drafter.begin([1, 2, 3, 9, 9, 1, 2])
        assert drafter.draft().tolist() == [3, 9, 9]  # ngram-mod has nothing yet
        assert drafter.accept([3, 9, 9]) == 3
        assert "n_match 4" in drafter.notes[0]


def test_row_19_drafter_k4v_drafts_what_it_chose() -> None:
    """The key is followed three times by one run, then once by another."""
    a, b = [10, 11, 12], [20, 21, 22]
    text = [0, 1, 2, *a, 3, 1, 2, *a, 4, 1, 2, *a, 5, 1, 2, *b, 6, 7, 8, 9, 30, 31, 1, 2]
    for compat, expected in ((None, a), ("llama.cpp", b)):
        with lt.Drafter(spec_type="ngram-map-k4v", size_n=2, size_m=3, compat=compat) as drafter:
            drafter.begin(text[:-1])
            drafter.accept(text[-1:])
            assert drafter.draft().tolist() == expected


@pytest.mark.parametrize("name", ["ngram-map-k", "ngram-map-k4v"])
def test_row_20_a_shorter_prompt_is_no_abort(name: str) -> None:
    tokens = text_of(8, 400).tolist()
    with (
        lt.Drafter(spec_type=name, size_n=2, size_m=3) as drafter,
        lt.Drafter(spec_type=name, size_n=2, size_m=3) as other,
    ):
        drafter.begin(tokens)
        drafter.draft()
        for length in (150, 40, 3, 0):
            drafter.begin(tokens[:length])
            drafter.draft()
        drafter.begin([7, 7, 7, *tokens[:90]])
        other.begin([7, 7, 7, *tokens[:90]])
        assert drafter.draft().tolist() == other.draft().tolist()


# ---- state, threads, repeats, parts


def test_shared_state_lets_ngram_mod_remember_the_chunk_before() -> None:
    tokens = np.tile(np.random.default_rng(1).integers(0, 5000, 500), 3).astype(np.int32)
    spec = lt.SourceSpec("ngram-mod", {"n_match": 16, "n_min": 1})
    fresh, shared = (
        lt.replay(
            tokens, [spec], options=lt.ReplayOptions(n_ctx=500, draft_max=64, state=state)
        ).sources[0]
        for state in ("fresh", "shared")
    )
    assert fresh.n_accept == 0
    assert shared.n_accept > 800
    assert shared.counters["ngram-mod"]["used"] > fresh.counters["ngram-mod"]["used_max"] - 64


def test_ngram_cache_always_begins_anew_whatever_the_state() -> None:
    tokens = text_of(5)
    fresh, shared = (
        lt.replay(tokens, ["ngram-cache"], options=lt.ReplayOptions(n_ctx=100, state=state))
        for state in ("fresh", "shared")
    )
    assert counts(fresh.sources[0]) == counts(shared.sources[0])


@pytest.mark.parametrize("state", ["fresh", "shared"])
def test_threads_and_repeats_change_no_count(state: str) -> None:
    tokens = text_of(6, 3000)
    expected = lt.replay(tokens, small_specs(), options=lt.ReplayOptions(n_ctx=64, state=state))
    for threads, repeats in ((2, 1), (5, 2), (64, 1)):
        found = lt.replay(
            tokens,
            small_specs(),
            options=lt.ReplayOptions(n_ctx=64, state=state, threads=threads, repeats=repeats),
        )
        for mine, theirs in zip(found.sources, expected.sources, strict=True):
            assert counts(mine) == counts(theirs)
            assert len(mine.draft_seconds_runs) == repeats


def test_a_part_is_replayed_as_if_it_were_alone() -> None:
    tokens = text_of(7, 1000)
    parts = [Part("a", 0, 300), Part("b", 300, 301), Part("c", 301, 1000)]
    report = lt.replay(tokens, small_specs(), options=lt.ReplayOptions(n_ctx=200), parts=parts)
    whole = lt.replay(tokens, small_specs(), options=lt.ReplayOptions(n_ctx=200))
    assert [counts(each) for each in report.sources] == [counts(each) for each in whole.sources]
    first, second, third = report.parts
    assert (first.n_tokens, first.n_predict, second.sources) == (300, 300, [])
    alone = lt.replay(tokens[301:901], small_specs(), options=lt.ReplayOptions(n_ctx=200))
    rest = lt.replay(
        tokens[901:],
        [lt.SourceSpec("ngram-simple", SMALL["ngram-simple"])],
        options=lt.ReplayOptions(n_ctx=99),
    )
    at = SIX.index("ngram-simple")
    assert third.sources[at].n_drafted == alone.sources[at].n_drafted + rest.sources[0].n_drafted
    assert third.n_predict == 699
    for source in third.sources:
        check_identities(source, third.n_predict)


def test_a_part_outside_the_text_is_refused() -> None:
    with pytest.raises(ParameterError, match="expected within 500"):
        lt.replay(text_of(1, 500), options=lt.ReplayOptions(n_ctx=100), parts=[Part("a", 400, 501)])


# ---- chains


def test_a_chain_of_one_kind_that_never_drafts_changes_nothing() -> None:
    tokens = text_of(9)
    never = {"spec_ngram_simple_size_n": 1000, "spec_ngram_mod_n_match": 3, "n_min": 1}
    chain = lt.replay(
        tokens,
        [lt.SourceSpec("ngram-simple,ngram-mod", never)],
        options=lt.ReplayOptions(n_ctx=300),
    )
    alone = lt.replay(
        tokens,
        [lt.SourceSpec("ngram-mod", {"n_match": 3, "n_min": 1})],
        options=lt.ReplayOptions(n_ctx=300),
    )
    for name in ("n_decode", "n_drafted", "n_accept", "accepted_length_histogram"):
        assert getattr(chain.sources[0], name) == getattr(alone.sources[0], name)
    silent, busy = chain.sources[0].members
    assert (silent["gen_drafts"], silent["calls_draft"]) == (0, chain.sources[0].n_decode)
    assert busy["acc_tokens"] == chain.sources[0].n_accept


def test_a_chain_names_its_parameters_by_flag() -> None:
    spec = lt.SourceSpec("ngram-simple,ngram-map-k", {"spec_ngram_simple_size_n": 3})
    assert spec.values()["spec_ngram_simple_size_n"] == 3
    assert spec.values()["spec_ngram_map_k_size_n"] == 12
    with pytest.raises(ParameterError, match="--spec-ngram-simple-size-n or --spec-ngram-map-k"):
        lt.SourceSpec("ngram-simple,ngram-map-k", {"size_n": 3})
    with pytest.raises(ParameterError, match="found ngram-mod twice"):
        lt.SourceSpec("ngram-mod,ngram-mod")


# ---- traces


def write_trace(path: Path, drafts: dict[int, list[int]]) -> str:
    rows = [json.dumps({"pos": pos, "draft": draft}) for pos, draft in drafts.items()]
    path.write_text("\n".join(rows) + "\n\n")
    return f"trace:{path}"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_trace_is_replayed_at_its_positions(tmp_path: Path, threads: int) -> None:
    tokens = list(range(100, 160))
    drafts = {
        3: [103, 104, 9], 5: [1], 6: [106], 8: [], 22: [122, 123, 124, 125, 126], 39: [139, 140],
    }  # fmt: skip
    name = write_trace(tmp_path / "t.jsonl", drafts)
    source = lt.replay(
        tokens, [name], options=lt.ReplayOptions(n_ctx=20, draft_max=4, threads=threads)
    ).sources[0]
    # 3: two right, so 5 is skipped; 6 is right; 22 is cut to four; 39 reaches past its chunk
    assert source.n_drafted == 3 + 1 + 4 + 2
    assert source.n_accept == 2 + 1 + 4 + 1
    # 57 tokens to produce, 8 of them accepted; the step at 39 needs no token of the model's own
    assert source.accepted_length_histogram == [57 - 8 + 1 - 4, 2, 1, 0, 1]
    check_identities(source, 60)


def test_a_trace_of_the_truth_is_always_accepted(tmp_path: Path) -> None:
    tokens = text_of(4, 300).tolist()
    name = write_trace(tmp_path / "t.jsonl", {k: tokens[k : k + 3] for k in range(len(tokens))})
    source = lt.replay(
        tokens, [f"ngram-simple,{name}"], options=lt.ReplayOptions(n_ctx=100)
    ).sources[0]
    assert source.accept_rate > 0.98  # the last drafts of a chunk reach past it
    assert source.members[1]["spec_type"] == name


@pytest.mark.parametrize(
    "line",
    [
        '{"pos": 1}', '{"pos": -1, "draft": []}', '{"pos": 1, "draft": [1.5]}', "[]", "{",
        '{"pos": true, "draft": []}', '{"pos": 1, "draft": [2147483648]}',
        '{"pos": 1, "draft": [-1]}', '{"pos": 1, "draft": 3}',
    ],
)  # fmt: skip
def test_a_trace_names_its_bad_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"pos": 0, "draft": [1]}\n' + line + "\n")
    with pytest.raises(FormatError, match=r"t\.jsonl, line 2: found"):
        lt.replay(range(50), [f"trace:{path}"], options=lt.ReplayOptions(n_ctx=20))


def test_a_trace_rises_and_exists(tmp_path: Path) -> None:
    name = write_trace(tmp_path / "t.jsonl", {5: [1], 4: [1]})
    with pytest.raises(FormatError, match="line 2: found position 4 after 5"):
        lt.replay(range(50), [name], options=lt.ReplayOptions(n_ctx=20))
    with pytest.raises(OSError, match="missing"):
        lt.replay(range(50), [f"trace:{tmp_path}/missing"], options=lt.ReplayOptions(n_ctx=20))


# ---- parameters


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in SOURCE_PARAMS for name in SOURCE_PARAMS[kind]]
)
def test_row_22_each_parameter_comes_back_or_is_an_error(kind: str, name: str) -> None:
    param = SOURCE_PARAMS[kind][name]
    others = {"max_match": 1024} if name == "min_match" else {}
    others |= {"min_match": 1} if name == "max_match" else {}
    for value in {param.least, min(param.least + 1, param.largest), param.largest}:
        spec = lt.SourceSpec(kind, {**others, name: value})
        assert spec.values()[name] == value
        assert lt.SourceSpec(kind, {**others, param.stem: value}).values() == spec.values()
        report = lt.replay([1, 2, 3] * 20, [spec], options=lt.ReplayOptions(n_ctx=60))
        assert report.sources[0].params[name] == value
    for value in (param.least - 1, param.largest + 1, -(2**40), 2**40):
        with pytest.raises(ParameterError, match=f"{name}: found {value}, expected {param.least}"):
            lt.SourceSpec(kind, {name: value})
    for value in (True, 3.0, "3"):
        with pytest.raises(ParameterError, match="expected an integer"):
            lt.SourceSpec(kind, {name: value})  # type: ignore[dict-item]


def test_parameters_default_to_the_engines() -> None:
    assert lt.SourceSpec("ngram-mod").values() == {"n_match": 24, "n_min": 48, "n_max": 64}
    assert lt.SourceSpec("ngram-map-k4v").values() == {"size_n": 12, "size_m": 48, "min_hits": 1}
    assert lt.SourceSpec("ngram-suffix").values() == {"draft": 3, "min_match": 3, "max_match": 64}
    flags = [param.flag for param in ALL_PARAMS.values()]
    assert len(set(flags)) == sum(map(len, SOURCE_PARAMS.values()))
    assert "--spec-ngram-map-k4v-min-hits" in flags
    assert len(CACHE_PARAMS) == 18


@pytest.mark.parametrize("name", ["ngram", "trace", "trace:", "ngram-mod:x", "", "ngram-mod,"])
def test_an_unknown_source_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match=r"found spec type .*expected one of ngram-cache"):
        lt.SourceSpec(name)


def test_a_match_cannot_be_longer_than_its_longest() -> None:
    with pytest.raises(ParameterError, match="min_match: found 65, expected at most max_match"):
        lt.SourceSpec("ngram-suffix", {"min_match": 65})


def test_short_matches_of_ngram_mod_are_warned_of() -> None:
    for n_match, warned in ((15, 1), (16, 0)):
        spec = lt.SourceSpec("ngram-mod", {"n_match": n_match})
        report = lt.replay(
            text_of(1, 100), [spec], options=lt.ReplayOptions(n_ctx=100, draft_max=16)
        )
        assert len(report.notes) == warned


def test_drafts_cut_so_short_that_ngram_mod_despairs_are_warned_of() -> None:
    """Accepted tokens are measured against the draft before it was cut."""
    tokens = np.tile(np.random.default_rng(1).integers(0, 5000, 500), 4).astype(np.int32)
    spec = lt.SourceSpec("ngram-mod", {"n_match": 16})
    cut, whole = (
        lt.replay(tokens, [spec], options=lt.ReplayOptions(n_ctx=2000, draft_max=most))
        for most in (15, 16)
    )
    assert cut.sources[0].counters["ngram-mod"]["resets_low"] > 0
    assert whole.sources[0].counters["ngram-mod"]["resets_low"] == 0
    assert "cut to 15" in cut.notes[0]
    assert whole.notes == []
    assert lt.SourceSpec("ngram-suffix").notes() == []


def test_row_21_resets_and_occupancy_of_ngram_mod_are_reported() -> None:
    rng = np.random.default_rng(3)
    good, tokens = rng.integers(100, 200, 4), []
    for _ in range(120):  # the same two tokens, followed by something else each time
        tokens += [*good.tolist(), *rng.integers(200, 100_000, 3).tolist()]
    spec = lt.SourceSpec("ngram-mod", {"n_match": 4, "n_max": 4, "n_min": 1})
    counted = (
        lt.replay(tokens, [spec], options=lt.ReplayOptions(n_ctx=len(tokens)))
        .sources[0]
        .counters["ngram-mod"]
    )
    assert counted["resets_low"] >= 5
    assert counted["resets_full"] == 0
    assert 0 < counted["used"] <= counted["used_max"] <= len(tokens)


def test_bad_options_of_a_replay_are_refused() -> None:
    tokens = text_of(1, 100)
    for options, message in (
        ({"state": "warm"}, "found state 'warm'"),
        ({"threads": 0}, "found threads 0"),
        ({"repeats": 0}, "repeats 0"),
        ({"compat": "vllm"}, "found compat 'vllm'"),
        ({"draft_max": 1025}, "found draft_max 1025, expected 1 to 1024"),
    ):
        with pytest.raises(ParameterError, match=message):
            lt.replay(tokens, options=lt.ReplayOptions(50, **options))  # type: ignore[arg-type]
