"""What a replay measured of one source (drafting.md, section 5)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from lookup_tools._native import ffi
from lookup_tools.drafting.group import Calibration
from lookup_tools.drafting.params import CACHE_USERS
from lookup_tools.drafting.source import Source, SourceSpec

TIERS = ("context", "dynamic", "static")
_MEMBER_COUNTS = (
    "calls_begin", "calls_draft", "calls_accept",
    "gen_drafts", "acc_drafts", "gen_tokens", "acc_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TierCounts:
    """Tokens a tier drafted, and how many of them were accepted."""

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class RequestsReport:
    """`n` requests that share each batch; `speedup` is against n requests without drafts."""

    n: int
    speedup: float
    n_drafted: int
    n_accept: int


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What one source did over a whole replay.

    `accept_per_position[i]` is the share of drafts whose token i was accepted: a token counts as
    refused when an earlier one of its draft was. The two histograms count steps by length.
    `draft_seconds` is the median of `draft_seconds_runs`. `counters` says what sources that keep a
    pool or keys did with them; `members` splits a chain. `requests` is what it is worth when
    several requests share each batch. `calibration` is ngram-adaptive's.
    """

    spec_type: str
    params: dict[str, Any]
    n_decode: int
    n_produced: int
    drafted_steps: int
    n_drafted: int
    n_accept: int
    draft_seconds: float
    merge_seconds: float
    calls: dict[str, int]
    gen_drafts: int
    acc_drafts: int
    gen_tokens: int
    acc_tokens: int
    accept_per_position: list[float]
    accepted_length_histogram: list[int]
    tiers: dict[str, TierCounts] | None
    drafted_length_histogram: list[int] = field(default_factory=list)
    draft_max: int = 0
    static_path: str | None = None
    draft_seconds_runs: list[float] = field(default_factory=list)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    members: list[dict[str, Any]] = field(default_factory=list)
    requests: list[RequestsReport] = field(default_factory=list)
    calibration: Calibration | None = None

    @property
    def accept_rate(self) -> float:
        return ratio(self.n_accept, self.n_drafted)

    @property
    def tokens_per_decode(self) -> float:
        return ratio(self.n_produced, self.n_decode)

    @property
    def mean_accepted(self) -> float:
        """Mean tokens of a step that had a draft: the accepted ones and the model's own."""
        return 1 + ratio(self.acc_tokens, self.calls["accept"])

    @property
    def coverage(self) -> float:
        return ratio(self.drafted_steps, self.n_decode)

    @property
    def us_per_drafted_token(self) -> float:
        return 1e6 * ratio(self.draft_seconds, self.n_drafted)

    @property
    def us_per_step(self) -> float:
        return 1e6 * ratio(self.draft_seconds, self.n_decode)


def ratio(part: float, whole: float) -> float:
    """0 where there is nothing to divide by: reports never say nan."""
    return part / whole if whole else 0.0


