"""lookup-stats: what caches are worth on a text, and what they cost."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from lookup_tools.cli.options import (
    CONTEXT,
    ProgressBars,
    emit,
    note,
    one_line_errors,
    shared_options,
    version_option,
    vocabulary_option,
)
from lookup_tools.cli.stats_options import (
    StatsCommand,
    cache_options,
    cost_options,
    output_options,
    params_of,
    replay_options,
    require_used,
    source_options,
    take_params,
)
from lookup_tools.cli.text import TextArguments, text_options

if TYPE_CHECKING:
    from lookup_tools.cache.load_cost import LoadedCache
    from lookup_tools.evaluation.verdict import Findings

_EXAMPLE = "Example: lookup-stats -m model.gguf -f test.txt -lcs corpus.lcs --verify-cost dense"


@click.command(cls=StatsCommand, context_settings=CONTEXT, epilog=_EXAMPLE)
@text_options
@cache_options
@replay_options
@cost_options
@output_options
@source_options
@vocabulary_option
@shared_options
@version_option()
@one_line_errors
def main(
    json_to: str | None,
    csv_to: str | None,
    plot_to: str | None,
    html_to: str | None,
    quiet: bool,
    force: bool,
    threads: int | None,
    **values: Any,
) -> None:
    """Replay a text as if a model said it: what drafts from these caches would have been worth, and
    what opening them and drafting costs.

    Without --threads, replays that are timed use one thread, sweeps all processors. Chunks are
    replayed at the same time where they are independent: --state fresh, without ngram-cache.
    """
    from lookup_tools.reports.builds import stats_json, stats_text
    from lookup_tools.system.memory import peak_rss_bytes

    arguments = TextArguments.take(values)
    with ExitStack() as stack:
        progress = stack.enter_context(ProgressBars(quiet))
        _check_outputs((csv_to, plot_to, html_to), force)
        values["by_length"] = plot_to is not None or html_to is not None
        findings, statics, dynamic = _run(arguments, values, threads, progress, stack)
        _write_files(findings, statics, (csv_to, plot_to, html_to), force, progress)
        loaded = [*statics, *([dynamic] if dynamic else [])]
        first = statics[0] if statics else None
        report = findings.report
        body = stats_json(
            report, first, dynamic, peak_rss_bytes(), findings=findings, statics=statics
        )
    for line in report.notes:
        note(line, quiet)
    flat = sum(each.load_seconds for each in loaded)
    emit(stats_text(report, flat, findings), lambda: body, json_to, force=force)


def _check_outputs(paths: tuple[str | None, ...], force: bool) -> None:
    """Before the work, not after it."""
    from lookup_tools.system.atomic import check_overwrite

    for path in paths:
        if path is not None:
            check_overwrite(path, force=force)


def _run(
    arguments: TextArguments,
    values: dict[str, Any],
    threads: int | None,
    progress: ProgressBars,
    stack: ExitStack,
) -> tuple[Findings, list[LoadedCache], LoadedCache | None]:
    from lookup_tools.cli.stats_text_input import elsewhere, read_text
    from lookup_tools.drafting.source import SourceSpec
    from lookup_tools.evaluation.evaluate import Assessment, assess
    from lookup_tools.evaluation.sweep import parse_sweep
    from lookup_tools.evaluation.verify_cost_files import read_cost
    from lookup_tools.replaying.chunks import ReplayOptions

    params = take_params(values)
    spec_types = list(values.pop("spec_types")) or ["ngram-cache"]
    axes = [parse_sweep(text) for text in values.pop("sweeps")]
    require_used(params, [*spec_types, *(each.spec_type for each in axes)])
    cost = values.pop("verify_cost")
    curve = read_cost(cost) if cost else None
    split = {name: values.pop(name) for name in ("by_file", "by_document")}
    ignore = values.pop("ignore_vocabulary")
    statics, dynamic = _load_caches(values, stack)
    text = read_text(arguments, progress, **split, ignore_vocabulary=ignore)
    tune_text = values.pop("tune_text")
    other = None
    if tune_text:
        elsewhere_text = elsewhere(arguments, tune_text)
        other = read_text(elsewhere_text, progress, ignore_vocabulary=ignore)
    for each in [*statics, *([dynamic] if dynamic else [])]:
        text.require(each.cache, ignore)
    assessment = Assessment(
        ids=text.ids,
        specs=[SourceSpec(name, params_of(name, params)) for name in spec_types],
        points=[
            point
            for each in axes
            for point in each.points(values["draft_max"], params_of(each.spec_type, params))
        ],
        curve=curve,
        tokens_per_second=values.pop("tokens_per_second"),
        tune=values.pop("tune") or other is not None,
        tune_ids=other.ids if other else None,
        parts=text.parts,
        by_length=values.pop("by_length"),
        model=arguments.model,
        threads=threads or os.cpu_count() or 1,
        options=ReplayOptions(threads=threads or 1, curve=curve, **values),
    )
    found = assess(
        assessment,
        static=[each.cache for each in statics],
        dynamic=dynamic.cache if dynamic else None,
        progress=progress,
    )
    return found, statics, dynamic


def _load_caches(
    values: dict[str, Any], stack: ExitStack
) -> tuple[list[LoadedCache], LoadedCache | None]:
    from lookup_tools.cache.load_cost import load_cache

    how = {"load": values.pop("load"), "populate": values.pop("populate")}
    statics, dynamic = [], None
    for path in values.pop("statics"):
        statics.append(load_cache(path, "static", **how))
        stack.callback(statics[-1].cache.close)
    path = values.pop("dynamic")
    if path:
        dynamic = load_cache(path, "dynamic", **how)
        stack.callback(dynamic.cache.close)
    return statics, dynamic


def _write_files(
    findings: Findings,
    statics: list[LoadedCache],
    paths: tuple[str | None, str | None, str | None],
    force: bool,
    progress: ProgressBars,
) -> None:
    from lookup_tools.system.atomic import atomic_output

    csv_to, plot_to, html_to = paths
    outputs: list[tuple[str, bytes]] = []
    if csv_to is not None:
        from lookup_tools.reports.builds import stats_csv

        outputs.append((csv_to, stats_csv(findings.report, findings).encode()))
    if plot_to is not None or html_to is not None:
        from lookup_tools.reports.charts import stats_charts

        charts = stats_charts(findings, [each.cache for each in statics], progress)
        if plot_to is not None:
            from lookup_tools.reports.charts_matplotlib import draw

            outputs.append((plot_to, draw(charts, plot_to)))
        if html_to is not None:
            from lookup_tools.reports.html_page import stats_page

            outputs.append((html_to, stats_page(findings, charts).encode()))
    for path, data in outputs:
        with atomic_output(path, force=force) as file:
            file.write(data)


if __name__ == "__main__":
    main()
