"""Figures as data, as inline SVG, as a page, and through matplotlib."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from helpers import random_counts, random_stream, write_counts

import lookup_tools as lt
from lookup_tools.errors import ParameterError
from lookup_tools.evaluation.evaluate import Assessment, assess
from lookup_tools.evaluation.sweep import parse_sweep
from lookup_tools.evaluation.verdict import Findings
from lookup_tools.evaluation.verify_cost_files import read_cost
from lookup_tools.replaying.replay import Part, ReplayOptions
from lookup_tools.reports.charts import Chart, Series, stats_charts
from lookup_tools.reports.charts_matplotlib import draw
from lookup_tools.reports.charts_svg import chart_svg
from lookup_tools.reports.html_page import stats_page


@pytest.fixture
def found(tmp_path: Path) -> tuple[Findings, list[Chart]]:
    """Three caches, five sources, parts, a sweep, a cost curve: every figure there is."""
    rng = random.Random(1)
    tokens = np.array(random_stream(rng, 1500, 20), np.int32)
    caches = []
    for k, size in enumerate((50, 150, 350)):
        write_counts(tmp_path / f"<{k}>.lcs", random_counts(rng, size, vocab=20, followers=18))
        caches.append(lt.open_cache(tmp_path / f"<{k}>.lcs"))
    assessment = Assessment(
        ids=tokens,
        specs=[
            lt.SourceSpec("ngram-cache"), lt.SourceSpec("ngram-suffix", {"min_match": 2}),
            lt.SourceSpec("ngram-mod", {"n_match": 3, "n_min": 1}),
        ],
        points=list(parse_sweep("ngram-suffix:min-match=2..4").points(8)),
        curve=read_cost("dense"), parts=[Part("a & b", 0, 700)], by_length=True,
        options=ReplayOptions(n_ctx=300, repeats=3),
    )  # fmt: skip
    findings = assess(assessment, static=caches)
    charts = stats_charts(findings, caches)
    for cache in caches:
        cache.close()
    return findings, charts


def test_every_figure_is_there(found: tuple[Findings, list[Chart]]) -> None:
    findings, charts = found
    assert [chart.title.split()[0] for chart in charts] == [
        "Acceptance", "How", "Projected", "Drafting", "Followers",
    ]  # fmt: skip
    positions, lengths, by_length, latency, followers = charts
    first = findings.report.sources[0]
    assert positions.series[0].y == [100 * rate for rate in first.accept_per_position]
    assert positions.series[0].label == "ngram-cache, <0>.lcs"
    for series in [*lengths.series, *followers.series]:
        assert sum(series.y) == pytest.approx(100)
    assert [series.label for series in by_length.series] == [
        "ngram-cache", "ngram-suffix", "ngram-mod",
    ]  # fmt: skip
    assert by_length.series[0].x == [1, 2, 3, 4, 6, 8, 12, 16]
    at_eight = by_length.series[0].y[5]
    projection = findings.projection(first)
    assert projection is not None
    assert at_eight == pytest.approx(projection.speedup)
    (line,) = latency.series
    assert line.x == sorted(line.x)
    assert len(line.x) == 3
    assert line.low is not None
    assert line.high is not None
    for low, middle, high in zip(line.low, line.y, line.high, strict=True):
        assert 0 < low <= middle <= high


def test_figures_without_anything_to_show_are_left_out() -> None:
    report = lt.replay(range(100), ["ngram-simple"], options=lt.ReplayOptions(n_ctx=100))
    assert stats_charts(Findings(report), []) == []
    assert "<figure>" not in stats_page(Findings(report), [])


def test_an_svg_is_whole_and_inside_its_frame(found: tuple[Findings, list[Chart]]) -> None:
    for chart in found[1]:
        root = ET.fromstring(chart_svg(chart))
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        marks = [each for each in root.iter() if each.tag in ("circle", "rect")]
        assert len(marks) == sum(len(series.x) for series in chart.series)
        for mark in marks:
            x = float(mark.attrib.get("cx", mark.attrib.get("x", 0)))
            y = float(mark.attrib.get("cy", mark.attrib.get("y", 0)))
            assert 0 <= x <= width
            assert 0 <= y <= height


@pytest.mark.parametrize(
    ("ys", "baseline"),
    [([0.0, 0.0], None), ([1.0, 1.0], 1.0), ([1e-9, 2e-9], None), ([5e6, 1e7], None)],
)
def test_an_svg_of_odd_numbers_has_readable_axes(ys: list[float], baseline: float | None) -> None:
    chart = Chart("t", "x", "y", "line", [Series("s", [1.0, 1.0], ys)], baseline=baseline)
    texts = [each.text or "" for each in ET.fromstring(chart_svg(chart)).iter("text")]
    numbers = [text for text in texts if re.fullmatch(r"-?[\d.]+(e[-+]\d+)?", text)]
    assert 3 <= len(numbers) <= 10
    assert "nan" not in " ".join(texts)


def test_the_page_needs_nothing_else(found: tuple[Findings, list[Chart]]) -> None:
    page = stats_page(*found)
    assert page.count("<svg") == 5
    assert not re.search(r"https?:|<script|<link|@import|url\(|src=", page)
    assert "prefers-color-scheme:dark" in page
    assert "width=device-width" in page
    assert "best:" in page.replace("<b>", "").replace("</b>", "")
    assert "a &amp; b: ngram-suffix" in page
    assert "&lt;0&gt;.lcs" in page
    assert "<0>" not in page
    body = re.sub(r"<!doctype html>|<meta[^>]*>", "", page)
    ET.fromstring(body)  # every element is closed


def test_the_page_says_off_when_off_is_best() -> None:
    rng = random.Random(2)
    tokens = np.array(random_stream(rng, 900, 9), np.int32)
    report = lt.replay(tokens, ["ngram-cache"], options=lt.ReplayOptions(n_ctx=300))
    page = stats_page(Findings(report, read_cost("1:1,2:2,9:9")), [])
    assert '<div class="verdict">' in page
    assert "<b>off</b>: nothing beats decoding without drafts" in page


@pytest.mark.parametrize("name", ["a.svg", "a.PNG"])
def test_matplotlib_draws_every_figure(found: tuple[Findings, list[Chart]], name: str) -> None:
    pytest.importorskip("matplotlib")
    charts = found[1]
    data = draw(charts, name)
    if name.endswith("svg"):
        root = ET.fromstring(data)
        text = " ".join(each for each in root.itertext())
        assert all(chart.title in text for chart in charts)
        assert draw(charts, name) == data  # nothing of the moment in it
    else:
        assert data.startswith(b"\x89PNG")


def test_other_endings_and_nothing_are_refused(found: tuple[Findings, list[Chart]]) -> None:
    with pytest.raises(ParameterError, match="found ending 'pdf', expected"):
        draw(found[1], "a.pdf")
    with pytest.raises(ParameterError, match="found nothing to draw"):
        draw([], "a.svg")
