"""The text of lookup-stats: the verdict, then each source in the lines people already parse."""

from __future__ import annotations

from lookup_tools.drafting.group import Calibration
from lookup_tools.evaluation.engine_command import stats_flags
from lookup_tools.evaluation.sweep import SweepPoint
from lookup_tools.evaluation.tune import TuneReport
from lookup_tools.evaluation.verdict import Findings, Verdict, configuration
from lookup_tools.evaluation.verify_cost import Projection
from lookup_tools.replaying.replay import PartReport, ReplayReport
from lookup_tools.replaying.source_report import SourceReport

_SHOWN_POINTS = 30


def stats_text(report: ReplayReport, load_seconds: float, findings: Findings | None = None) -> str:
    """The verdict first where there is a cost curve, then per source: llama-lookup-stats' lines,
    the tiers, llama.cpp's `statistics` line, bmoe's lines for ngram-suffix; then parts, sweep and
    tuning as tables."""
    findings = findings or Findings(report)
    verdict = findings.verdict()
    blocks = [verdict_text(verdict)] if verdict else []
    blocks += [_source_text(report, source, load_seconds, findings) for source in report.sources]
    if report.parts:
        blocks.append(_parts_text(report.parts, findings))
    if findings.sweep:
        blocks.append(_sweep_text(findings.sweep))
    if findings.tune is not None:
        blocks.append(_tune_text(findings.tune))
    return "\n\n".join(blocks)


def verdict_text(verdict: Verdict) -> str:
    example = ", an example: measure your own" if verdict.curve_is_example else ""
    curve = f"verify cost {verdict.curve}{example}"
    if verdict.pays:
        first = f"best: {verdict.configuration}, projected speedup {verdict.speedup:.2f} ({curve})"
    else:
        first = (
            f"off: nothing beats decoding without drafts; the best of {verdict.n_tried}, "
            f"{verdict.configuration}, comes to {verdict.speedup:.3f} ({curve})"
        )
    lines = [first]
    if verdict.command:
        lines.append(f"run: {verdict.command}")
    return "\n".join(lines + [f"note: {note}" for note in verdict.notes])


def _source_text(
    report: ReplayReport, source: SourceReport, load_seconds: float, findings: Findings
) -> str:
    per_second = 1e6 / source.us_per_drafted_token if source.us_per_drafted_token else 0.0
    heading = f"{source.spec_type}: "
    if source.static_path and _several_caches(report):
        heading = f"{source.spec_type} with {source.static_path}: "
    lines = [
        f"{heading}{source.tokens_per_decode:.3f} tokens per decode, "
        f"{100 * source.accept_rate:.2f}% of {source.n_drafted:,} drafted tokens accepted, "
        f"a draft on {100 * source.coverage:.1f}% of {source.n_decode:,} steps",
        f"n_draft      = {report.draft_max}",
        f"n_predict    = {report.n_predict}",
        f"n_drafted    = {source.n_drafted}",
        f"t_draft_flat = {1e3 * load_seconds:.2f} ms",
        f"t_draft      = {1e3 * source.draft_seconds:.2f} ms, {source.us_per_drafted_token:.2f} "
        f"us per token, {per_second:.2f} tokens per second",
        f"n_accept     = {source.n_accept}",
        f"accept       = {100 * source.accept_rate:.3f}%",
    ]
    lines += _tier_lines(source) + _counter_lines(source)
    lines.append(statistics_line(source))
    projection = findings.projection(source)
    if source.spec_type == "ngram-suffix":
        lines += bmoe_lines(source, projection)
    if projection:
        lines.append(_cost_line(source, projection))
    if source.calibration is not None:
        lines.append(_calibration_line(source.calibration))
    for each in source.requests:
        lines.append(
            f"requests {each.n:<4} = speedup {each.speedup:.3f} projected against {each.n} without "
            f"drafts, {each.n_accept:,} of {each.n_drafted:,} drafted tokens accepted"
        )
    return "\n".join(lines)


def _calibration_line(calibration: Calibration) -> str:
    shown = ", ".join(
        f"{each.predicted:.2f}:{each.found:.2f}" for each in calibration.bins if each.n
    )
    return f"calibration  = mean gap {calibration.mean_gap:.3f}; predicted:found {shown}"


def _several_caches(report: ReplayReport) -> bool:
    return len({source.static_path for source in report.sources if source.static_path}) > 1


def _tier_lines(source: SourceReport) -> list[str]:
    return [
        f"tier {name:<7} = {tier.drafted} drafted, {tier.accepted} accepted"
        + (f" ({100 * tier.accepted / tier.drafted:.1f}%)" if tier.drafted else "")
        for name, tier in (source.tiers or {}).items()
    ]


def _counter_lines(source: SourceReport) -> list[str]:
    lines = []
    for kind, counts in source.counters.items():
        shown = ", ".join(f"{name} {value}" for name, value in counts.items())
        lines.append(f"counters {kind} = {shown}")
    for member in source.members:
        lines.append(
            f"member {member['spec_type']}: asked {member['calls_draft']} times, "
            f"{member['gen_drafts']} drafts, {member['acc_drafts']} of them useful, "
            f"{member['acc_tokens']} of {member['gen_tokens']} tokens accepted"
        )
    return lines


