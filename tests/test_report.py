"""Results as people and scripts read them."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from pathlib import Path

import pytest
from helpers import count_documents, create_from, random_stream, write_counts

from lookup_tools import ReplayOptions, merge_caches, open_cache, replay
from lookup_tools.cache.load_cost import load_cache
from lookup_tools.reports.builds import (
    create_json,
    create_text,
    merge_json,
    merge_text,
    source_json,
    stats_csv,
    stats_json,
    stats_text,
    to_json,
)

CREATE_KEYS = {
    "output",
    "format",
    "kind",
    "n_tokens",
    "n_ngrams",
    "n_pairs",
    "file_bytes",
    "seconds",
    "peak_rss_bytes",
    "tokenizer",
}
MERGE_KEYS = {
    "output",
    "format",
    "inputs",
    "n_ngrams",
    "n_pairs",
    "file_bytes",
    "seconds",
    "peak_rss_bytes",
    "updated",
}
CACHE_KEYS = {
    "path",
    "format",
    "file_bytes",
    "n_ngrams",
    "n_pairs",
    "load_mode",
    "load_seconds",
    "private_bytes",
    "resident_bytes",
}
REPLAY_KEYS = {"n_tokens", "n_ctx", "n_chunks", "n_predict", "n_prompt", "draft_max"}
SOURCE_KEYS = {
    "spec_type",
    "params",
    "n_decode",
    "drafted_steps",
    "n_drafted",
    "n_accept",
    "accept_rate",
    "tokens_per_decode",
    "mean_accepted",
    "draft_seconds",
    "us_per_drafted_token",
    "us_per_step",
    "calls",
    "gen_drafts",
    "acc_drafts",
    "gen_tokens",
    "acc_tokens",
    "accept_per_position",
    "accepted_length_histogram",
    "tiers",
    "speedup",
}

STREAM = random_stream(random.Random(1), 3000, 40)


def test_json_of_a_build(tmp_path: Path) -> None:
    report = create_from(tmp_path / "out", [STREAM])
    body = json.loads(to_json(create_json(report)))
    assert body.keys() >= CREATE_KEYS
    assert body["seconds"].keys() == {"tokenize", "count", "build", "write", "total"}
    assert all(value >= 0 for value in body["seconds"].values())
    parts = [body["seconds"][name] for name in ("tokenize", "count", "build", "write")]
    assert sum(parts) == pytest.approx(body["seconds"]["total"])
    assert body["tokenizer"].keys() == {"fingerprint", "vocab_size"}
    assert body["n_tokens"] == 3000
    assert body["file_bytes"] == (tmp_path / "out").stat().st_size
    assert body["peak_rss_bytes"] > 10_000_000


def test_text_of_a_build(tmp_path: Path) -> None:
    report = create_from(tmp_path / "out", [STREAM])
    said = create_text(report)
    assert said.startswith(
        f"{tmp_path / 'out'}: {report.n_ngrams:,} n-grams, {report.n_pairs:,} pairs from 3,000 "
    )
    assert len(said.splitlines()) == 2


def test_merging(tmp_path: Path) -> None:
    write_counts(tmp_path / "a", {(1, 2): {3: 1}}, "legacy")
    write_counts(tmp_path / "b", {(1, 2): {3: 1}, (2, 2): {2: 1}}, annex=False)
    report = merge_caches([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    body = json.loads(to_json(merge_json(report)))
    assert body.keys() >= MERGE_KEYS
    assert body["seconds"].keys() >= {"total"}
    assert [
        each.keys() >= {"path", "format", "n_ngrams", "n_pairs"} for each in body["inputs"]
    ] == [True, True]
    assert [(each["format"], each["n_ngrams"], each["n_pairs"]) for each in body["inputs"]] == [
        ("legacy", 1, 1),
        ("constmap", 2, 2),
    ]
    said = merge_text(report).splitlines()
    assert len(said) == 3
    assert "keys recovered by" in said[1]
    assert "2 n-grams, 2 pairs" in said[2]


@pytest.fixture
def static_path(tmp_path: Path) -> Path:
    write_counts(tmp_path / "static", count_documents([random_stream(random.Random(2), 3000, 40)]))
    return tmp_path / "static"


def test_json_of_a_replay(static_path: Path) -> None:
    loaded = load_cache(static_path, "static")
    with loaded.cache:
        report = replay(STREAM, static=loaded.cache, options=ReplayOptions(n_ctx=500))
        body = json.loads(to_json(stats_json(report, loaded, None, 123)))
    assert body.keys() >= {"static", "dynamic", "replay", "sources"}
    assert body["static"].keys() >= CACHE_KEYS
    assert body["dynamic"] is None
    assert body["replay"].keys() >= REPLAY_KEYS
    (source,) = body["sources"]
    assert source.keys() >= SOURCE_KEYS
    assert source["calls"].keys() == {"begin", "draft", "accept"}
    assert source["tiers"].keys() == {"context", "dynamic", "static"}
    assert all(tier.keys() == {"drafted", "accepted"} for tier in source["tiers"].values())
    assert source["speedup"] is None
    assert source["n_accept"] / source["n_drafted"] == source["accept_rate"]
    assert "NaN" not in to_json(body)


def test_llama_lookup_stats_lines(static_path: Path) -> None:
    """drafting.md, section 7: names, order and units as people parse them."""
    with open_cache(static_path) as static:
        report = replay(STREAM, static=static, options=ReplayOptions(n_ctx=500))
    said = stats_text(report, 0.0125)
    source = report.sources[0]
    number = r"\d+\.\d\d"
    expected = [
        r"n_draft      = 8",
        rf"n_predict    = {report.n_predict}",
        rf"n_drafted    = {source.n_drafted}",
        r"t_draft_flat = 12\.50 ms",
        rf"t_draft      = {number} ms, {number} us per token, {number} tokens per second",
        rf"n_accept     = {source.n_accept}",
        rf"accept       = {100 * source.accept_rate:.3f}%",
    ]
    assert re.search("\n".join(expected), said)
    for tier in ("context", "dynamic", "static"):
        assert re.search(rf"^tier {tier} +=", said, re.MULTILINE)


def test_llama_cpps_statistics_line() -> None:
    report = replay(STREAM, options=ReplayOptions(n_ctx=500, draft_max=3))
    source = report.sources[0]
    calls = " ".join(str(source.calls[name]) for name in ("begin", "draft", "accept"))
    rates = ", ".join(f"{rate:.3f}" for rate in source.accept_per_position)
    line = next(
        line for line in stats_text(report, 0).splitlines() if line.startswith("statistics ")
    )
    assert line.startswith(
        f"statistics ngram_cache: #calls(b,g,a) = {calls}, #gen drafts = {source.gen_drafts}, "
        f"#acc drafts = {source.acc_drafts}, #gen tokens = {source.gen_tokens}, "
        f"#acc tokens = {source.acc_tokens}, #mean acc len = {source.mean_accepted:.2f}, "
        f"#acc rate/pos = ({rates}), "
    )
    assert re.search(r"dur\(b,g,a\) = \d+\.\d{3}, \d+\.\d{3}, \d+\.\d{3} ms$", line)


def test_no_draft_at_all_is_no_nan() -> None:
    report = replay(list(range(200)), options=ReplayOptions(n_ctx=100))
    said = stats_text(report, 0)
    assert "nan" not in said.lower()
    assert "accept       = 0.000%" in said
    assert "#mean acc len" not in said  # llama.cpp leaves it out without an accept call
    assert "nan" not in stats_csv(report)
    body = source_json(report.sources[0])
    assert (body["accept_rate"], body["us_per_drafted_token"]) == (0, 0)


def test_csv_has_one_row_a_source() -> None:
    report = replay(STREAM, ["ngram-cache", "ngram-cache"], options=ReplayOptions(n_ctx=500))
    rows = list(csv.DictReader(io.StringIO(stats_csv(report))))
    assert len(rows) == 2
    for row, source in zip(rows, report.sources, strict=True):
        assert row["spec_type"] == "ngram-cache"
        assert int(row["n_drafted"]) == source.n_drafted
        assert int(row["context_accepted"]) == source.tiers["context"].accepted  # type: ignore[index]
        assert [
            int(n) for n in row["accepted_length_histogram"].split()
        ] == source.accepted_length_histogram
        assert json.loads(row["params"])["static_samples"] == 2
