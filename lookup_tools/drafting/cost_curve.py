"""What verifying a batch costs by its width: the engine's side of a draft."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from lookup_tools.errors import ParameterError

# Shapes, not measurements of your engine. `dense` is bound by reading weights until the batch is
# wide. `moe` reads further experts with each further token; up to width 4 it is fitted to what bmoe
# measured on a 35B mixture of experts, beyond that it is continued by eye.
PRESETS = {
    "dense": "1:1,2:1.03,4:1.08,8:1.18,16:1.4,32:1.9,64:3",
    "moe": "1:1,2:1.8,4:3.4,8:5.6,16:8.5,32:12,64:16",
}


@dataclass(frozen=True, slots=True)
class CostCurve:
    """The time of verifying w tokens in one batch, relative to one token.

    `points` are (width, cost), widths rising from 1, cost(1) = 1. Between them the cost is
    interpolated linearly, behind the last one the last two go on, but never fall.
    `tokens_per_second` is plain decoding's speed where the measurement says it.
    """

    points: tuple[tuple[int, float], ...]
    name: str = "table"
    is_example: bool = False
    tokens_per_second: float | None = None

    @classmethod
    def of(
        cls,
        pairs: Iterable[tuple[float, float]],
        name: str = "table",
        *,
        is_example: bool = False,
        seconds: bool = False,
    ) -> CostCurve:
        """From (width, time) in any unit, any order; `seconds` says that the unit is seconds.

        Raises:
            ParameterError: no width 1, a width twice, or what is no width or no time.
        """
        rows = sorted(pairs)
        for width, cost in rows:
            if width != int(width) or not 1 <= width <= 2**20 or not 1e-12 < cost < 1e12:
                raise ParameterError(
                    f"{name}: found cost {cost} at width {width}, expected whole widths from 1 on "
                    "and costs above 0"
                )
        widths = [int(width) for width, _ in rows]
        if not widths or widths[0] != 1:
            raise ParameterError(f"{name}: found no cost of width 1, expected one to compare with")
        if len(set(widths)) != len(widths):
            raise ParameterError(f"{name}: found a width twice, expected each one once")
        single = rows[0][1]
        points = tuple((int(width), cost / single) for width, cost in rows)
        return cls(points, name, is_example, 1 / single if seconds else None)

    @classmethod
    def example(cls, name: str) -> CostCurve:
        """One of PRESETS."""
        pairs = (pair.split(":") for pair in PRESETS[name].split(","))
        return cls.of(((int(w), float(c)) for w, c in pairs), name, is_example=True)

    @property
    def widest(self) -> int:
        return self.points[-1][0]

    def at(self, width: int) -> float:
        """cost(width)."""
        widths = [point[0] for point in self.points]
        if len(widths) == 1:
            return self.points[0][1]
        right = min(max(bisect_right(widths, width), 1), len(widths) - 1)
        (w0, c0), (w1, c1) = self.points[right - 1], self.points[right]
        if width > w1 and c1 < c0:  # noise: going on would end below zero
            return c1
        return c0 + (c1 - c0) * (width - w0) / (w1 - w0)
