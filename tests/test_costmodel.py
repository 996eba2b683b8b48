"""The cost model against a dull one: one step at a time, a Python list of widths."""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lookup_tools as lt
from lookup_tools.drafting.cost_curve import PRESETS, CostCurve
from lookup_tools.engine.drafts import LookupDrafts
from lookup_tools.errors import FormatError, ParameterError
from lookup_tools.evaluation.engine_command import engine_command, engine_notes, off_command
from lookup_tools.evaluation.verify_cost import best, project
from lookup_tools.evaluation.verify_cost_files import read_cost
from lookup_tools.replaying.source_report import SourceReport
from lookup_tools.tokens import TokenInfo
from lookup_tools.tokens.stream import TokenBatch

SCRIPTS = Path(__file__).parents[1] / "scripts"
BATCHED = [
    {"n_kv_max": 4096, "pp": 128, "tg": 32, "pl": pl, "t_pp": 1.0, "t_tg": 32 * seconds}
    for pl, seconds in ((1, 0.02), (2, 0.03), (8, 0.06))
]
OURS = ((1, 0.02), (2, 0.03), (8, 0.06))
BENCH = [
    {"n_prompt": 1, "n_gen": 0, "n_ubatch": 512, "avg_ns": 20_000_000},
    {"n_prompt": 2, "n_gen": 0, "n_ubatch": 512, "avg_ns": 30_000_000},
    {"n_prompt": 8, "n_gen": 0, "n_ubatch": 512, "avg_ns": 60_000_000},
    {"n_prompt": 0, "n_gen": 128, "n_ubatch": 512, "avg_ns": 9},
    {"n_prompt": 1024, "n_gen": 0, "n_ubatch": 512, "avg_ns": 9},
]


def report_of(steps: list[tuple[int, int]], seconds: float = 0.0) -> SourceReport:
    """A report of (drafted, accepted) steps, each with one token of the model's own."""
    most = max([1, *(drafted for drafted, _ in steps)])
    drafted_hist, accepted_hist = [0] * (most + 1), [0] * (most + 1)
    for drafted, accepted in steps:
        drafted_hist[drafted] += 1
        accepted_hist[accepted] += 1
    with_draft = sum(1 for drafted, _ in steps if drafted)
    n_drafted, n_accept = sum(d for d, _ in steps), sum(a for _, a in steps)
    return SourceReport(
        "ngram-suffix", {}, len(steps), len(steps) + n_accept, with_draft, n_drafted, n_accept,
        seconds, 0.0, {"begin": 1, "draft": len(steps), "accept": with_draft}, with_draft,
        sum(1 for _, a in steps if a), n_drafted, n_accept, [], accepted_hist, None, drafted_hist,
    )  # fmt: skip


def dull_cost(points: dict[int, float], width: float) -> float:
    """Linear between the points, numpy's way; beyond them, the last two go on."""
    widths = sorted(points)
    if width > widths[-1] and len(widths) > 1:
        (w0, w1) = widths[-2:]
        return points[w1] + (points[w1] - points[w0]) * (width - w1) / (w1 - w0)
    return float(np.interp(width, widths, [points[w] for w in widths])) / points[1]


tables = st.dictionaries(st.integers(2, 80), st.floats(1, 50), max_size=6).map(
    lambda rest: {1: 1.0, **rest}
)
runs = st.lists(
    st.integers(0, 20).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d))),
    min_size=1, max_size=60,
)  # fmt: skip


@given(tables, runs)
def test_speedup_equals_a_dull_model(table: dict[int, float], steps: list[tuple[int, int]]) -> None:
    curve = CostCurve.of(table.items())
    total = sum(dull_cost(table, 1 + drafted) for drafted, _ in steps)
    produced = sum(1 + accepted for _, accepted in steps)
    found = project(report_of(steps), curve)
    if total > 0:
        assert found.speedup == pytest.approx(produced / total)
        assert found.mean_cost == pytest.approx(total / len(steps))
    n_drafted = sum(drafted for drafted, _ in steps)
    if n_drafted and total > 0:
        mean = n_drafted / sum(1 for drafted, _ in steps if drafted)
        assert found.mean_draft == pytest.approx(mean)
        below = int(mean)
        low, high = dull_cost(table, 1 + below), dull_cost(table, 2 + below)
        at_mean = low + (high - low) * (mean - below)
        assert found.break_even_rate == pytest.approx((at_mean - 1) / mean)
        assert found.break_even_rate_exact == pytest.approx((total - len(steps)) / n_drafted)
        accepted = (produced - len(steps)) / n_drafted
        if abs(found.speedup - 1) > 1e-9:  # on which side of break-even one is
            assert (accepted > found.break_even_rate_exact) == (found.speedup > 1)


