"""Parameters of the draft sources, by their flags' names: where they go, and their ranges.

Free of the C core, so that a command can list its options without loading it.
"""

from __future__ import annotations

_TIERS = ("context", "dynamic")

# name -> (member of lookup_cache_params, its array, index, least, largest); source: drafting.md, 2.
CACHE_PARAMS: dict[str, tuple[str, str, int | None, int, int]] = {
    **{f"{tier}_samples_{n}": (tier, "samples", n - 1, 1, 2**31 - 1) for tier in _TIERS for n in (1, 2, 3, 4)},
    **{f"{tier}_percent_{n}": (tier, "percent", n - 1, 0, 100) for tier in _TIERS for n in (1, 2, 3, 4)},
    "static_samples": ("static_samples", "", None, 1, 2**31 - 1),
    "static_percent": ("static_percent", "", None, 0, 100),
}
