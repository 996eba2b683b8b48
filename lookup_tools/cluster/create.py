"""`create_cache` on a cluster: workers tokenize, count and merge, this process writes.

The file is that of a local build, byte for byte: what workers count is exact, key ranges come back
in order, and the writer is the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from lookup_tools.building.create import (
    CreateReport,
    Seconds,
    cache_meta,
    create_report,
    token_info,
)
from lookup_tools.building.create_options import CreateOptions
from lookup_tools.building.estimate import corpus_sample
from lookup_tools.building.fit_size import prune_to_size
from lookup_tools.cluster import tasks
from lookup_tools.cluster.connection import connected, register
from lookup_tools.cluster.splits import plan_tasks
from lookup_tools.corpora import Corpus
from lookup_tools.corpora.files import FileCorpus
from lookup_tools.counting.counts import CountsBlock
from lookup_tools.errors import CorpusError, ParameterError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.write_cache import check_format, write_cache
from lookup_tools.system.atomic import check_overwrite
from lookup_tools.system.progress import Progress
from lookup_tools.system.workers import worker_pool
from lookup_tools.tokenizers import Tokenizer

# Text of a key range: its merged counts have to fit a worker, and the client holds two of them.
_RANGE_BYTES = 1 << 26
_MAX_RANGES = 256


@dataclass(slots=True)
class ClusterCosts:
    """Where seconds and bytes went on the workers, all of them together."""

    n_workers: int = 0
    n_tasks: int = 0
    n_ranges: int = 0
    dashboard: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    run_bytes: int = 0
    block_bytes: int = 0

    def add(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def line(self) -> str:
        spent = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in self.seconds.items())
        return (
            f"{self.n_workers} workers, {self.n_tasks} tasks, {self.n_ranges} key ranges; seconds "
            f"on workers: {spent}; {self.run_bytes / 1e6:,.1f} MB of runs between workers, "
            f"{self.block_bytes / 1e6:,.1f} MB of counts to the writer"
        )


def create_cache_on_cluster(
    corpus: Corpus,
    tokenizer: Tokenizer,
    output: str | os.PathLike[str],
    options: CreateOptions,
    address: str,
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> CreateReport:
    """`create_cache`, counted on the cluster at `address` (see `connected`).

    `tell` gets lines for people as they come: the address of Dask's dashboard.

    Raises:
        ParameterError: the corpus is no files, or an option needs all tokens in one place.
        CorpusError, BuildError: as in a local build; the cluster went away.
    """
    _check(corpus, options)
    check_format(options.format, options.orders)
    check_overwrite(output, force=options.force)
    started = time.perf_counter()
    with connected(address, options.memory) as client:
        build = _Build(cast(FileCorpus, corpus), tokenizer, options, client, progress)
        tell(f"dashboard: {build.costs.dashboard}")
        build.count()
        counted = time.perf_counter()
        with worker_pool(options.threads or os.cpu_count() or 1) as pool:
            written = write_cache(output, build.kept(), build.meta(), options.write, pool)
    clock = Seconds(tokenize=counted - started, build=written.build_seconds)
    clock.count = build.waited
    clock.finish(time.perf_counter() - started)
    return create_report(
        output, options, token_info(corpus, tokenizer), written, clock,
        n_tokens=build.n_tokens, n_documents=build.n_documents, n_special=build.n_special,
        notes=(build.costs.line(),),
    )  # fmt: skip


def _check(corpus: Corpus, options: CreateOptions) -> None:
    if not isinstance(corpus, FileCorpus):
        raise ParameterError(
            "found a dataset with --cluster, expected files: give its parquet files with -f and "
            "--documents parquet:COLUMN"
        )
    for name, given in (
        ("--concatenate", options.concatenate),
        ("--max-tokens", options.max_tokens),
        ("--save-tokens", options.save_tokens),
    ):
        if given:
            raise ParameterError(
                f"found {name} with --cluster, where no worker sees all tokens in order: leave one "
                "of them out"
            )


class _Build:
    """One build: its tasks on the cluster and what is known of them here."""

    def __init__(
        self,
        corpus: FileCorpus,
        tokenizer: Tokenizer,
        options: CreateOptions,
        client: Any,
        progress: Progress | None,
    ) -> None:
        self._corpus, self._tokenizer, self._options = corpus, tokenizer, options
        self._client, self._progress = client, progress
        self.n_tokens = self.n_documents = self.n_special = 0
        self.waited = 0.0
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        self.costs = ClusterCosts(n_workers=workers, dashboard=client.dashboard_link)
        self._install()
        self._parts = plan_tasks(corpus, workers)
        self._job = self._plan(workers)
        self._runs: list[Any] = []
        self._merged: list[Any] = []

    def _install(self) -> None:
        """Send the vocabulary to every worker, once, and to those that come later."""
        from lookup_tools.cluster.plugin import Vocabulary

        plugin = Vocabulary(self._tokenizer.fingerprint, tasks.pack_tokenizer(self._tokenizer))
        register(self._client, plugin)

    def _plan(self, workers: int) -> tasks.Job:
        options, tokenizer = self._options, self._tokenizer
        job = tasks.Job(
            fingerprint=tokenizer.fingerprint,
            orders=options.orders,
            max_token=tokenizer.vocab_size - 1,
            bounds={},
            bos=options.bos,
            parse_special=options.parse_special or self._corpus.control_tokens,
            memory=options.memory,
        )
        ranges = min(max(2 * workers, (self._corpus.size_bytes or 0) // _RANGE_BYTES), _MAX_RANGES)
        bounds = tasks.choose_bounds(corpus_sample(self._corpus), tokenizer, job, ranges)
        self.costs.n_tasks, self.costs.n_ranges = len(self._parts), ranges
        return replace(job, bounds=bounds)

    def count(self) -> None:
        """Count every part, and start to merge."""
        from distributed import as_completed

        client, job = self._client, self._job
        counted = [
            client.submit(tasks.count_parts, self._corpus.of_parts(parts), job, pure=False)
            for parts in self._parts
        ]
        summaries = client.map(tasks.Counted.summary, counted, pure=False)
        self._start_merging(counted)
        self._tell("tokenize and count", 0, len(counted))
        finished = as_completed(summaries, loop=client.loop, with_results=True)
        for done, (_, summary) in enumerate(finished, start=1):
            self._take(summary)
            self._tell("tokenize and count", done, len(counted))
        if self.n_tokens == 0:
            raise CorpusError(
                "found no tokens in the corpus, expected at least one; check the input files"
            )

    def _take(self, summary: tasks.Counted) -> None:
        self.n_tokens += summary.n_tokens
        self.n_documents += summary.n_documents
        self.n_special += summary.n_special
        self.costs.run_bytes += summary.stored_bytes
        for stage, seconds in summary.seconds.items():
            self.costs.add(stage, seconds)

    def _start_merging(self, counted: list[Any]) -> None:
        client, job = self._client, self._job
        for order in job.orders:
            for index in range(len(job.bounds[order]) + 1):
                runs = client.map(
                    tasks.run_of, counted, order=order, index=index, pure=False, priority=10
                )
                self._merged.append(
                    client.submit(
                        tasks.merge_range,
                        runs,
                        order,
                        job.max_token,
                        self._options.prune,
                        pure=False,
                        priority=-len(self._merged),
                    )
                )

    def kept(self) -> Any:
        """The counts that pass the pruning."""
        options = self._options
        return prune_to_size(self._blocks, options.max_size, options.format, annex=options.annex)

    def _blocks(self, last: bool) -> Iterator[CountsBlock]:
        """All merged key ranges in order; the cluster may forget each after the last reading."""
        n = len(self._merged)
        for index in range(n):
            self._tell("merge and write", index, n)
            start = time.perf_counter()
            merged: tasks.Merged = self._merged[index].result()
            self.waited += time.perf_counter() - start
            if last:
                self._merged[index] = None
                self.costs.add("merge", merged.seconds)
                self.costs.block_bytes += merged.n_bytes
            yield from merged.blocks

    def meta(self) -> CacheMeta:
        options = replace(self._options, parse_special=self._job.parse_special)
        info = token_info(self._corpus, self._tokenizer)
        return cache_meta(info, options, self.n_tokens)

    def _tell(self, phase: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(phase, done, total)
