"""The JSON and CSV of lookup-stats. Keys are only ever added."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from lookup_tools.cache.load_cost import LoadedCache
from lookup_tools.evaluation.sweep import SweepPoint
from lookup_tools.evaluation.tune import TuneReport
from lookup_tools.evaluation.verdict import Findings
from lookup_tools.replaying.replay import PartReport, ReplayReport
from lookup_tools.replaying.source_report import SourceReport

_DERIVED = (
    "accept_rate", "tokens_per_decode", "mean_accepted", "coverage",
    "us_per_drafted_token", "us_per_step",
)  # fmt: skip
_REPLAY = (
    "n_tokens", "n_ctx", "n_chunks", "n_predict", "n_prompt", "draft_max", "state", "compat",
)  # fmt: skip


def source_json(source: SourceReport, findings: Findings | None = None) -> dict[str, Any]:
    """One entry of `sources`; `speedup` and `cost` are null without a cost curve."""
    body = asdict(source)
    for name in _DERIVED:
        body[name] = getattr(source, name)
    projection = findings.projection(source) if findings else None
    body["speedup"] = projection.speedup if projection else None
    body["cost"] = asdict(projection) if projection else None
    return body


def stats_json(
    report: ReplayReport,
    static: LoadedCache | None,
    dynamic: LoadedCache | None,
    peak_rss: int,
    *,
    findings: Findings | None = None,
    statics: list[LoadedCache] | None = None,
) -> dict[str, Any]:
    """The JSON of lookup-stats; `static` is the first of `statics`."""
    findings = findings or Findings(report)
    verdict = findings.verdict()
    return {
        "static": static.facts() if static else None,
        "dynamic": dynamic.facts() if dynamic else None,
        "statics": [each.facts() for each in statics or ([static] if static else [])],
        "replay": {name: getattr(report, name) for name in _REPLAY},
        "sources": [source_json(source, findings) for source in report.sources],
        "parts": [_part_json(part, findings) for part in report.parts],
        "verify_cost": _curve_json(findings),
        "verdict": asdict(verdict) if verdict else None,
        "sweep": [_point_json(point) for point in findings.sweep],
        "tune": _tune_json(findings.tune) if findings.tune else None,
        "notes": report.notes,
        "peak_rss_bytes": peak_rss,
    }


def _part_json(part: PartReport, findings: Findings) -> dict[str, Any]:
    return {
        "name": part.name,
        "n_tokens": part.n_tokens,
        "n_predict": part.n_predict,
        "sources": [source_json(source, findings) for source in part.sources],
    }


def _curve_json(findings: Findings) -> dict[str, Any] | None:
    curve = findings.curve
    if curve is None:
        return None
    return {
        "name": curve.name,
        "is_example": curve.is_example,
        "points": [{"width": width, "cost": cost} for width, cost in curve.points],
        "tokens_per_second": findings.tokens_per_second or curve.tokens_per_second,
    }


def _point_json(point: SweepPoint) -> dict[str, Any]:
    return {
        "varied": point.varied,
        **source_json(point.report),
        "speedup": point.projection.speedup if point.projection else None,
        "cost": asdict(point.projection) if point.projection else None,
    }


def _tune_json(tune: TuneReport) -> dict[str, Any]:
    return {
        "params": tune.params,
        "draft_max": tune.draft_max,
        "searched": tune.searched,
        "tuned_tokens": tune.tuned_tokens,
        "reported_tokens": tune.reported_tokens,
        "found_speedup": tune.found_speedup,
        "default": _point_json(tune.default),
        "tuned": _point_json(tune.tuned),
    }


def stats_csv(report: ReplayReport, findings: Findings | None = None) -> str:
    """One row a source; with parts, one more for each part and source, named in `part`; with a
    sweep, one more a configuration."""
    rows = [_csv_row(source, findings, "") for source in report.sources]
    for part in report.parts:
        rows += [_csv_row(source, findings, part.name) for source in part.sources]
    for point in findings.sweep if findings else []:
        rows.append(_csv_row(point.report, findings, ""))
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not report.parts and "part" in names:
        names.remove("part")
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", extrasaction="ignore", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _csv_row(source: SourceReport, findings: Findings | None, part: str) -> dict[str, Any]:
    body = source_json(source, findings)
    tiers, calls, cost = body.pop("tiers") or {}, body.pop("calls"), body.pop("cost")
    if cost is None:
        body.pop("speedup")
    for name in ("params", "counters", "members", "requests", "calibration"):
        body[name] = json.dumps(body[name], sort_keys=True)
    for name, value in body.items():
        if isinstance(value, list):
            body[name] = " ".join(f"{each:.6g}" for each in value)
    body |= {f"calls_{name}": value for name, value in calls.items()}
    body |= {f"{tier}_{name}": value for tier, row in tiers.items() for name, value in row.items()}
    body |= {name: value for name, value in (cost or {}).items() if name != "speedup"}
    return {"part": part, **body}
