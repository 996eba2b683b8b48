"""Sweeps: one source over every combination of some parameters, ranked by its worth."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from lookup_tools.cache import Cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.params import find_param, member_kinds
from lookup_tools.drafting.source import SourceSpec
from lookup_tools.errors import ParameterError
from lookup_tools.evaluation.verify_cost import Projection, project
from lookup_tools.replaying.chunks import Ids, ReplayOptions, Run, held
from lookup_tools.replaying.source_report import SourceReport
from lookup_tools.system.progress import Progress

MAX_POINTS = 10_000
DRAFT_MAX = "draft_max"  # the one option a sweep may vary beside the source's parameters


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One configuration, and what its replay came to; no projection without a cost curve."""

    spec: SourceSpec
    draft_max: int
    report: SourceReport
    projection: Projection | None

    @property
    def varied(self) -> str:
        """The parameters given, as a sweep names them."""
        names = [f"{param.stem.replace('_', '-')}={value}" for _, param, value in self.spec.given()]
        return ",".join([*names, f"draft-max={self.draft_max}"])

    @property
    def merit(self) -> float:
        """What configurations are ranked by: the speedup or, without a cost curve, what it would be
        if verifying were free."""
        return self.projection.speedup if self.projection else self.report.tokens_per_decode


@dataclass(frozen=True, slots=True)
class Axes:
    """A parsed sweep: a source, and the values of each of its parameters."""

    spec_type: str
    values: dict[str, list[int]]

    def points(
        self, draft_max: int, fixed: Mapping[str, int] | None = None
    ) -> Iterator[tuple[SourceSpec, int]]:
        """Every combination, with `fixed` parameters besides. The last one varies fastest."""
        names = list(self.values)
        for row in itertools.product(*self.values.values()):
            params = {**(fixed or {}), **dict(zip(names, row, strict=True))}
            most = params.pop(DRAFT_MAX, draft_max)
            yield SourceSpec(self.spec_type, params), most


def parse_sweep(text: str) -> Axes:
    """`SOURCE:param=2..8,param=1,3,8`: lists, ranges a..b and a..b..step, of flags or short names.

    Raises:
        ParameterError: it reads otherwise, or a value is outside its parameter's range.
    """
    source, colon, rest = text.partition(":")
    kinds = member_kinds(source)
    values: dict[str, list[int]] = {}
    name = ""
    for item in rest.split(",") if colon else []:
        key, equals, value = item.rpartition("=")
        if equals:
            name = _axis(kinds, key.strip(), values)
        if not name:
            break
        values[name] += _values(value.strip(), text)
    if not values:
        raise ParameterError(
            f"found sweep {text!r}, expected SOURCE:parameter=values, such as "
            "ngram-suffix:ngram-min-match=2..8,draft=1,3,8"
        )
    axes = Axes(source, {key: list(dict.fromkeys(row)) for key, row in values.items()})
    _check(axes, kinds, text)
    return axes


def _axis(kinds: list[str], key: str, values: dict[str, list[int]]) -> str:
    plain = key.removeprefix("--").replace("-", "_")
    name = DRAFT_MAX if plain == DRAFT_MAX else find_param(kinds, key)[1].stem
    if name in values:
        raise ParameterError(f"found {key} twice in one sweep, expected it once")
    values[name] = []
    return name


def _values(text: str, sweep: str) -> list[int]:
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+)(?:\.\.(\d+))?)?", text)
    if not match or match[3] == "0":
        raise ParameterError(f"found {text!r} in sweep {sweep!r}, expected 3, 2..8 or 8..64..8")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first or last - first > 2**20:
        raise ParameterError(f"found {text!r} in sweep {sweep!r}, expected a rising range")
    return list(range(first, last + 1, int(match[3] or 1)))


def _check(axes: Axes, kinds: list[str], text: str) -> None:
    count = 1
    for name, row in axes.values.items():
        count *= len(row)
        for value in row:
            if name == DRAFT_MAX:
                ReplayOptions(draft_max=value)
            else:
                find_param(kinds, name)[1].check(value)
    if count > MAX_POINTS:
        raise ParameterError(f"found {count} points in sweep {text!r}, expected up to {MAX_POINTS}")


def sweep(
    ids: Ids,
    points: Sequence[tuple[SourceSpec, int]],
    options: ReplayOptions,
    *,
    static: Cache | None = None,
    dynamic: Cache | None = None,
    curve: CostCurve | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> list[SweepPoint]:
    """Replay every configuration (`threads` at the same time), in the order given."""
    chunks = options.chunks(len(ids))

    def one(point: tuple[SourceSpec, int]) -> SweepPoint:
        spec, draft_max = point
        run = Run(ids, spec, replace(options, draft_max=draft_max), static, dynamic)
        report = run.report(chunks)
        return SweepPoint(spec, draft_max, report, project(report, curve) if curve else None)

    found: list[SweepPoint] = []
    with held([static, dynamic]), ThreadPoolExecutor(threads, "sweep") as pool:
        for point in pool.map(one, points):
            found.append(point)
            if progress is not None:
                progress("sweep", len(found), len(points))
    return found


def best_point(points: Sequence[SweepPoint]) -> SweepPoint | None:
    """The configuration with the most merit, the first of equals; None if there is none, or if
    a cost curve says that nothing beats off."""
    top = max(points, key=lambda point: point.merit, default=None)
    return None if top is None or (top.projection and not top.projection.pays) else top
