"""One source over the chunks of a text: in turn, or at once where chunks are independent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lookup_tools._native import check, i32, lib
from lookup_tools.cache import Cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.params import ADAPTIVE, CACHE_USERS, MAX_LENGTH
from lookup_tools.drafting.source import (
    COMPATS,
    DynamicTable,
    Source,
    SourceSpec,
    adaptive_group,
)
from lookup_tools.errors import ParameterError
from lookup_tools.replaying.source_report import SourceReport, Tally
from lookup_tools.system.progress import Progress

Ids = npt.NDArray[np.int32]
STATES = ("fresh", "shared")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [start, start + length) of the stream, replayed as one sequence."""

    number: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a text is replayed; see `lookup-stats --help`.

    `n_ctx` tokens are a chunk, of which `prompt_tokens` are given; `draft_max` tokens are the
    longest draft. `threads` replay independent chunks at the same time; `repeats` are timed.
    `requests` are the numbers of requests in lock step to replay besides, weighed by `curve` (the
    example `dense` without one).

    Raises:
        ParameterError: a value outside its range.
    """

    n_ctx: int = 4096
    draft_max: int = 8
    prompt_tokens: int = 0
    compat: str | None = None
    state: str = "fresh"
    threads: int = 1
    repeats: int = 1
    curve: CostCurve | None = None
    requests: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n_ctx < 2:
            raise ParameterError(f"found n_ctx {self.n_ctx}, expected at least 2")
        if not 1 <= self.draft_max <= MAX_LENGTH:
            raise ParameterError(f"found draft_max {self.draft_max}, expected 1 to {MAX_LENGTH}")
        if not 0 <= self.prompt_tokens < self.n_ctx:
            raise ParameterError(
                f"found prompt_tokens {self.prompt_tokens}, expected 0 to {self.n_ctx - 1} "
                "(below n_ctx)"
            )
        if self.compat not in COMPATS:
            raise ParameterError(f"found compat {self.compat!r}, expected llama.cpp")
        if self.state not in STATES:
            raise ParameterError(f"found state {self.state!r}, expected fresh or shared")
        if self.threads < 1 or self.repeats < 1:
            raise ParameterError(
                f"found threads {self.threads}, repeats {self.repeats}, expected at least 1"
            )

    def chunk_starts(self, n_tokens: int) -> range:
        """Where chunks begin. llama.cpp leaves out the last chunk of an exact multiple; so does
        `compat`.

        Raises:
            ParameterError: the text is shorter than one chunk.
        """
        least = self.n_ctx + (self.compat == "llama.cpp")
        if n_tokens < least:
            raise ParameterError(
                f"found {n_tokens} tokens, expected at least {least} for one chunk; use a longer "
                "text or a smaller -c"
            )
        return range(0, n_tokens - least + 1, self.n_ctx)

    def chunks(self, n_tokens: int) -> list[Chunk]:
        """The chunks of a whole text."""
        starts = self.chunk_starts(n_tokens)
        return [Chunk(number, start, self.n_ctx) for number, start in enumerate(starts)]

    def part_chunks(self, start: int, end: int) -> list[Chunk]:
        """The chunks of one part of a text: the last may be shorter, as long as it has something to
        predict."""
        lengths = [(at, min(self.n_ctx, end - at)) for at in range(start, end, self.n_ctx)]
        useful = [each for each in lengths if each[1] > self.prompt_tokens + 1]
        return [Chunk(number, *each) for number, each in enumerate(useful)]


@dataclass(frozen=True, slots=True)
class Run:
    """One source over some chunks of a text.

    Chunks are independent, and replayed by `threads` threads, when every one gets sources made
    anew (`state` fresh) and none hands its counts on to the next chunk, as ngram-cache and
    ngram-adaptive do. Whatever `threads` is, the counts are the same.
    """

    ids: Ids
    spec: SourceSpec
    options: ReplayOptions
    static: Cache | None = None
    dynamic: Cache | None = None
    threads: int = 1

    def report(
        self, chunks: Sequence[Chunk], *, repeats: int = 1, progress: Progress | None = None
    ) -> SourceReport:
        """Replay `repeats` times (the counts are the same each time) and report."""
        runs = []
        for _ in range(repeats):
            tally = self._replay(chunks, progress)
            runs.append(tally.draft_seconds)
        path = self.static.path if self.static is not None else None
        report = tally.report(self.options.draft_max, path, runs)
        return replace(report, calibration=tally.calibration)

    @property
    def independent(self) -> bool:
        return self.options.state == "fresh" and not set(CACHE_USERS) & set(self.spec.kinds)

    def _replay(self, chunks: Sequence[Chunk], progress: Progress | None) -> Tally:
        if not self.independent or self.threads == 1 or len(chunks) < 2 * self.threads:
            return self._in_turn(chunks, self._source(None), progress)
        model = self._source(None)
        shares = [chunks[k :: self.threads] for k in range(self.threads)]
        with ThreadPoolExecutor(self.threads, thread_name_prefix="replay") as pool:
            tallies = list(pool.map(lambda share: self._in_turn(share, model, None), shares))
        total = Tally(self.spec)
        for tally in tallies:
            total.add(tally)
        return total

    def _source(self, table: DynamicTable | None) -> Source:
        options = self.options
        group = adaptive_group(self.spec, self.static, self.dynamic, options.curve)
        return Source(self.spec, self.static, table, options.compat, group=group)

    def _in_turn(self, chunks: Sequence[Chunk], model: Source, progress: Progress | None) -> Tally:
        tally = Tally(self.spec)
        table = DynamicTable.for_spec(self.dynamic, self.spec)
        source = self._source(table) if table is not None else model.fresh()
        anew = self.options.state == "fresh" and self.spec.kinds not in (
            [each] for each in CACHE_USERS
        )
        for done, chunk in enumerate(chunks):
            if anew and done:
                tally.finish(source)
                source.close()
                source = source.fresh()
            self._chunk(source, chunk, table, tally)
            tally.look(source, chunk.number)
            if progress is not None:
                progress(f"replay {self.spec.spec_type}", done + 1, len(chunks))
        tally.finish(source)
        source.close()
        if source.group is not None:
            tally.calibration = source.group.calibration()
        return tally

    def _chunk(
        self, source: Source, chunk: Chunk, table: DynamicTable | None, tally: Tally
    ) -> None:
        options, name = self.options, self.spec.spec_type
        tokens = i32(self.ids) + chunk.start
        source.seek(chunk.start)
        given = (chunk.length, options.prompt_tokens, options.draft_max)
        before = time.perf_counter()
        status = lib.lookup_replay_chunk(source.pointer, tokens, *given, tally.stats)
        between = time.perf_counter()
        check(status, name)
        tally.draft_seconds += between - before
        if ADAPTIVE in self.spec.kinds:
            source.end(tokens, chunk.length)
            tally.merge_seconds += time.perf_counter() - between
        if table is None:
            return
        check(lib.lookup_table_update(table.handle, tokens, chunk.length), name)
        lib.lookup_table_end_stream(table.handle)
        tally.merge_seconds += time.perf_counter() - between


def held(caches: Sequence[Cache | None]) -> ExitStack:
    """A context in which caches cannot be closed."""
    stack = ExitStack()
    for cache in caches:
        if cache is not None:
            cache.hold()
            stack.callback(cache.release)
    return stack
