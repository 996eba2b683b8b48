"""One run of lookup-stats as a library call: replay, sweep, tune, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lookup_tools.cache import Cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.source import SourceSpec
from lookup_tools.errors import ParameterError
from lookup_tools.evaluation.sweep import MAX_POINTS, SweepPoint, sweep
from lookup_tools.evaluation.tune import TUNABLE, TuneReport, split_text, tune
from lookup_tools.evaluation.verdict import Findings
from lookup_tools.replaying.chunks import Ids, ReplayOptions
from lookup_tools.replaying.replay import Part, replay
from lookup_tools.system.progress import Progress

# Draft lengths of the figure "speedup against draft length".
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is asked of one text: sources to replay, configurations to try, thresholds to tune.

    `options.threads` replay the reported sources, `threads` the configurations of `points`.
    """

    ids: Ids
    specs: list[SourceSpec]
    options: ReplayOptions = field(default_factory=ReplayOptions)
    points: list[tuple[SourceSpec, int]] = field(default_factory=list)
    curve: CostCurve | None = None
    tokens_per_second: float | None = None
    tune: bool = False
    tune_ids: Ids | None = None
    parts: Sequence[Part] = ()
    by_length: bool = False
    model: str | None = None
    threads: int = 1


def assess(
    what: Assessment,
    *,
    static: Sequence[Cache] = (),
    dynamic: Cache | None = None,
    progress: Progress | None = None,
) -> Findings:
    """Do all of it. Sweeps and tuning use the first static cache.

    Raises:
        ParameterError: tuning without a cost curve (accepted tokens alone would always ask for
            looser thresholds), or what the parts of it raise.
    """
    if what.tune and what.curve is None:
        raise ParameterError(
            "found --tune without --verify-cost, expected both: what pays depends on the cost"
        )
    if len(what.points) > MAX_POINTS:
        raise ParameterError(
            f"found {len(what.points)} points to sweep, expected up to {MAX_POINTS}"
        )
    report = replay(
        what.ids, what.specs, static=static, dynamic=dynamic, options=what.options,
        parts=what.parts, progress=progress,
    )  # fmt: skip
    first = static[0] if static else None

    def tried(points: Sequence[tuple[SourceSpec, int]]) -> list[SweepPoint]:
        return sweep(
            what.ids, points, what.options, static=first, dynamic=dynamic, curve=what.curve,
            threads=what.threads, progress=progress,
        )  # fmt: skip

    lengths = [(spec, length) for spec in what.specs for length in LENGTHS if what.by_length]
    return Findings(
        report,
        what.curve,
        what.tokens_per_second,
        tried(what.points) if what.points else [],
        _tuned(what, first, dynamic, progress) if what.tune else None,
        what.model,
        tried(lengths) if lengths else [],
    )


def _tuned(
    what: Assessment,
    static: Cache | None,
    dynamic: Cache | None,
    progress: Progress | None,
) -> TuneReport:
    assert what.curve is not None
    search, rest = (
        (what.tune_ids, what.ids)
        if what.tune_ids is not None
        else split_text(what.ids, what.options.n_ctx)
    )
    start = next((spec for spec in what.specs if spec.spec_type in TUNABLE), None)
    return tune(
        search, rest, what.options, what.curve, static=static, dynamic=dynamic, start=start,
        threads=what.threads, progress=progress,
    )  # fmt: skip
