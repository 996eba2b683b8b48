"""Tune ngram-cache's thresholds or ngram-adaptive's draft length on one text, report on another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lookup_tools.cache import Cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.params import ADAPTIVE, CACHE_PARAMS, Param
from lookup_tools.drafting.source import SourceSpec
from lookup_tools.errors import ParameterError
from lookup_tools.evaluation.sweep import SweepPoint, sweep
from lookup_tools.replaying.chunks import Ids, ReplayOptions
from lookup_tools.system.progress import Progress

_SAMPLES = (1, 2, 3, 4, 6, 8)
_PERCENTS = (25, 40, 50, 60, 66, 75, 85, 95)
_DRAFTS = (1, 2, 3, 4, 6, 8, 12, 16)
_LONG_DRAFTS = (24, 32, 48, 64)  # for a source that drafts long only where it pays
_ROUNDS = 3

# What can be tuned; ngram-adaptive has no thresholds, only a longest draft.
TUNABLE = ("ngram-cache", ADAPTIVE)

Point = tuple[SourceSpec, int]


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The thresholds found, and both settings on the text they were not found on.

    `searched` counts the settings tried; `found_speedup` is the best one's on the text searched,
    always at least as good as the default's there.
    """

    params: dict[str, int]
    draft_max: int
    searched: int
    tuned_tokens: int
    reported_tokens: int
    found_speedup: float
    default: SweepPoint
    tuned: SweepPoint


def tune(
    search_ids: Ids,
    report_ids: Ids,
    options: ReplayOptions,
    curve: CostCurve,
    *,
    static: Cache | None = None,
    dynamic: Cache | None = None,
    start: SourceSpec | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> TuneReport:
    """Search thresholds and draft length on one text, one at a time until no change helps (three
    rounds at most), and report the result on another.

    Args:
        start: ngram-cache or ngram-adaptive, with the settings to begin from.

    Raises:
        ParameterError: another source.
    """
    start = start or SourceSpec("ngram-cache")
    if start.spec_type not in TUNABLE:
        raise ParameterError(
            f"found {start.spec_type}, expected {' or '.join(TUNABLE)}: no other source is tuned"
        )
    search = _Search(search_ids, options, curve, static, dynamic, threads, progress)
    first = search.best([(start, options.draft_max)])
    top = first
    for _ in range(_ROUNDS):
        before = top.merit
        for axis in _axes(start, static):
            top = search.best([*_moves(top, axis)], top)
        if top.merit <= before:
            break
    both = [(start, options.draft_max), (top.spec, top.draft_max)]
    default, tuned = sweep(
        report_ids, both, options, static=static, dynamic=dynamic, curve=curve, threads=threads
    )
    return TuneReport(
        dict(top.spec.params), top.draft_max, search.tried, len(search_ids), len(report_ids),
        top.merit, default, tuned,
    )  # fmt: skip


def split_text(ids: Ids, n_ctx: int) -> tuple[Ids, Ids]:
    """A text's first half to search on and the rest to report on, both whole chunks.

    Raises:
        ParameterError: it has no two chunks.
    """
    n_chunks = len(ids) // n_ctx
    if n_chunks < 2:
        raise ParameterError(
            f"found {len(ids)} tokens, expected at least {2 * n_ctx} to tune on one part and "
            "report on another; use a longer text, a smaller -c or --tune-text"
        )
    cut = n_chunks // 2 * n_ctx
    return ids[:cut], ids[cut:]


@dataclass(slots=True)
class _Search:
    ids: Ids
    options: ReplayOptions
    curve: CostCurve
    static: Cache | None
    dynamic: Cache | None
    threads: int
    progress: Progress | None
    tried: int = 0

    def best(self, points: list[Point], held: SweepPoint | None = None) -> SweepPoint:
        """The best of `points`; `held` unless one is better."""
        found = sweep(
            self.ids, points, self.options, static=self.static, dynamic=self.dynamic,
            curve=self.curve, threads=self.threads,
        )  # fmt: skip
        self.tried += len(points)
        if self.progress is not None:
            self.progress("tune", self.tried, None)
        return max(([held] if held else []) + found, key=lambda point: point.merit)


def _axes(start: SourceSpec, static: Cache | None) -> Iterator[Param | None]:
    """What is varied: the draft length (None), then thresholds, the most used tier first."""
    yield None
    if start.spec_type == ADAPTIVE:
        return
    for name, param in CACHE_PARAMS.items():
        if static is not None or not name.startswith("static"):
            yield param


def _moves(top: SweepPoint, axis: Param | None) -> Iterator[Point]:
    if axis is None:
        lengths = _DRAFTS + (_LONG_DRAFTS if top.spec.spec_type == ADAPTIVE else ())
        yield from ((top.spec, draft) for draft in lengths if draft != top.draft_max)
        return
    present = top.spec.values()[axis.name]
    for value in _SAMPLES if "samples" in axis.name else _PERCENTS:
        if value != present:
            yield replace(top.spec, params={**top.spec.params, axis.name: value}), top.draft_max
