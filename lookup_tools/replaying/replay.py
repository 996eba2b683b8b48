"""Replaying a text against draft sources: what drafting would have been worth, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lookup_tools.cache import Cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.params import CACHE_USERS
from lookup_tools.drafting.source import SourceSpec
from lookup_tools.errors import ParameterError
from lookup_tools.replaying.chunks import Chunk, ReplayOptions, Run, held
from lookup_tools.replaying.requests import replay_requests
from lookup_tools.replaying.source_report import TIERS, SourceReport, TierCounts
from lookup_tools.system.progress import Progress
from lookup_tools.tokens.stream import as_tokens

__all__ = [
    "TIERS",
    "Part",
    "PartReport",
    "Progress",
    "ReplayOptions",
    "ReplayReport",
    "SourceReport",
    "TierCounts",
    "replay",
]


@dataclass(frozen=True, slots=True)
class Part:
    """A named stretch [start, end) of the text: a file, a document."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartReport:
    """A part replayed by itself; too short a one has nothing to predict and no sources."""

    name: str
    n_tokens: int
    n_predict: int
    sources: list[SourceReport]


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
    state: str = "fresh"
    compat: str | None = None
    parts: list[PartReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def replay(
    tokens: Any,
    sources: Sequence[str | SourceSpec] = ("ngram-cache",),
    *,
    static: Cache | Sequence[Cache] | None = None,
    dynamic: Cache | None = None,
    options: ReplayOptions | None = None,
    parts: Sequence[Part] = (),
    progress: Progress | None = None,
) -> ReplayReport:
    """Replay a text in chunks of `options.n_ctx` tokens; its own tokens stand in for the model.

    A source is one name or a chain `a,b`; several are replayed over the same tokens, those that
    draft from static caches once with each of several. With `state` fresh, sources are made anew
    for each chunk; with shared they keep what `begin` lets them keep. ngram-cache and
    ngram-adaptive always start a chunk with an empty context and take it into their dynamic tier
    afterwards; the caches' files are never changed. Each of `parts` is replayed once more by
    itself, its last chunk as short as need be. Drafting is timed over whole chunks (no clock is
    read inside), the merging beside it. One chunk is one call into C, which runs without the GIL;
    `threads` replay chunks that do not depend on each other at the same time, with the same counts.

    Raises:
        ParameterError: a parameter is out of range, or the text is shorter than one chunk.
    """
    options = options or ReplayOptions()
    ids = as_tokens(tokens)
    chunks = options.chunks(len(ids))
    specs = [each if isinstance(each, SourceSpec) else SourceSpec(each) for each in sources]
    statics: list[Cache | None] = [None]
    if static is not None:
        statics = [static] if isinstance(static, Cache) else [*static] or [None]
    with held([*statics, dynamic]):
        runs = [
            Run(ids, spec, options, cache, dynamic, options.threads)
            for spec in specs
            for cache in (statics if set(CACHE_USERS) & set(spec.kinds) else statics[:1])
        ]
        reports = [_report(run, chunks, progress) for run in runs]
        split = [_replay_part(runs, part, options, len(ids)) for part in parts]
    return ReplayReport(
        len(ids), options.n_ctx, len(chunks), len(chunks) * (options.n_ctx - options.prompt_tokens),
        options.prompt_tokens, options.draft_max, reports, options.state, options.compat, split,
        list(dict.fromkeys(note for spec in specs for note in spec.notes(options.draft_max))),
    )  # fmt: skip


def _report(run: Run, chunks: list[Chunk], progress: Progress | None) -> SourceReport:
    report = run.report(chunks, repeats=run.options.repeats, progress=progress)
    curve = run.options.curve or CostCurve.example("dense")
    several = [replay_requests(run, n, curve, progress) for n in run.options.requests]
    return replace(report, requests=several)


def _replay_part(runs: list[Run], part: Part, options: ReplayOptions, n: int) -> PartReport:
    if not 0 <= part.start <= part.end <= n:
        raise ParameterError(f"{part.name}: found [{part.start}, {part.end}), expected within {n}")
    chunks = options.part_chunks(part.start, part.end)
    n_predict = sum(chunk.length - options.prompt_tokens for chunk in chunks)
    reports = [run.report(chunks) for run in runs] if chunks else []
    return PartReport(part.name, part.end - part.start, n_predict, reports)