def test_break_even_worked_example() -> None:
    """Every step drafts three tokens; a batch of four costs 3.0: two must be accepted."""
    curve = CostCurve.of([(1, 1.0), (4, 3.0)])
    even = project(report_of([(3, 2)] * 10), curve)
    assert even.speedup == pytest.approx(1.0)
    assert even.break_even_rate == pytest.approx(2 / 3)
    assert not even.pays
    assert project(report_of([(3, 3)] * 10), curve).speedup == pytest.approx(4 / 3)


# min_match, draft: accepted %, coverage %, tok/s of a plain 5.55 (drafting.md, section 7)
BMOE = {(3, 3): (44.2, 15.0, 5.24), (5, 3): (71.8, 5.7, 5.31), (8, 3): (75.0, 3.4, 5.49),
        (5, 1): (82.6, 9.7, 5.56)}  # fmt: skip


@pytest.mark.parametrize("row", BMOE)
def test_the_moe_example_says_off_where_bmoe_measured_it(row: tuple[int, int]) -> None:
    accepted, coverage, speed = BMOE[row]
    draft, steps = row[1], 100_000
    with_draft = round(steps * coverage / 100)
    n_accept = round(with_draft * draft * accepted / 100)
    right = [(draft, draft)] * (n_accept // draft)
    plan = [*right, *[(draft, 0)] * (with_draft - len(right)), *[(0, 0)] * (steps - with_draft)]
    found = project(report_of(plan), read_cost("moe"))
    assert found.speedup == pytest.approx(speed / 5.55, rel=0.07)
    assert not found.pays


def test_what_rounds_to_one_does_not_pay() -> None:
    curve = CostCurve.of([(1, 1.0), (2, 1.0)])
    nothing = project(report_of([(0, 0)] * 1000 + [(1, 1)] * 4), curve)
    assert 1 < nothing.speedup < 1.005
    assert not nothing.pays
    assert best([(report_of([(0, 0)]), nothing)]) is None
    good = report_of([(1, 1)])
    assert best([(report_of([(0, 0)]), nothing), (good, project(good, curve))]) is good


def test_no_steps_and_no_drafts_are_no_division_by_zero() -> None:
    curve = read_cost("dense")
    for steps in ([], [(0, 0)]):
        found = project(report_of(steps), curve)
        assert (found.speedup, found.mean_draft, found.break_even_rate) == (1.0, 0.0, 0.0)


def test_tokens_per_second_pays_for_drafting_too() -> None:
    source = report_of([(1, 1)] * 100, seconds=2.0)  # 200 tokens, 10 ms each for drafting
    found = project(source, CostCurve.of([(1, 1.0), (2, 1.0)]), 25.0)
    assert found.tokens_per_second == pytest.approx(50.0)
    assert found.effective_tokens_per_second == pytest.approx(1 / (1 / 50 + 0.01))


def test_widths_beyond_the_curve_are_counted() -> None:
    curve = CostCurve.of([(1, 1.0), (2, 2.0), (4, 3.0)])
    found = project(report_of([(0, 0), (3, 0), (4, 0), (8, 0)]), curve)
    assert found.extrapolated_steps == 2
    assert curve.at(9) == pytest.approx(5.5)


# ---- reading curves


@pytest.mark.parametrize(
    "text",
    [
        "1:1,2:1.5,8:3",
        " 8:6 , 1:2, 2:3.0",
        json.dumps([{"width": w, "cost": s} for w, s in OURS]),
        json.dumps({"points": [{"width": w, "seconds": s} for w, s in OURS]}),
        json.dumps(BATCHED),
        "\n".join(json.dumps(row) for row in BATCHED),
        json.dumps(BENCH),
    ],
)  # fmt: skip
def test_every_form_gives_the_same_curve(tmp_path: Path, text: str) -> None:
    given = text
    if ":" not in text or text[0] in "{[":
        path = tmp_path / "curve"
        path.write_text(text)
        given = str(path)
    curve = read_cost(given)
    assert [(w, pytest.approx(c)) for w, c in ((1, 1), (2, 1.5), (8, 3))] == list(curve.points)
    assert curve.at(5) == pytest.approx(2.25)
    assert not curve.is_example


def test_a_bench_knows_the_plain_speed(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in BATCHED))
    assert read_cost(str(path)).tokens_per_second == pytest.approx(50)
    assert read_cost("1:1,2:2").tokens_per_second is None


