"""When to stop drafting: an account of what drafts have saved and what their batches have cost.

The unit is one plain decode. A step that verifies k drafted tokens takes cost(1 + k) of them and
yields one token and the a tokens accepted, so against plain decoding it wins a - (cost(1 + k) - 1).
The account sums this up, starts with `_CREDIT`, gains `_RATE` with every token that is said, and
is never overdrawn: a draft is only made as long as the account could pay for if all of it were
refused. So for any text and any source, T tokens take at most T * (1 + _RATE) + _CREDIT decodes'
time, which is 0.98 of plain decoding's speed or more from 100 tokens on, as far as the curve is
true. Drafts that pay keep the account full and are never held back; where they do not, the rate
leaves a short probe every hundred tokens or so, and what it wins lengthens the next one.

What a full account holds is bounded, so that after much code a page of prose is noticed soon.
Source: the break-even rate of `verify_cost.Projection`, told in sums: the account grows where the
share of accepted tokens is above it.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from lookup_tools.drafting.cost_curve import CostCurve

_CREDIT = 1.0
_RATE = 0.01
_FULL_DRAFTS = 2.0  # what a full account can pay for


class DraftBudget:
    """The account of one engine and one source.

    Args:
        curve: what verifying costs.
        n_draft: most tokens in a draft.
    """

    def __init__(self, curve: CostCurve, n_draft: int) -> None:
        self._n_draft = n_draft
        self.balance = _CREDIT
        self.set_curve(curve)

    def set_curve(self, curve: CostCurve) -> None:
        """Count by this curve from now on."""
        self._costs = [curve.at(1 + drafted) - 1 for drafted in range(self._n_draft + 1)]
        # measured curves may dip: the longest draft within the balance is looked up in their peaks
        self._stakes = list(accumulate(self._costs, max))
        self._most = max(_CREDIT, _FULL_DRAFTS * self._stakes[-1])

    def limit(self) -> int:
        """How many tokens may be drafted now."""
        return max(0, bisect_right(self._stakes, self.balance) - 1)

    def enter(self, drafted: int, accepted: int) -> None:
        """Enter a step: `drafted` tokens verified, the `accepted` first of them right."""
        won = accepted - self._costs[drafted]
        self.balance = min(self._most, self.balance + won + _RATE * (accepted + 1))
