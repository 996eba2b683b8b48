"""Figures as inline SVG whose colours come from the page, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from lookup_tools.reports.charts import Chart, Series

_WIDTH, _HEIGHT = 460, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 12, 42
_CLASSES = 6  # .s0 to .s5 in the page's style


def chart_svg(chart: Chart) -> str:
    """One figure. Its title and legend stand in the page, not in the image."""
    low, high = _bounds(chart)
    ticks = _ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    first, last = _x_range(chart)

    def x_at(x: float) -> float:
        return _LEFT + (x - first) / (last - first or 1) * (_WIDTH - _LEFT - _RIGHT)

    def y_at(y: float) -> float:
        return _TOP + (high - y) / (high - low or 1) * (_HEIGHT - _TOP - _BOTTOM)

    body = [_grid(ticks, y_at), _x_axis(chart, x_at)]
    if chart.baseline is not None:
        y = y_at(chart.baseline)
        body.append(f'<path class="base" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
    draw = _bars if chart.kind == "bar" else _line
    body += [draw(chart, k, x_at, y_at) for k in range(len(chart.series))]
    title = escape(f"{chart.title}: {chart.y_label} by {chart.x_label}")
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
        f"{''.join(body)}{_labels(chart)}</svg>"
    )


Scale = Callable[[float], float]


def _bounds(chart: Chart) -> tuple[float, float]:
    values = [y for series in chart.series for y in [*series.y, *(series.high or [])]]
    values += [y for series in chart.series for y in series.low or []]
    if chart.baseline is None:
        return 0.0, max(values) or 1.0
    low, high = min([*values, chart.baseline]), max([*values, chart.baseline])
    pad = 0.05 * (high - low) or 0.05
    return low - pad, high + pad


def _x_range(chart: Chart) -> tuple[float, float]:
    if chart.kind == "bar":
        return -0.5, len(chart.names or []) - 0.5
    xs = [x for series in chart.series for x in series.x]
    pad = 0.03 * (max(xs) - min(xs)) or 0.5
    return min(xs) - pad, max(xs) + pad


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers that span the range."""
    raw = (high - low) / wanted or 1.0
    size = 10 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * 0.999)
    start = math.floor(low / step + 1e-9)
    end = math.ceil(high / step - 1e-9)
    return [k * step for k in range(start, end + 1)]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _grid(ticks: list[float], y_at: Scale) -> str:
    lines = "".join(f"M{_LEFT} {y_at(y):.1f}H{_WIDTH - _RIGHT}" for y in ticks)
    texts = "".join(
        f'<text x="{_LEFT - 6}" y="{y_at(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>'
        for y in ticks
    )
    return f'<path class="grid" d="{lines}"/>{texts}'


def _x_axis(chart: Chart, x_at: Scale) -> str:
    if chart.names:
        every = math.ceil(len(chart.names) / 12)
        marks = [(float(k), name) for k, name in enumerate(chart.names) if k % every == 0]
    else:
        marks = [(x, f"{x:.3g}") for x in _spread(chart, x_at)]
    y = _HEIGHT - _BOTTOM + 15
    return "".join(
        f'<text x="{x_at(x):.1f}" y="{y}" text-anchor="middle">{escape(name)}</text>'
        for x, name in marks
    )


def _spread(chart: Chart, x_at: Scale) -> list[float]:
    """Points' own positions, as many as stand apart."""
    kept: list[float] = []
    for x in sorted({x for series in chart.series for x in series.x}):
        if not kept or x_at(x) - x_at(kept[-1]) >= 26:
            kept.append(x)
    return kept


def _labels(chart: Chart) -> str:
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    centre = (_LEFT + _WIDTH - _RIGHT) / 2
    return (
        f'<text x="{centre}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(chart.x_label)}</text>'
        f'<text transform="translate(11 {middle})rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y_label)}</text>"
    )


def _line(chart: Chart, k: int, x_at: Scale, y_at: Scale) -> str:
    series = chart.series[k]
    points = [(x_at(x), y_at(y)) for x, y in zip(series.x, series.y, strict=True)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3">{_tip(series, x, y)}</circle>'
        for x, y in zip(series.x, series.y, strict=True)
    )
    whiskers = _whiskers(series, x_at, y_at)
    return f'<g class="s{k % _CLASSES}"><path class="line" d="M{path}"/>{whiskers}{dots}</g>'


def _whiskers(series: Series, x_at: Scale, y_at: Scale) -> str:
    if not series.low or not series.high:
        return ""
    ends = zip(series.x, series.low, series.high, strict=True)
    parts = [
        f"M{x_at(x):.1f} {y_at(low):.1f}V{y_at(high):.1f}"
        f"M{x_at(x) - 4:.1f} {y_at(low):.1f}h8M{x_at(x) - 4:.1f} {y_at(high):.1f}h8"
        for x, low, high in ends
    ]
    return f'<path class="line" d="{"".join(parts)}"/>'


def _bars(chart: Chart, k: int, x_at: Scale, y_at: Scale) -> str:
    series, n = chart.series[k], len(chart.series)
    width = 0.8 * (x_at(1) - x_at(0)) / n
    bars = []
    for x, y in zip(series.x, series.y, strict=True):
        left = x_at(x) + (k - n / 2) * width
        top, bottom = y_at(y), y_at(0)
        bars.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(width - 0.5, 0.5):.1f}" '
            f'height="{max(bottom - top, 0):.1f}">{_tip(series, x, y)}</rect>'
        )
    return f'<g class="s{k % _CLASSES}">{"".join(bars)}</g>'


def _tip(series: Series, x: float, y: float) -> str:
    return f"<title>{escape(series.label)}: {_number(x)}, {_number(y)}</title>"