def _cost_line(source: SourceReport, projection: Projection) -> str:
    line = (
        f"speedup      = {projection.speedup:.3f} projected; break-even at "
        f"{100 * projection.break_even_rate:.1f}% accepted for the mean draft of "
        f"{projection.mean_draft:.2f} tokens, found {100 * source.accept_rate:.1f}%"
    )
    if projection.extrapolated_steps:
        line += f"; {projection.extrapolated_steps} steps are wider than the curve"
    return line


def statistics_line(source: SourceReport) -> str:
    """llama.cpp's line for a source. One clock covers begin, draft and accept here, so its reading
    stands under draft, where nearly all of it goes, and the others are 0."""
    calls = source.calls
    line = (
        f"statistics {source.spec_type.replace('-', '_')}: #calls(b,g,a) = {calls['begin']} "
        f"{calls['draft']} {calls['accept']}, #gen drafts = {source.gen_drafts}, "
        f"#acc drafts = {source.acc_drafts}, #gen tokens = {source.gen_tokens}, "
        f"#acc tokens = {source.acc_tokens}, "
    )
    if calls["accept"]:
        rates = ", ".join(f"{rate:.3f}" for rate in source.accept_per_position)
        line += f"#mean acc len = {source.mean_accepted:.2f}, #acc rate/pos = ({rates}), "
    return line + f"dur(b,g,a) = 0.000, {1e3 * source.draft_seconds:.3f}, 0.000 ms"


def bmoe_lines(source: SourceReport, projection: Projection | None) -> list[str]:
    """bmoe's lines; the one about speed where a plain decoding speed is known."""
    lines = [
        f"ngram: {source.n_accept}/{source.n_drafted} drafts accepted "
        f"({100 * source.accept_rate:.1f}%), {source.tokens_per_decode:.2f} tokens per "
        f"verify decode ({source.n_decode} decodes for {source.n_produced} tokens)"
    ]
    if projection and projection.tokens_per_second and projection.effective_tokens_per_second:
        drafting = source.draft_seconds / source.n_produced if source.n_produced else 0.0
        lines.append(
            f"ngram: drafting costs {drafting:.4f} s/token on top of decode -> "
            f"{projection.effective_tokens_per_second:.2f} tok/s effective "
            f"(vs {projection.tokens_per_second:.2f} reported)"
        )
    lines.append(
        f"ngram: drafted on {source.drafted_steps} of {source.n_decode} steps "
        f"({100 * source.coverage:.1f}%); the rest decoded plainly"
    )
    return lines


_COLUMNS = f"{'tok/decode':>11}{'accepted':>10}{'coverage':>10}{'speedup':>9}"


def _columns(source: SourceReport, projection: Projection | None) -> str:
    speedup = f"{projection.speedup:9.3f}" if projection else f"{'-':>9}"
    return (
        f"{source.tokens_per_decode:11.3f}{100 * source.accept_rate:9.1f}%"
        f"{100 * source.coverage:9.1f}%{speedup}"
    )


def _parts_text(parts: list[PartReport], findings: Findings) -> str:
    lines = [f"{_COLUMNS}  each part by itself"]
    for part in parts:
        for source in part.sources:
            columns = _columns(source, findings.projection(source))
            lines.append(f"{columns}  {source.spec_type}, {part.name} ({part.n_tokens:,} tokens)")
        if not part.sources:
            lines.append(f"{'too short':>40}  {part.name} ({part.n_tokens:,} tokens)")
    return "\n".join(lines)


def _sweep_text(points: list[SweepPoint]) -> str:
    ranked = sorted(points, key=lambda point: -point.merit)
    lines = [f"{_COLUMNS}  sweep, best first"]
    lines += [
        f"{_columns(point.report, point.projection)}  {point.spec.spec_type}:{point.varied}"
        for point in ranked[:_SHOWN_POINTS]
    ]
    if len(ranked) > _SHOWN_POINTS:
        lines.append(
            f"... and {len(ranked) - _SHOWN_POINTS} more (all of them in --json and --csv)"
        )
    return "\n".join(lines)


def _tune_text(tune: TuneReport) -> str:
    flags = [stats_flags(tune.tuned.spec), f"--draft-max {tune.draft_max}"]
    rows = [(tune.default, configuration(tune.default)), (tune.tuned, "tuned")]
    return "\n".join(
        [
            f"tuned {tune.tuned.spec.spec_type}: {tune.searched} settings tried on "
            f"{tune.tuned_tokens:,} tokens (speedup {tune.found_speedup:.3f} there), "
            f"reported on {tune.reported_tokens:,} more",
            _COLUMNS,
            *(f"{_columns(point.report, point.projection)}  {name}" for point, name in rows),
            f"flags: {' '.join(flag for flag in flags if flag)}",
        ]
    )