def test_repeated_widths_count_as_their_median(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    rows = [(1, 2), (1, 1), (1, 9), (2, 4)]
    path.write_text(json.dumps([{"width": width, "seconds": cost} for width, cost in rows]))
    assert read_cost(str(path)).points == ((1, 1.0), (2, 2.0))


def test_a_curve_whose_last_cost_falls_does_not_end_below_zero() -> None:
    curve = CostCurve.of([(1, 1.0), (2, 2.0), (3, 1.5)])
    assert [curve.at(width) for width in (2, 3, 4, 1024)] == [2.0, 1.5, 1.5, 1.5]


def test_presets_are_labelled_examples() -> None:
    for name in PRESETS:
        curve = read_cost(name)
        assert curve.is_example
        costs = [curve.at(width) for width in range(1, 65)]
        assert costs == sorted(costs)
    assert read_cost("moe").at(4) > 2 * read_cost("dense").at(4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "found verify cost 'fast', expected a preset"),
        ("2:1,3:2", "found no cost of width 1"),
        ("1:1,2:0", "found cost 0.0 at width 2"),
        ("1:1,0:2", "found cost 2.0 at width 0"),
        ("1:1,2:1,2:2", "found a width twice"),
        ("1:1,2:1e", "found verify cost"),
    ],
)
def test_a_bad_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_cost(text)


@pytest.mark.parametrize("text", ["", "{}", "[]", "a,b\n1,2\n", "hello", '{"points": []}'])
def test_a_file_without_a_curve_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "no"
    path.write_text(text)
    with pytest.raises(FormatError, match="no: found no widths and costs, expected"):
        read_cost(str(path))


@pytest.mark.parametrize("text", ['{"width": "one", "cost": 1}', '{"width": 1e400, "cost": 1}'])
def test_a_file_without_numbers_where_they_belong_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "no"
    path.write_text(text)
    with pytest.raises(FormatError, match="expected numbers"):
        read_cost(str(path))


# ---- command lines


def test_commands_are_the_engines() -> None:
    assert engine_command(lt.SourceSpec("ngram-mod", {"n_match": 16}), model="m y.gguf") == (
        "llama-server -m 'm y.gguf' --spec-type ngram-mod --spec-ngram-mod-n-match 16 "
        "--spec-ngram-mod-n-min 48 --spec-ngram-mod-n-max 64"
    )
    assert engine_command(lt.SourceSpec("ngram-suffix")) == (
        "bmoe -m MODEL.gguf --ngram --draft 3 --ngram-min-match 3 --ngram-max-match 64"
    )
    chain = engine_command(lt.SourceSpec("ngram-map-k,ngram-cache"), static="a.lcs")
    assert chain is not None
    assert "--spec-type ngram-map-k,ngram-cache --spec-ngram-map-k-size-n 12" in chain
    assert chain.endswith("-lcs a.lcs")
    assert engine_command(lt.SourceSpec("ngram-mod,ngram-suffix")) is None
    assert engine_command(lt.SourceSpec("ngram-adaptive"), static="a b.lcs") == (
        "llama-server -m MODEL.gguf --spec-type lookup -lcs 'a b.lcs'"
    )
    assert engine_command(lt.SourceSpec("ngram-adaptive,ngram-mod")) is None
    assert engine_notes(lt.SourceSpec("ngram-adaptive"), 16) == [
        "--spec-type lookup is in the llama-server that `make engines` builds"
    ]
    assert "--lookup-n-max 63" in engine_notes(lt.SourceSpec("ngram-adaptive"), 63)[-1]
    assert off_command() == "llama-server -m MODEL.gguf --spec-type none"


def test_what_the_engine_does_otherwise_is_said() -> None:
    assert (
        "makes 48: replay with --draft-max 48" in engine_notes(lt.SourceSpec("ngram-simple"), 8)[0]
    )
    assert engine_notes(lt.SourceSpec("ngram-simple"), 48) == []
    assert engine_notes(lt.SourceSpec("ngram-cache"), 8) == []
    assert "up to 8 tokens, not 16" in engine_notes(lt.SourceSpec("ngram-cache"), 16)[0]
    tuned = lt.SourceSpec("ngram-cache", {"static_samples": 3})
    assert "built in" in engine_notes(tuned, 8)[0]


