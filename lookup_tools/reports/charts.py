"""The figures of lookup-stats as data; `drawing` and `page` put them on paper and on screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lookup_tools.cache import Cache
from lookup_tools.errors import FormatError
from lookup_tools.evaluation.verdict import Findings
from lookup_tools.replaying.source_report import SourceReport, ratio
from lookup_tools.system.progress import Progress

_MOST_SERIES = 6  # more lines than that cannot be told apart


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one line or group of bars; `low` and `high` are the ends of whiskers."""

    label: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure. `kind` is line or bar; bars stand at 0, 1, 2 with `names` below them, lines on a
    linear axis. `baseline` is a level to compare with."""

    title: str
    x_label: str
    y_label: str
    kind: str
    series: list[Series]
    names: list[str] | None = None
    baseline: float | None = None
    note: str = ""


def stats_charts(
    findings: Findings, caches: Sequence[Cache], progress: Progress | None = None
) -> list[Chart]:
    """Every figure there is something to show in."""
    sources = findings.report.sources[:_MOST_SERIES]
    charts = [
        _per_position(sources),
        _lengths(sources),
        _by_length(findings),
        _latency(findings),
        *(_follower_counts(cache, progress) for cache in caches[:1]),
    ]
    return [chart for chart in charts if chart is not None]


def label_of(source: SourceReport, sources: Sequence[SourceReport]) -> str:
    """The source's name, with its cache where several were measured."""
    paths = {each.static_path for each in sources if each.static_path}
    if source.static_path and len(paths) > 1:
        return f"{source.spec_type}, {source.static_path.rsplit('/', 1)[-1]}"
    return source.spec_type


def _per_position(sources: list[SourceReport]) -> Chart | None:
    series = []
    for source in sources:
        rates = source.accept_per_position
        longest = max((k for k, n in enumerate(source.drafted_length_histogram) if n), default=0)
        if longest:
            x = [float(k + 1) for k in range(longest)]
            series.append(Series(label_of(source, sources), x, [100 * r for r in rates[:longest]]))
    if not series:
        return None
    return Chart(
        "Acceptance by position in the draft", "position", "% of drafts", "line", series,
        note="A token counts as refused when an earlier one of its draft was.",
    )  # fmt: skip


def _lengths(sources: list[SourceReport]) -> Chart | None:
    drafting = [source for source in sources if source.drafted_steps]
    if not drafting:
        return None
    longest = max(
        k for source in drafting for k, n in enumerate(source.accepted_length_histogram) if n
    )
    series = []
    for source in drafting:
        steps = list(source.accepted_length_histogram[: longest + 1])
        steps[0] -= source.n_decode - source.drafted_steps  # steps without a draft
        shares = [100 * ratio(n, source.drafted_steps) for n in steps]
        x = [float(k) for k in range(longest + 1)]
        series.append(Series(label_of(source, sources), x, shares))
    return Chart(
        "How much of a draft is accepted", "accepted tokens", "% of steps with a draft", "bar",
        series, names=[str(k) for k in range(longest + 1)],
    )  # fmt: skip


def _by_length(findings: Findings) -> Chart | None:
    by_source: dict[str, list[tuple[float, float]]] = {}
    for point in findings.by_length:
        row = by_source.setdefault(point.spec.spec_type, [])
        row.append((float(point.draft_max), point.merit))
    series = [
        Series(name, [x for x, _ in row], [y for _, y in row])
        for name, row in list(by_source.items())[:_MOST_SERIES]
    ]
    if not series:
        return None
    curve = findings.curve
    if curve is None:
        return Chart(
            "Tokens per decode by draft length", "most tokens in a draft", "tokens per decode",
            "line", series, baseline=1.0,
            note="The speedup if verifying were free: pass --verify-cost for the real one.",
        )  # fmt: skip
    example = "an example, not your engine" if curve.is_example else "as measured"
    return Chart(
        "Projected speedup by draft length", "most tokens in a draft", "speedup", "line", series,
        baseline=1.0, note=f"Verify cost {curve.name}, {example}. Below 1.00, off is faster.",
    )  # fmt: skip


def _latency(findings: Findings) -> Chart | None:
    """Drafting time by the size of the cache's file; several caches only."""
    import os

    sources = findings.report.sources
    by_kind: dict[str, list[tuple[float, list[float]]]] = {}
    for source in sources:
        if source.static_path and source.n_drafted:
            size = os.path.getsize(source.static_path) / 1e6
            times = [1e6 * seconds / source.n_drafted for seconds in source.draft_seconds_runs]
            by_kind.setdefault(source.spec_type, []).append((size, times))
    series = []
    for kind, rows in by_kind.items():
        rows.sort()
        if len(rows) > 1:
            middle = [float(np.median(times)) for _, times in rows]
            low, high = [min(times) for _, times in rows], [max(times) for _, times in rows]
            series.append(Series(kind, [size for size, _ in rows], middle, low, high))
    if not series:
        return None
    runs = len(findings.report.sources[0].draft_seconds_runs)
    return Chart(
        "Drafting time by size of the cache", "cache file, MB", "us per drafted token", "line",
        series, note=f"Median of {runs} runs, whiskers from the shortest to the longest.",
    )  # fmt: skip


def _follower_counts(cache: Cache, progress: Progress | None) -> Chart | None:
    """How many followers the cache's 2-grams have, in bins that double."""
    try:
        lengths = [block.lengths for block in cache.blocks(2)]
    except FormatError:
        return None  # a foreign constmap: it cannot be enumerated
    if progress is not None:
        progress("followers", 1, 1)
    joined = np.concatenate(lengths) if lengths else np.zeros(0, np.uint32)
    if not len(joined):
        return None
    bins = np.floor(np.log2(joined.astype(np.float64))).astype(np.int64)
    counts = np.bincount(bins)
    names = ["1"] + [_bin_name(k) for k in range(1, len(counts))]
    shares = [100 * float(n) / len(joined) for n in counts]
    x = [float(k) for k in range(len(counts))]
    return Chart(
        "Followers of a 2-gram in the cache", "distinct followers", "% of 2-grams", "bar",
        [Series(cache.path.rsplit("/", 1)[-1], x, shares)], names=names,
        note=f"{len(joined):,} 2-grams, up to {int(joined.max()):,} followers.",
    )  # fmt: skip


def _bin_name(k: int) -> str:
    def short(n: int) -> str:
        return f"{n >> 10}k" if n >= 1024 else str(n)

    return f"{short(1 << k)}+" if k >= 4 else f"{1 << k}-{(2 << k) - 1}"
