"""lookup-stats from the command line: sources, cost, sweep, tuning, parts, files."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from helpers import TEXT, count_documents, random_stream, write_counts

from lookup_tools.cli.stats import main
from lookup_tools.drafting.params import ALL_PARAMS, SOURCE_PARAMS

SIX = [name for name in SOURCE_PARAMS if name not in ("trace", "ngram-adaptive")]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "text.u16"
    np.array(random_stream(random.Random(1), 2000, 12), "<u2").tofile(path)
    return path


def stats(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def stats_json(*arguments: object) -> Any:
    result = stats(*arguments, "--json", "-", "--quiet")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def many(names: list[str]) -> list[str]:
    return [word for name in names for word in ("--spec-type", name)]


def test_several_sources_replay_the_same_tokens(tokens: Path) -> None:
    body = stats_json("--tokens", tokens, "-c", 200, *many([*SIX, "ngram-mod,ngram-suffix"]))
    assert [source["spec_type"] for source in body["sources"]] == [*SIX, "ngram-mod,ngram-suffix"]
    for source in body["sources"]:
        assert source["n_produced"] == body["replay"]["n_predict"] - body["replay"]["n_chunks"]
        assert sum(source["accepted_length_histogram"]) == source["n_decode"]
        assert sum(source["drafted_length_histogram"]) == source["n_decode"]
        assert (
            sum(k * n for k, n in enumerate(source["accepted_length_histogram"]))
            == source["n_accept"]
        )
        assert (
            sum(k * n for k, n in enumerate(source["drafted_length_histogram"]))
            == source["n_drafted"]
        )
        rates = source["accept_per_position"]
        assert rates == sorted(rates, reverse=True)
        tiers = source["tiers"]
        assert (tiers is not None) == (source["spec_type"] == "ngram-cache")
        if tiers:
            assert sum(tier["drafted"] for tier in tiers.values()) == source["n_drafted"]
        assert source["speedup"] is None
    assert [len(source["members"]) for source in body["sources"]] == [0] * 6 + [2]
    assert (body["verdict"], body["sweep"], body["parts"], body["tune"]) == (None, [], [], None)


def test_every_parameter_is_a_flag_that_arrives(tokens: Path) -> None:
    given = {name: min(param.default + 1, param.largest) for name, param in ALL_PARAMS.items()}
    given["draft"] = 5
    words = [
        word for name, value in given.items() for word in ALL_PARAMS[name].setting(value).split()
    ]
    body = stats_json("--tokens", tokens, "-c", 500, *many([*SIX, "ngram-adaptive"]), *words)
    for source in body["sources"]:
        own = SOURCE_PARAMS[source["spec_type"]]
        assert source["params"] == {name: given[param.stem] for name, param in own.items()}


@pytest.mark.parametrize(("name", "param"), ALL_PARAMS.items())
def test_row_22_flags_outside_their_range_are_usage_errors(
    tokens: Path, name: str, param: Any
) -> None:
    for value in (param.least - 1, param.largest + 1):
        result = stats("--tokens", tokens, *param.setting(value).split())
        assert result.exit_code == 2
        assert param.flag in result.stderr


def test_a_flag_nobody_uses_is_an_error(tokens: Path) -> None:
    result = stats("--tokens", tokens, "--spec-ngram-mod-n-match", 16)
    assert result.exit_code == 1
    assert "found --spec-ngram-mod-n-match without a source that has it" in result.stderr


def test_the_lines_people_parse(tokens: Path) -> None:
    flags = ["--ngram-min-match", 2, "--verify-cost", "1:1,9:1", "--tokens-per-second", 10]
    result = stats("--tokens", tokens, "-c", 200, "--spec-type", "ngram-suffix", *flags, "--quiet")
    lines = result.stdout.splitlines()
    names = ["n_draft", "n_predict", "n_drafted", "t_draft_flat", "t_draft", "n_accept", "accept"]
    at = next(k for k, line in enumerate(lines) if line.startswith("n_draft  "))
    assert [line.split("=")[0].strip() for line in lines[at : at + 7]] == names
    line = next(line for line in lines if line.startswith("statistics ngram_suffix: #calls(b,g,a)"))
    assert ", #gen drafts = " in line
    assert line.endswith(" ms")
    accepted, speed, coverage = [line for line in lines if line.startswith("ngram: ")]
    assert " drafts accepted (" in accepted
    assert " tokens per verify decode (" in accepted
    assert "ngram: drafting costs 0.0000 s/token on top of decode -> " in speed
    assert " tok/s effective (vs " in speed
    assert coverage.endswith("%); the rest decoded plainly")


def test_the_verdict_is_the_first_line(tokens: Path) -> None:
    base = ["--tokens", tokens, "-c", 200, "--quiet"]
    off = stats(*base, "--verify-cost", "1:1,2:2,9:9").stdout.splitlines()
    assert off[0].startswith(
        "off: nothing beats decoding without drafts; the best of 1, ngram-cache"
    )
    assert off[1] == "run: llama-server -m MODEL.gguf --spec-type none"
    best = stats(*base, "--verify-cost", "1:1,9:1").stdout.splitlines()
    assert best[0].startswith("best: ngram-cache (draft-max 8), projected speedup ")
    assert best[1] == "run: llama-server -m MODEL.gguf --spec-type ngram-cache"
    example = stats(*base, "--verify-cost", "moe").stdout
    assert "verify cost moe, an example: measure your own" in example.splitlines()[0]


def test_a_sweep_is_ranked_and_written(tokens: Path, tmp_path: Path) -> None:
    sweep = ["--sweep", "ngram-suffix:ngram-min-match=2..4,draft=1,3"]
    arguments = ["--tokens", tokens, "-c", 200, "--verify-cost", "dense", *sweep]
    result = stats(*arguments, "--csv", tmp_path / "a.csv", "--quiet")
    rows = [line for line in result.stdout.splitlines() if "ngram-suffix:ngram-min-match=" in line]
    speedups = [float(line.split()[3]) for line in rows]
    assert len(rows) == 6
    assert speedups == sorted(speedups, reverse=True)
    written = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert len(written) == 7
    body = stats_json(*arguments)
    assert [point["speedup"] for point in body["sweep"]] == [
        pytest.approx(float(row["speedup"])) for row in written[1:]
    ]
    assert body["verdict"]["speedup"] == max(
        [source["speedup"] for source in body["sources"] + body["sweep"]]
    )
    assert body["verdict"]["n_tried"] == 7


def test_tuning_reports_on_what_it_did_not_see(tokens: Path, tmp_path: Path) -> None:
    arguments = ["--tokens", tokens, "-c", 200, "--verify-cost", "moe"]
    halves = stats_json(*arguments, "--tune")["tune"]
    assert (halves["tuned_tokens"], halves["reported_tokens"]) == (1000, 1000)
    other = tmp_path / "other.u16"
    np.array(random_stream(random.Random(2), 600, 12), "<u2").tofile(other)
    result = stats(*arguments, "--tune-text", other, "--quiet")
    assert "settings tried on 600 tokens" in result.stdout
    assert "reported on 2,000 more" in result.stdout
    flags = next(line for line in result.stdout.splitlines() if line.startswith("flags: "))
    again = stats("--tokens", tokens, "-c", 200, *flags.removeprefix("flags: ").split())
    assert again.exit_code == 0, again.output
    without = stats("--tokens", tokens, "-c", 200, "--tune")
    assert without.exit_code == 1
    assert "found --tune without --verify-cost" in without.stderr


def test_several_caches_are_measured_beside_each_other(tokens: Path, tmp_path: Path) -> None:
    ids = np.fromfile(tokens, "<u2").tolist()
    for name, part in (("a.lcs", ids[:500]), ("b.lcs", ids)):
        write_counts(tmp_path / name, count_documents([part]))
    both = ["-lcs", tmp_path / "a.lcs", "-lcs", tmp_path / "b.lcs"]
    body = stats_json(
        "--tokens", tokens, "-c", 500, *both, *many(["ngram-cache", "ngram-suffix"]), "--repeats", 2
    )
    paths = [source["static_path"] for source in body["sources"]]
    assert paths == [str(tmp_path / "a.lcs"), str(tmp_path / "b.lcs"), None]
    assert [facts["path"] for facts in body["statics"]] == paths[:2]
    assert body["static"] == body["statics"][0]
    assert len(body["sources"][0]["draft_seconds_runs"]) == 2
    for at, name in enumerate(("a.lcs", "b.lcs")):
        alone = stats_json("--tokens", tokens, "-c", 500, "-lcs", tmp_path / name)["sources"][0]
        assert body["sources"][at]["n_accept"] == alone["n_accept"]


def test_parts_by_file_and_by_document(model: Path, tmp_path: Path) -> None:
    prose, code = tmp_path / "prose.txt", tmp_path / "code.txt"
    prose.write_text(TEXT)
    code.write_text("def f(x):\n    return x\n\n" * 40)
    files = ["-m", model, "-f", prose, "-f", code, "-c", 100]
    body = stats_json(*files, "--by-file", "--spec-type", "ngram-suffix")
    assert [part["name"] for part in body["parts"]] == [str(prose), str(code)]
    assert sum(part["n_tokens"] for part in body["parts"]) == body["replay"]["n_tokens"]
    alone = stats_json(
        "-m", model, "-f", code, "-c", 100, "--by-file", "--spec-type", "ngram-suffix"
    )
    code_part = body["parts"][1]["sources"][0]
    assert code_part["n_accept"] == alone["parts"][0]["sources"][0]["n_accept"]
    lines = stats_json(*files, "--documents", "line", "--by-document")
    n_lines = TEXT.count("\n") + 80  # blank lines are no documents
    assert len(lines["parts"]) == n_lines
    assert sum(part["n_tokens"] for part in lines["parts"]) == lines["replay"]["n_tokens"]
    text = stats(*files, "--by-file", "--csv", tmp_path / "p.csv", "--quiet").stdout
    assert "each part by itself" in text
    rows = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text())))
    assert [row["part"] for row in rows] == ["", str(prose), str(code)]
    wrong = stats("--tokens", tmp_path / "x.u16", "--by-file")
    assert wrong.exit_code == 1
    assert "found --by-file without -f" in wrong.stderr


def test_a_trace_and_threads_and_state(tokens: Path, tmp_path: Path) -> None:
    ids = np.fromfile(tokens, "<u2").tolist()
    trace = tmp_path / "head.jsonl"
    rows = [json.dumps({"pos": k, "draft": ids[k : k + 2]}) for k in range(0, len(ids), 3)]
    trace.write_text("\n".join(rows))
    arguments = ["--tokens", tokens, "-c", 100, *many([f"trace:{trace}", "ngram-map-k"])]
    one, two = (stats_json(*arguments, "--threads", n) for n in (1, 2))
    assert one["sources"][0]["accept_rate"] > 0.95
    for mine, theirs in zip(one["sources"], two["sources"], strict=True):
        assert mine["accepted_length_histogram"] == theirs["accepted_length_histogram"]
    shared = stats_json(*arguments, "--state", "shared", "--compat", "llama.cpp")
    assert shared["replay"]["n_chunks"] == one["replay"]["n_chunks"] - 1  # 2000 is a multiple
    assert (shared["replay"]["state"], one["replay"]["state"]) == ("shared", "fresh")


def test_notes_go_to_stderr(tokens: Path) -> None:
    arguments = ["--tokens", tokens, "-c", 200, "--spec-type", "ngram-mod"]
    loud = stats(*arguments, "--spec-ngram-mod-n-match", 8)
    assert "note: ngram-mod with n_match 8" in loud.stderr
    assert "note:" not in stats(*arguments, "--spec-ngram-mod-n-match", 8, "--quiet").stderr


def test_figures_and_page_are_written_whole_or_not_at_all(tokens: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page, plot = tmp_path / "a.html", tmp_path / "a.svg"
    arguments = [
        "--tokens",
        tokens,
        "-c",
        200,
        "--spec-type",
        "ngram-cache",
        "--verify-cost",
        "moe",
    ]
    assert stats(*arguments, "--html", page, "--plot", plot).exit_code == 0
    assert page.read_text().startswith("<!doctype html>")
    assert plot.read_text().lstrip().startswith("<?xml")
    again = stats(*arguments, "--html", page)
    assert again.exit_code == 1
    assert "a.html" in again.stderr
    assert stats(*arguments, "--html", page, "--force").exit_code == 0
    wrong = stats(*arguments, "--plot", tmp_path / "a.jpg")
    assert wrong.exit_code == 1
    assert not (tmp_path / "a.jpg").exists()
