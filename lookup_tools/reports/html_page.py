"""One self-contained HTML page: verdict, table, figures. No network, no script."""

from __future__ import annotations

from html import escape

from lookup_tools.evaluation.verdict import Findings, Verdict, configuration
from lookup_tools.replaying.replay import PartReport
from lookup_tools.replaying.source_report import SourceReport
from lookup_tools.reports.charts import Chart, label_of
from lookup_tools.reports.charts_svg import chart_svg
from lookup_tools.reports.stats_text import verdict_text

_SHOWN_POINTS = 40
_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#59636e;--rule:#d5dbe1;--card:#f6f8fa;
--good:#116329;--bad:#8a4600;--c0:#0072b2;--c1:#d55e00;--c2:#00795a;--c3:#b0528a;--c4:#2b8cc4;--c5:#8a6a00}
@media(prefers-color-scheme:dark){:root{--bg:#0f1419;--fg:#e6eaee;--dim:#9aa5b1;--rule:#2f3944;
--card:#171e26;--good:#56d364;--bad:#f0a55a;--c0:#58b4f0;--c1:#ff8b4d;--c2:#3ecfa4;--c3:#e794c4;
--c4:#8fd3ff;--c5:#e3c04f}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:20px 16px 40px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.35rem;margin:0 0 .3rem}h2{font-size:1.05rem;margin:1.8rem 0 .5rem}
h3{font-size:.95rem;margin:0 0 .2rem}
p{margin:.3rem 0}.dim{color:var(--dim);font-size:.87rem}
.verdict{border-left:4px solid var(--bad);background:var(--card);padding:.7rem .9rem;
border-radius:0 6px 6px 0;margin:.8rem 0}.verdict.pays{border-color:var(--good)}
.verdict b{color:var(--bad)}.verdict.pays b{color:var(--good)}
code{font:13px/1.45 ui-monospace,monospace;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%;font-size:.9rem}
th,td{padding:.35rem .5rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--dim);font-weight:600}th:first-child,td:first-child{text-align:left;padding-left:0}
td:first-child{white-space:normal;min-width:9rem;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:14px}
figure{margin:0;background:var(--card);border-radius:6px;padding:.8rem .8rem .5rem;min-width:0}
svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font:11px system-ui,sans-serif}
.grid{stroke:var(--rule);stroke-width:1;fill:none}
.base{stroke:var(--fg);stroke-dasharray:5 4;fill:none}
.line{fill:none;stroke:currentColor;stroke-width:2}circle,rect{fill:currentColor}
@media(max-width:520px){svg text{font-size:14px}body{font-size:14px}
th,td{padding:.35rem .35rem}td:first-child{min-width:8rem}}
.s0{color:var(--c0)}.s1{color:var(--c1)}.s2{color:var(--c2)}.s3{color:var(--c3)}.s4{color:var(--c4)}
.s5{color:var(--c5)}
.legend{display:flex;flex-wrap:wrap;gap:.1rem .9rem;font-size:.83rem;margin:.1rem 0 .3rem}
.legend span::before{content:"";display:inline-block;width:.7em;height:.7em;border-radius:2px;
background:currentColor;margin-right:.35em}.legend i{font-style:normal;color:var(--fg)}
"""


def stats_page(findings: Findings, charts: list[Chart]) -> str:
    """The page as text."""
    report = findings.report
    facts = (
        f"{report.n_tokens:,} tokens in {report.n_chunks:,} chunks of {report.n_ctx:,}, "
        f"{report.n_predict:,} replayed, drafts of up to {report.draft_max}, state {report.state}"
    )
    verdict = findings.verdict()
    sections = [
        "<h1>What drafting would have been worth</h1>",
        f'<p class="dim">{escape(facts)}</p>',
        _verdict(verdict) if verdict else "",
        "<h2>Sources</h2>",
        _sources(report.sources, findings),
        _parts(report.parts, findings),
        _sweep(findings),
        "<h2>Figures</h2>" if charts else "",
        f'<div class="charts">{"".join(map(_figure, charts))}</div>',
    ]
    sections += [f'<p class="dim">{escape(note)}</p>' for note in report.notes]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>lookup-stats</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body></html>\n"
    )


def _verdict(verdict: Verdict) -> str:
    first, *rest = verdict_text(verdict).split("\n")
    head, _, tail = first.partition(":")
    lines = [f"<p><b>{escape(head)}</b>:{escape(tail)}</p>"]
    for line in rest:
        kind, _, text = line.partition(": ")
        shown = f"<code>{escape(text)}</code>" if kind == "run" else escape(text)
        lines.append(f'<p class="dim">{shown}</p>')
    pays = " pays" if verdict.pays else ""
    return f'<div class="verdict{pays}">{"".join(lines)}</div>'


_HEADS = ("speedup", "tok/decode", "accepted", "break-even", "coverage", "us/step")


def _table(first: str, rows: list[tuple[str, SourceReport]], findings: Findings) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in (first, *_HEADS))
    body = "".join(_row(name, source, findings) for name, source in rows)
    return f'<div class="scroll"><table><tr>{heads}</tr>{body}</table></div>'


def _row(name: str, source: SourceReport, findings: Findings) -> str:
    projection = findings.projection(source)
    cells = [
        f"{projection.speedup:.3f}" if projection else "–",
        f"{source.tokens_per_decode:.3f}",
        f"{100 * source.accept_rate:.1f}%",
        f"{100 * projection.break_even_rate:.1f}%" if projection else "–",
        f"{100 * source.coverage:.1f}%",
        f"{source.us_per_step:.2f}",
    ]
    return f"<tr><td>{escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _sources(sources: list[SourceReport], findings: Findings) -> str:
    return _table("source", [(label_of(source, sources), source) for source in sources], findings)


def _parts(parts: list[PartReport], findings: Findings) -> str:
    rows = [
        (f"{part.name.rsplit('/', 1)[-1]}: {label_of(source, part.sources)}", source)
        for part in parts
        for source in part.sources
    ]
    if not rows:
        return ""
    return f"<h2>Each part by itself</h2>{_table('part', rows, findings)}"


def _sweep(findings: Findings) -> str:
    ranked = sorted(findings.sweep, key=lambda point: -point.merit)[:_SHOWN_POINTS]
    usual = findings.report.draft_max
    rows = [(configuration(point, usual), point.report) for point in ranked]
    if not rows:
        return ""
    more = len(findings.sweep) - len(rows)
    rest = f'<p class="dim">and {more} more</p>' if more else ""
    return f"<h2>Sweep, best first</h2>{_table('configuration', rows, findings)}{rest}"


def _figure(chart: Chart) -> str:
    legend = ""
    if len(chart.series) > 1:
        entries = "".join(
            f'<span class="s{k}"><i>{escape(series.label)}</i></span>'
            for k, series in enumerate(chart.series)
        )
        legend = f'<div class="legend">{entries}</div>'
    note = f'<p class="dim">{escape(chart.note)}</p>' if chart.note else ""
    return f"<figure><h3>{escape(chart.title)}</h3>{legend}{chart_svg(chart)}{note}</figure>"