# ---- the measuring script, with an engine of ours


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Parrot:
    """An engine that always says the successor of the last token, modulo 7, and notes its calls."""

    def __init__(self, log: list[str]) -> None:
        self.n, self.n_ctx, self.log = 0, 1000, log

    def prefill(self, tokens: list[int]) -> int:
        self.n = len(tokens)
        self.log.append("prefill")
        return (tokens[-1] + 1) % 7

    def decode(self, tokens: list[int]) -> list[int]:
        self.n += len(tokens)
        self.log.append(f"decode {len(tokens)}")
        return [(token + 1) % 7 for token in tokens]

    def keep(self, n: int) -> None:
        assert n <= self.n
        self.n = n

    def ends(self, token: int) -> bool:
        return False


def test_row_26_the_baseline_pays_for_no_drafting() -> None:
    """Plain decoding runs first, one token a batch, before a drafter or a cache is opened."""
    script = load_script("measure_verify_cost")
    log: list[str] = []

    @contextmanager
    def make_drafts() -> Any:
        log.append("open")
        with LookupDrafts(spec_type="ngram-suffix", n_draft=4, min_match=2) as drafts:
            yield drafts
        log.append("close")

    prompt = [0, 1, 2, 3, 4, 5, 6] * 3
    found = script.compare(Parrot(log), [prompt, prompt[:15]], 20, make_drafts)
    opened, closed = log.index("open"), log.index("close")
    assert log[:opened] == ["prefill"] + ["decode 1"] * 19
    assert log[closed + 1 : closed + 21] == ["prefill"] + ["decode 1"] * 19
    assert found.same_text == 2
    assert found.plain_decodes == 38
    assert found.drafted_decodes < 20
    # the replay of what was said takes the same steps
    curve = CostCurve.of([(1, 1.0), (2, 1.0)])
    spec = lt.SourceSpec("ngram-suffix", {"min_match": 2})
    guess = script.projected(found, spec, 4, curve, None)
    assert guess == pytest.approx(38 / found.drafted_decodes, rel=0.05)


def test_a_change_of_width_belongs_to_the_wide_batch() -> None:
    """An engine that takes w + 3 seconds for w tokens, and 2 more where the width changes: a wide
    batch costs both changes, plain decoding none."""
    script = load_script("measure_verify_cost")

    class Clockwork:
        now, width, n = 0.0, 0, 0

        def prefill(self, tokens: list[int]) -> None:
            self.run(tokens)

        def run(self, tokens: list[int]) -> None:
            self.now += len(tokens) + 3 + (2 if len(tokens) != self.width else 0)
            self.width, self.n = len(tokens), self.n + len(tokens)

        def keep(self, n: int) -> None:
            self.n = n

    engine = Clockwork()
    found = script.timed_widths(engine, list(range(600)), 512, 3, lambda: engine.now)
    assert found == {width: width + 3 + (4 if width > 1 else 0) for width in script.WIDTHS}
    assert engine.n == 512


def test_convert_reads_a_bench(tmp_path: Path) -> None:
    from click.testing import CliRunner

    script = load_script("measure_verify_cost")
    source, output = tmp_path / "b.jsonl", tmp_path / "c.json"
    source.write_text("\n".join(json.dumps(row) for row in BATCHED))
    result = CliRunner().invoke(script.main, ["convert", str(source), "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert read_cost(str(output)).points == read_cost(str(source)).points
    assert read_cost(str(output)).tokens_per_second == pytest.approx(50)


def test_a_constmap_is_converted_for_the_engine(tmp_path: Path) -> None:
    """Stock engines read legacy files only."""
    tokens = np.array([1, 2, 3, 1, 2, 3], np.int32)
    batch = TokenBatch(tokens, np.array([6]))
    made = {}
    for fmt in ("constmap", "legacy"):
        path = tmp_path / f"a.{fmt}"
        lt.create_from_tokens([batch], TokenInfo(10), path, lt.CreateOptions(fmt=fmt))
        made[fmt] = engine_command(lt.SourceSpec("ngram-cache"), static=str(path))
    constmap = tmp_path / "a.constmap"
    assert made["constmap"] == (
        f"lookup-merge {constmap} -o {constmap}.legacy --format legacy && "
        f"llama-server -m MODEL.gguf --spec-type ngram-cache -lcs {constmap}.legacy"
    )
    assert made["legacy"] == (
        f"llama-server -m MODEL.gguf --spec-type ngram-cache -lcs {tmp_path / 'a.legacy'}"
    )
