"""Does it pay? The speedup that an engine's verify cost leaves of a replay.

Drafting itself is never what speculation costs; the widened batch is (docs/drafting.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.replaying.source_report import SourceReport, ratio


@dataclass(frozen=True, slots=True)
class Projection:
    """What a cost curve makes of one source's replay.

    `break_even_rate` is the share of drafted tokens that must be accepted for drafts of the mean
    length to cost nothing in all; `break_even_rate_exact` weighs every length that was drafted.
    `effective_tokens_per_second` includes the time drafting itself took.
    """

    speedup: float
    mean_cost: float
    mean_draft: float
    break_even_rate: float
    break_even_rate_exact: float
    tokens_per_second: float | None
    effective_tokens_per_second: float | None
    extrapolated_steps: int

    @property
    def pays(self) -> bool:
        """Whether it beats no drafting by what two decimals can show."""
        return round(self.speedup, 2) > 1.0


def project(
    source: SourceReport, curve: CostCurve, tokens_per_second: float | None = None
) -> Projection:
    """Speedup = tokens produced / sum over steps of cost(1 + drafted).

    `tokens_per_second` is plain decoding's; it overrules the curve's own.
    """
    steps = source.drafted_length_histogram
    total = sum(count * curve.at(1 + drafted) for drafted, count in enumerate(steps) if count)
    speedup = ratio(source.n_produced, total) or 1.0
    mean = ratio(source.n_drafted, source.drafted_steps)
    plain = tokens_per_second or curve.tokens_per_second
    with_drafts = plain * speedup if plain else None
    return Projection(
        speedup=speedup,
        mean_cost=ratio(total, source.n_decode) or 1.0,
        mean_draft=mean,
        break_even_rate=ratio(_between(curve, 1 + mean) - 1, mean),
        break_even_rate_exact=ratio(total - source.n_decode, source.n_drafted),
        tokens_per_second=with_drafts,
        effective_tokens_per_second=_effective(source, with_drafts),
        extrapolated_steps=sum(steps[max(curve.widest, 1) :]),
    )


def _between(curve: CostCurve, width: float) -> float:
    """The cost at a mean width, which need not be whole."""
    low = int(width)
    return curve.at(low) + (width - low) * (curve.at(low + 1) - curve.at(low))


def _effective(source: SourceReport, with_drafts: float | None) -> float | None:
    if not with_drafts:
        return None
    return 1 / (1 / with_drafts + ratio(source.draft_seconds, source.n_produced))


def best(projections: Iterable[tuple[SourceReport, Projection]]) -> SourceReport | None:
    """The source with the largest speedup, None if nothing beats off."""
    paying = [(projection.speedup, source) for source, projection in projections if projection.pays]
    return max(paying, key=lambda each: each[0])[1] if paying else None