class Tally:
    """Sums over chunks, in any order: the result does not depend on who replayed what."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self.stats = ffi.new("lookup_replay_stats *")
        self.draft_seconds = self.merge_seconds = 0.0
        self._mod = {"resets_low": 0, "resets_full": 0, "used": 0, "used_max": 0}
        self.calibration: Calibration | None = None
        self._mod_chunk = -1
        self._maps = {
            kind: {"keys_max": 0, "values_max": 0} for kind in spec.kinds if "-map-" in kind
        }
        self._members = [dict.fromkeys(_MEMBER_COUNTS, 0) for _ in spec.kinds]

    def look(self, source: Source, chunk: int) -> None:
        """Note how full a source is after a chunk, the present one if it is the last."""
        mod = source.mod_counts()
        if mod is not None:
            self._mod["used_max"] = max(self._mod["used_max"], mod.used)
            if chunk > self._mod_chunk:
                self._mod_chunk, self._mod["used"] = chunk, mod.used
        for kind, held in self._maps.items():
            counts = source.map_counts(kind)
            assert counts is not None
            for name in ("keys", "values"):
                held[f"{name}_max"] = max(held[f"{name}_max"], getattr(counts, name))

    def finish(self, source: Source) -> None:
        """Take over what a source counted over its life, once."""
        mod = source.mod_counts()
        if mod is not None:
            self._mod["resets_low"] += mod.resets_low
            self._mod["resets_full"] += mod.resets_full
        for mine, counts in zip(self._members, source.chain_counts(), strict=False):
            for name in _MEMBER_COUNTS:
                mine[name] += getattr(counts, name)

    def add(self, other: Tally) -> None:
        """Everything another tally holds."""
        _add_stats(self.stats, other.stats)
        self.draft_seconds += other.draft_seconds
        self.merge_seconds += other.merge_seconds
        for name in ("resets_low", "resets_full"):
            self._mod[name] += other._mod[name]
        self._mod["used_max"] = max(self._mod["used_max"], other._mod["used_max"])
        if other._mod_chunk > self._mod_chunk:
            self._mod_chunk, self._mod["used"] = other._mod_chunk, other._mod["used"]
        for kind, held in self._maps.items():
            for name in held:
                held[name] = max(held[name], other._maps[kind][name])
        for mine, theirs in zip(self._members, other._members, strict=True):
            for name in _MEMBER_COUNTS:
                mine[name] += theirs[name]

    def counters(self) -> dict[str, dict[str, int]]:
        found = dict(self._maps)
        if "ngram-mod" in self._spec.kinds:
            found["ngram-mod"] = self._mod
        return found

    def members(self) -> list[dict[str, Any]]:
        if len(self._spec.kinds) == 1:
            return []
        names = self._spec.member_names
        return [
            {"spec_type": name, **counts} for name, counts in zip(names, self._members, strict=True)
        ]

    def report(self, draft_max: int, static_path: str | None, runs: list[float]) -> SourceReport:
        """The sums as a report; `runs` are the draft seconds of each repetition."""
        stats, spec = self.stats, self._spec
        has_tiers = spec.kinds == ["ngram-cache"]
        return SourceReport(
            spec_type=spec.spec_type,
            params=dict(spec.values()),
            n_decode=stats.n_decode,
            n_produced=stats.n_produced,
            drafted_steps=stats.drafted_steps,
            n_drafted=stats.n_drafted,
            n_accept=stats.n_accept,
            draft_seconds=statistics.median(runs),
            merge_seconds=self.merge_seconds,
            calls={name: getattr(stats, f"calls_{name}") for name in ("begin", "draft", "accept")},
            gen_drafts=stats.gen_drafts,
            acc_drafts=stats.acc_drafts,
            gen_tokens=stats.gen_tokens,
            acc_tokens=stats.acc_tokens,
            accept_per_position=[
                ratio(n, stats.gen_drafts) for n in list(stats.accepted_at[0:draft_max])
            ],
            accepted_length_histogram=list(stats.accepted_length[0 : draft_max + 1]),
            tiers=_tiers(stats) if has_tiers else None,
            drafted_length_histogram=list(stats.drafted_length[0 : draft_max + 1]),
            draft_max=draft_max,
            static_path=static_path if set(CACHE_USERS) & set(spec.kinds) else None,
            draft_seconds_runs=runs,
            counters=self.counters(),
            members=self.members(),
        )


def _tiers(stats: Any) -> dict[str, TierCounts]:
    return {
        tier: TierCounts(stats.tier_drafted[k], stats.tier_accepted[k])
        for k, tier in enumerate(TIERS)
    }


def _add_stats(into: Any, other: Any) -> None:
    """`lookup_replay_stats` are u64 counts throughout."""
    size = ffi.sizeof("lookup_replay_stats") // 8
    mine, theirs = ffi.cast("uint64_t *", into), ffi.cast("uint64_t *", other)
    total = [a + b for a, b in zip(mine[0:size], theirs[0:size], strict=True)]
    mine[0:size] = total
