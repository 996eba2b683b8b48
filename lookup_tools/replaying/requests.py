"""Several requests in lock step: what drafts are worth when one batch verifies them all."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from lookup_tools._native import check, ffi, i32, lib, owned, u64
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.params import ADAPTIVE
from lookup_tools.drafting.source import DynamicTable, Source, adaptive_group
from lookup_tools.errors import ParameterError
from lookup_tools.replaying.chunks import Run
from lookup_tools.replaying.source_report import RequestsReport, ratio
from lookup_tools.system.progress import Progress

MAX_REQUESTS = int(lib.LOOKUP_MAX_LANES)
_STEPS = 256  # of one call into C, between two looks at the clock


def replay_requests(
    run: Run, n: int, curve: CostCurve, progress: Progress | None = None
) -> RequestsReport:
    """Replay the chunks of a text by `n` requests at once, each of which takes the next chunk when
    its own is over. Every request has a source of its own, which keeps what `begin` lets it keep;
    sources that can share what they learn and one draft budget do. The replay ends when the first
    request finds no further chunk, so that every batch holds all of them.

    Raises:
        ParameterError: there are fewer chunks than requests.
    """
    options = run.options
    n_chunks = len(options.chunk_starts(len(run.ids)))
    most = min(n_chunks, MAX_REQUESTS)
    if not 1 <= n <= most:
        raise ParameterError(
            f"found {n} requests for {n_chunks} chunks, expected 1 to {most}; use a longer text or "
            "a smaller -c"
        )
    with ExitStack() as stack:
        table = DynamicTable.for_spec(run.dynamic, run.spec)
        group = adaptive_group(run.spec, run.static, run.dynamic, curve)
        sources = []
        for _ in range(n):
            sources.append(Source(run.spec, run.static, table, options.compat, group=group))
            stack.callback(sources[-1].close)
        pointers = ffi.new("lookup_source *[]", [source.pointer for source in sources])
        given = ffi.new("lookup_lockstep_params *")
        given.sources, given.tokens = pointers, i32(run.ids)
        given.dynamic = table.handle if table is not None else ffi.NULL
        together = group is not None and run.spec.kinds == [ADAPTIVE]
        given.group = group.handle if group is not None and together else ffi.NULL
        given.n_lanes, given.n_chunks, given.n_ctx = n, n_chunks, options.n_ctx
        given.n_prompt, given.draft_max = options.prompt_tokens, options.draft_max
        lockstep = owned(
            "lookup_lockstep",
            lib.lookup_lockstep_free,
            lambda out: lib.lookup_lockstep_new(out, given),
        )
        widths = np.zeros(n * (1 + options.draft_max) + 1, np.uint64)
        stats, over = ffi.new("lookup_lockstep_stats *"), ffi.new("int32_t *")
        total = n_chunks * (options.n_ctx - options.prompt_tokens)
        while not over[0]:
            check(lib.lookup_lockstep_run(lockstep, _STEPS, u64(widths), stats, over))
            if progress is not None:
                progress(f"replay {run.spec.spec_type}, {n} at once", stats.n_produced, total)
        ffi.release(lockstep)
    spent = sum(int(count) * curve.at(width) for width, count in enumerate(widths) if count)
    plain = stats.n_produced / n * curve.at(n)
    return RequestsReport(n, ratio(plain, spent) or 1.0, stats.n_drafted, stats.n_accept)
