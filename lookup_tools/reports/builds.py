"""Results as text for people, lines for scripts, JSON and CSV."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from lookup_tools.building.create import CreateReport
from lookup_tools.building.merge import MergeReport
from lookup_tools.reports.stats_data import source_json, stats_csv, stats_json
from lookup_tools.reports.stats_text import statistics_line, stats_text

__all__ = [
    "create_json",
    "create_text",
    "merge_json",
    "merge_text",
    "source_json",
    "statistics_line",
    "stats_csv",
    "stats_json",
    "stats_text",
    "to_json",
]


def create_json(report: CreateReport) -> dict[str, Any]:
    """The JSON of lookup-create."""
    body = asdict(report)
    body["tokenizer"] = {
        "fingerprint": body.pop("fingerprint"),
        "vocab_size": body.pop("vocab_size"),
    }
    body["notes"] = list(report.notes)
    return body


def create_text(report: CreateReport) -> str:
    seconds = report.seconds
    return (
        f"{report.output}: {report.n_ngrams:,} n-grams, {report.n_pairs:,} pairs "
        f"from {report.n_tokens:,} tokens, "
        f"{report.file_bytes / 1e6:,.1f} MB ({report.format}, {report.kind})\n"
        f"{seconds.total:.2f} s (tokenize {seconds.tokenize:.2f}, count {seconds.count:.2f}, "
        f"build {seconds.build:.2f}, write {seconds.write:.2f}), "
        f"peak memory {report.peak_rss_bytes / 1e6:,.0f} MB"
    )


def merge_json(report: MergeReport) -> dict[str, Any]:
    """The JSON of lookup-merge."""
    body = asdict(report)
    body["seconds"] = {"total": body.pop("total_seconds")}
    body["inputs"] = [dict(each) for each in body["inputs"]]
    body["notes"] = list(report.notes)
    return body


def merge_text(report: MergeReport) -> str:
    lines = [
        f"{each.path}: {each.n_ngrams:,} n-grams, {each.n_pairs:,} pairs ({each.format}"
        + (")" if each.keys == "stored" else f", keys recovered by {each.keys})")
        for each in report.inputs
    ]
    lines.append(
        f"{report.output}: {report.n_ngrams:,} n-grams, {report.n_pairs:,} pairs, "
        f"{report.file_bytes / 1e6:,.1f} MB ({report.format}) in {report.total_seconds:.2f} s, "
        f"peak memory {report.peak_rss_bytes / 1e6:,.0f} MB"
    )
    return "\n".join(lines)


def to_json(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)
