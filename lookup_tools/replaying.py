"""Replaying a text against draft sources: what drafting would have been worth, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, ffi, i32, lib
from lookup_tools.cache import Cache
from lookup_tools.drafting import as_tokens
from lookup_tools.errors import ParameterError
from lookup_tools.sources import DynamicTable, SourceSpec, cache_param_values, make_source

TIERS = ("context", "dynamic", "static")
Progress = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a text is replayed; see `lookup-stats --help`."""

    n_ctx: int = 4096
    draft_max: int = 8
    prompt_tokens: int = 0
    compat: str | None = None

    def __post_init__(self) -> None:
        if self.n_ctx < 2:
            raise ParameterError(f"found n_ctx {self.n_ctx}, expected at least 2")
        if not 1 <= self.draft_max <= lib.LOOKUP_MAX_DRAFT:
            raise ParameterError(f"found draft_max {self.draft_max}, expected 1 to {lib.LOOKUP_MAX_DRAFT}")
        if not 0 <= self.prompt_tokens < self.n_ctx:
            raise ParameterError(f"found prompt_tokens {self.prompt_tokens}, expected 0 to {self.n_ctx - 1} (below n_ctx)")
        if self.compat not in (None, "llama.cpp"):
            raise ParameterError(f"found compat {self.compat!r}, expected llama.cpp")

    def chunk_starts(self, n_tokens: int) -> range:
        """Where chunks begin. llama.cpp leaves out the last chunk of an exact multiple; so does
        `compat`.

        Raises:
            ParameterError: the text is shorter than one chunk.
        """
        least = self.n_ctx + (self.compat == "llama.cpp")
        if n_tokens < least:
            raise ParameterError(
                f"found {n_tokens} tokens, expected at least {least} for one chunk; use a longer text or a smaller -c"
            )
        return range(0, n_tokens - least + 1, self.n_ctx)


@dataclass(frozen=True, slots=True)
class TierCounts:
    """Tokens a tier drafted, and how many of them came true."""

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What one source did over the whole replay (drafting.md, section 5)."""

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

    @property
    def accept_rate(self) -> float:
        return _ratio(self.n_accept, self.n_drafted)

    @property
    def tokens_per_decode(self) -> float:
        return _ratio(self.n_produced, self.n_decode)

    @property
    def mean_accepted(self) -> float:
        """Mean tokens of a step that had a draft: the accepted ones and the model's own."""
        return 1 + _ratio(self.acc_tokens, self.calls["accept"])

    @property
    def coverage(self) -> float:
        return _ratio(self.drafted_steps, self.n_decode)

    @property
    def us_per_drafted_token(self) -> float:
        return 1e6 * _ratio(self.draft_seconds, self.n_drafted)

    @property
    def us_per_step(self) -> float:
        return 1e6 * _ratio(self.draft_seconds, self.n_decode)


def _ratio(part: float, whole: float) -> float:
    """0 where there is nothing to divide by: reports never say nan."""
    return part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A replay of one text by one or more sources."""

    n_tokens: int
    n_ctx: int
    n_chunks: int
    n_predict: int
    n_prompt: int
    draft_max: int
    sources: list[SourceReport]


def replay(
    tokens: Any,
    sources: Sequence[str | SourceSpec] = ("ngram-cache",),
    *,
    static: Cache | None = None,
    dynamic: Cache | None = None,
    n_ctx: int = 4096,
    draft_max: int = 8,
    prompt_tokens: int = 0,
    compat: str | None = None,
    progress: Progress | None = None,
) -> ReplayReport:
    """Replay a text in chunks of `n_ctx` tokens; its own tokens stand in for the model.

    After each chunk the context is merged into the dynamic cache. Drafting is timed over whole
    chunks (no clock is read inside), the merging beside it; the caches' files are never changed.
    One chunk is one call into C, which runs without the GIL.

    Raises:
        ParameterError: a parameter is out of range, or the text is shorter than one chunk.
    """
    options = ReplayOptions(n_ctx, draft_max, prompt_tokens, compat)
    ids = as_tokens(tokens)
    starts = options.chunk_starts(len(ids))
    held = [cache for cache in (static, dynamic) if cache is not None]
    for cache in held:
        cache.hold()
    try:
        reports = []
        for source in sources:
            spec = source if isinstance(source, SourceSpec) else SourceSpec(source)
            reports.append(_replay_one(ids, spec, static, dynamic, options, starts, progress))
    finally:
        for cache in held:
            cache.release()
    return ReplayReport(
        len(ids), n_ctx, len(starts), len(starts) * (n_ctx - prompt_tokens), len(starts) * prompt_tokens, draft_max, reports
    )


def _replay_one(
    ids: npt.NDArray[np.int32],
    spec: SourceSpec,
    static: Cache | None,
    dynamic: Cache | None,
    options: ReplayOptions,
    starts: range,
    progress: Progress | None,
) -> SourceReport:
    table = DynamicTable(dynamic, spec.params)
    source = make_source(spec, static, table)
    stats = ffi.new("lookup_replay_stats *")
    pointer = i32(ids)
    draft_seconds = merge_seconds = 0.0
    for done, start in enumerate(starts):
        chunk = pointer + start
        before = time.perf_counter()
        status = lib.lookup_replay_chunk(source, chunk, options.n_ctx, options.prompt_tokens, options.draft_max, stats)
        between = time.perf_counter()
        check(status, spec.spec_type)
        check(lib.lookup_table_update(table.handle, chunk, options.n_ctx), spec.spec_type)
        lib.lookup_table_end_stream(table.handle)
        draft_seconds += between - before
        merge_seconds += time.perf_counter() - between
        if progress is not None:
            progress(f"replay {spec.spec_type}", (done + 1) * options.n_ctx, len(starts) * options.n_ctx)
    return _report(spec, stats, options.draft_max, draft_seconds, merge_seconds)


def _report(spec: SourceSpec, stats: Any, draft_max: int, draft_seconds: float, merge_seconds: float) -> SourceReport:
    accepted_at = list(stats.accepted_at[0:draft_max])
    return SourceReport(
        spec_type=spec.spec_type,
        params=cache_param_values(spec.params),
        n_decode=stats.n_decode,
        n_produced=stats.n_produced,
        drafted_steps=stats.drafted_steps,
        n_drafted=stats.n_drafted,
        n_accept=stats.n_accept,
        draft_seconds=draft_seconds,
        merge_seconds=merge_seconds,
        calls={"begin": stats.calls_begin, "draft": stats.calls_draft, "accept": stats.calls_accept},
        gen_drafts=stats.gen_drafts,
        acc_drafts=stats.acc_drafts,
        gen_tokens=stats.gen_tokens,
        acc_tokens=stats.acc_tokens,
        accept_per_position=[_ratio(n, stats.gen_drafts) for n in accepted_at],
        accepted_length_histogram=list(stats.accepted_length[0 : draft_max + 1]),
        tiers={
            tier: TierCounts(stats.tier_drafted[k], stats.tier_accepted[k]) for k, tier in enumerate(TIERS)
        },
    )
