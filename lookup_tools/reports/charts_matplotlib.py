"""Figures into an .svg or .png file, with matplotlib (the optional extra `plots`)."""

from __future__ import annotations

import io
import math
from typing import Any

from lookup_tools.errors import ParameterError
from lookup_tools.reports.charts import Chart

# Okabe and Ito's palette: told apart by eyes that see fewer colours, too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b")
_FORMATS = ("svg", "png")


def draw(charts: list[Chart], path: str) -> bytes:
    """All figures in one image, in the format that the path's ending names.

    Raises:
        ParameterError: another ending, nothing to draw, or no matplotlib.
    """
    fmt = path.rsplit(".", 1)[-1].lower()
    if fmt not in _FORMATS:
        raise ParameterError(f"{path}: found ending {fmt!r}, expected .svg or .png")
    if not charts:
        raise ParameterError("found nothing to draw, expected a source that drafts")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ParameterError(
            "found no matplotlib, expected it for --plot; install lookup-tools[plots] or use --html"
        ) from None
    settings: Any = {"svg.hashsalt": "lookup-tools", "font.size": 9, "svg.fonttype": "none"}
    with matplotlib.rc_context(settings):
        columns = min(2, len(charts))
        rows = math.ceil(len(charts) / columns)
        figure = Figure(figsize=(6 * columns, 3.8 * rows), layout="constrained")
        for k, chart in enumerate(charts):
            _draw_one(figure.add_subplot(rows, columns, k + 1), chart)
        out = io.BytesIO()
        metadata = {"Date": None} if fmt == "svg" else None
        figure.savefig(out, format=fmt, dpi=150, metadata=metadata)
    return out.getvalue()


def _draw_one(axes: Any, chart: Chart) -> None:
    width = 0.8 / max(len(chart.series), 1)
    for k, series in enumerate(chart.series):
        colour = COLOURS[k % len(COLOURS)]
        if chart.kind == "bar":
            shift = (k - (len(chart.series) - 1) / 2) * width
            axes.bar(
                [x + shift for x in series.x], series.y, width, label=series.label, color=colour
            )
            continue
        axes.plot(series.x, series.y, marker="o", markersize=3, label=series.label, color=colour)
        if series.low and series.high:
            rows = list(zip(series.y, series.low, series.high, strict=True))
            below, above = [y - low for y, low, _ in rows], [high - y for y, _, high in rows]
            axes.errorbar(
                series.x, series.y, yerr=[below, above], fmt="none", capsize=3, color=colour
            )
    if chart.names:
        axes.set_xticks(range(len(chart.names)), chart.names)
    if chart.baseline is not None:
        axes.axhline(chart.baseline, linewidth=1, linestyle="--", color="#888888")
    axes.set_title(chart.title, fontsize=10)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    if not _compares_with_a_level(chart):
        axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    if len(chart.series) > 1:
        axes.legend(fontsize=8)


def _compares_with_a_level(chart: Chart) -> bool:
    return chart.baseline is not None
