"""Results as text for people, lines for scripts, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from lookup_tools.creating import CreateReport
from lookup_tools.loading import LoadedCache
from lookup_tools.merge import MergeReport
from lookup_tools.replaying import ReplayReport, SourceReport


def create_json(report: CreateReport) -> dict[str, Any]:
    """The JSON of lookup-create."""
    body = asdict(report)
    body["tokenizer"] = {"fingerprint": body.pop("fingerprint"), "vocab_size": body.pop("vocab_size")}
    body["notes"] = list(report.notes)
    return body


def create_text(report: CreateReport) -> str:
    seconds = report.seconds
    return (
        f"{report.output}: {report.n_ngrams:,} n-grams, {report.n_pairs:,} pairs from {report.n_tokens:,} tokens, "
        f"{report.file_bytes / 1e6:,.1f} MB ({report.format}, {report.kind})\n"
        f"{seconds.total:.2f} s (tokenize {seconds.tokenize:.2f}, count {seconds.count:.2f}, build {seconds.build:.2f}, "
        f"write {seconds.write:.2f}), peak memory {report.peak_rss_bytes / 1e6:,.0f} MB"
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
        f"{report.output}: {report.n_ngrams:,} n-grams, {report.n_pairs:,} pairs, {report.file_bytes / 1e6:,.1f} MB "
        f"({report.format}) in {report.total_seconds:.2f} s, peak memory {report.peak_rss_bytes / 1e6:,.0f} MB"
    )
    return "\n".join(lines)


def source_json(source: SourceReport) -> dict[str, Any]:
    """One entry of `sources` in the JSON of lookup-stats."""
    body = asdict(source)
    for name in ("accept_rate", "tokens_per_decode", "mean_accepted", "coverage", "us_per_drafted_token", "us_per_step"):
        body[name] = getattr(source, name)
    body["speedup"] = None
    return body


def stats_json(
    report: ReplayReport, static: LoadedCache | None, dynamic: LoadedCache | None, peak_rss: int
) -> dict[str, Any]:
    """The JSON of lookup-stats."""
    return {
        "static": static.facts() if static else None,
        "dynamic": dynamic.facts() if dynamic else None,
        "replay": {name: getattr(report, name) for name in ("n_tokens", "n_ctx", "n_chunks", "n_predict", "n_prompt", "draft_max")},
        "sources": [source_json(source) for source in report.sources],
        "peak_rss_bytes": peak_rss,
    }


def to_json(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)


def stats_text(report: ReplayReport, load_seconds: float) -> str:
    """Per source: llama-lookup-stats' lines, the tiers, llama.cpp's `statistics` line."""
    return "\n\n".join(_source_text(report, source, load_seconds) for source in report.sources)


def _source_text(report: ReplayReport, source: SourceReport, load_seconds: float) -> str:
    per_second = 1e6 / source.us_per_drafted_token if source.us_per_drafted_token else 0.0
    lines = [
        f"{source.spec_type}: {source.tokens_per_decode:.3f} tokens per decode, {100 * source.accept_rate:.2f}% of "
        f"{source.n_drafted:,} drafted tokens accepted, a draft on {100 * source.coverage:.1f}% of {source.n_decode:,} steps",
        f"n_draft      = {report.draft_max}",
        f"n_predict    = {report.n_predict}",
        f"n_drafted    = {source.n_drafted}",
        f"t_draft_flat = {1e3 * load_seconds:.2f} ms",
        f"t_draft      = {1e3 * source.draft_seconds:.2f} ms, {source.us_per_drafted_token:.2f} us per token, "
        f"{per_second:.2f} tokens per second",
        f"n_accept     = {source.n_accept}",
        f"accept       = {100 * source.accept_rate:.3f}%",
    ]
    if source.tiers:
        lines += [
            f"tier {name:<7} = {tier.drafted} drafted, {tier.accepted} accepted"
            + (f" ({100 * tier.accepted / tier.drafted:.1f}%)" if tier.drafted else "")
            for name, tier in source.tiers.items()
        ]
    lines.append(statistics_line(source))
    return "\n".join(lines)


def statistics_line(source: SourceReport) -> str:
    """llama.cpp's line for a source. One clock covers begin, draft and accept here, so its reading
    stands under draft, where nearly all of it goes, and the others are 0."""
    line = (
        f"statistics {source.spec_type.replace('-', '_')}: #calls(b,g,a) = {source.calls['begin']} {source.calls['draft']} "
        f"{source.calls['accept']}, #gen drafts = {source.gen_drafts}, #acc drafts = {source.acc_drafts}, "
        f"#gen tokens = {source.gen_tokens}, #acc tokens = {source.acc_tokens}, "
    )
    if source.calls["accept"]:
        rates = ", ".join(f"{rate:.3f}" for rate in source.accept_per_position)
        line += f"#mean acc len = {source.mean_accepted:.2f}, #acc rate/pos = ({rates}), "
    return line + f"dur(b,g,a) = 0.000, {1e3 * source.draft_seconds:.3f}, 0.000 ms"


def stats_csv(report: ReplayReport) -> str:
    """One row a source."""
    rows = []
    for source in report.sources:
        body = source_json(source)
        tiers, calls = body.pop("tiers") or {}, body.pop("calls")
        body.pop("speedup")
        body["params"] = json.dumps(body["params"], sort_keys=True)
        for name in ("accept_per_position", "accepted_length_histogram"):
            body[name] = " ".join(f"{value:.6g}" for value in body[name])
        body |= {f"calls_{name}": value for name, value in calls.items()}
        body |= {f"{tier}_{name}": value for tier, counts in tiers.items() for name, value in counts.items()}
        rows.append(body)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
