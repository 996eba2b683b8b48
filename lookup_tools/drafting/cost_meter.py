"""What an engine's batches cost, measured while it decodes."""

from __future__ import annotations

from collections import deque
from statistics import median

from lookup_tools.drafting.cost_curve import CostCurve

_KEPT = 64  # observations of each width; the engine of an hour ago does not count
_ENOUGH = 3  # a median of fewer may be a single pause
_HOPE = 0.25  # what one more token is taken to cost where nothing was measured: enough to try


class CostMeter:
    """Collects the width and seconds of steps; medians, so that pauses and noise do not count."""

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}

    def observe(self, width: int, seconds: float) -> None:
        """One batch of `width` tokens took so long."""
        if width >= 1 and seconds > 0:
            self._seconds.setdefault(width, deque(maxlen=_KEPT)).append(seconds)

    def points(self) -> list[tuple[int, float]]:
        """Widths measured often enough and their costs in steps of one token, which never fall;
        empty before the first is known."""
        known = sorted(
            (width, median(seconds))
            for width, seconds in self._seconds.items()
            if len(seconds) >= _ENOUGH
        )
        if not known or known[0][0] != 1:
            return []
        single, highest, points = known[0][1], 1.0, []
        for width, seconds in known:
            highest = max(highest, seconds / single)
            points.append((width, highest))
        return points

    def curve(self) -> CostCurve:
        """What to draft by: unknown widths are hoped to be cheap, so that they are tried."""
        return _continued(self.points(), _HOPE)

    def bound(self) -> CostCurve:
        """What a draft may be trusted not to exceed: unknown tokens cost as much as alone."""
        return _continued(self.points(), 1.0)


def _continued(points: list[tuple[int, float]], slope: float) -> CostCurve:
    last, cost = points[-1] if points else (1, 1.0)
    if len(points) > 1 and slope < 1:
        before, earlier = points[-2]
        slope = min(1.0, max(slope / 4, (cost - earlier) / (last - before)))
    return CostCurve.of([*(points or [(1, 1.0)]), (last + 64, cost + 64 * slope)], "measured")
