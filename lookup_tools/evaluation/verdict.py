"""Everything one run of lookup-stats found, and its verdict: which source pays, or off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.source import SourceSpec
from lookup_tools.evaluation.engine_command import engine_command, engine_notes, off_command
from lookup_tools.evaluation.sweep import SweepPoint
from lookup_tools.evaluation.tune import TuneReport
from lookup_tools.evaluation.verify_cost import Projection, project
from lookup_tools.replaying.replay import ReplayReport
from lookup_tools.replaying.source_report import SourceReport


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best configuration tried; `pays` is false where drafting nothing is better than all."""

    pays: bool
    speedup: float
    spec_type: str
    configuration: str
    command: str | None
    notes: list[str]
    n_tried: int
    curve: str
    curve_is_example: bool


@dataclass(frozen=True, slots=True)
class Findings:
    """A replay and what was made of it; `by_length` holds the sources at several draft lengths, for
    the figures."""

    report: ReplayReport
    curve: CostCurve | None = None
    tokens_per_second: float | None = None
    sweep: list[SweepPoint] = field(default_factory=list)
    tune: TuneReport | None = None
    model: str | None = None
    by_length: list[SweepPoint] = field(default_factory=list)

    def projection(self, source: SourceReport) -> Projection | None:
        return project(source, self.curve, self.tokens_per_second) if self.curve else None

    def points(self) -> Iterator[SweepPoint]:
        """Every configuration tried, sources first. The tuned one counts by the text it was not
        tuned on."""
        for source in self.report.sources:
            spec = SourceSpec(source.spec_type, source.params)
            yield SweepPoint(spec, source.draft_max, source, self.projection(source))
        yield from self.sweep
        if self.tune is not None:
            yield self.tune.tuned

    def verdict(self) -> Verdict | None:
        """None without a cost curve: then nothing can be said about speed."""
        if self.curve is None:
            return None
        points = list(self.points())
        top = max(points, key=lambda point: point.merit)
        assert top.projection is not None
        pays = top.projection.pays
        command = engine_command(top.spec, model=self.model, static=top.report.static_path)
        return Verdict(
            pays, top.projection.speedup, top.spec.spec_type, configuration(top),
            command if pays else off_command(self.model),
            engine_notes(top.spec, top.draft_max) if pays else [],
            len(points), self.curve.name, self.curve.is_example,
        )  # fmt: skip


def configuration(point: SweepPoint, usual_draft_max: int = 0) -> str:
    """A source and what is not default about it, for people; a draft-max that is the usual one in
    a table is left out."""
    changed = [
        f"{param.stem.replace('_', '-')} {value}"
        for _, param, value in point.spec.given()
        if value != param.default
    ]
    if point.draft_max != usual_draft_max:
        changed.append(f"draft-max {point.draft_max}")
    inside = f" ({', '.join(changed)})" if changed else ""
    return f"{point.spec.spec_type}{inside}"
