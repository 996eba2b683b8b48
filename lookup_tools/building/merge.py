"""Joining, weighting, pruning and converting caches, streaming and sorted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from lookup_tools.building.fit_size import prune_to_size
from lookup_tools.building.merge_inputs import MergeInput, OrderedInput, ordered_input
from lookup_tools.building.merge_meta import joined_meta, refreshed_meta
from lookup_tools.cache import Cache, ConstmapCache, open_cache
from lookup_tools.cache.verify import verify_cache
from lookup_tools.counting.counts import CountsBlock, Layout, Prune
from lookup_tools.counting.runs import SpillDirectory, group_runs, merge_runs
from lookup_tools.errors import ParameterError
from lookup_tools.formats.meta import require_same_tokenizer
from lookup_tools.formats.sniff import CacheFormat
from lookup_tools.formats.write_cache import WriteOptions, check_format, write_cache
from lookup_tools.system.atomic import check_overwrite
from lookup_tools.system.memory import peak_rss_bytes
from lookup_tools.system.progress import Progress
from lookup_tools.system.workers import worker_pool


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How to join caches; see `lookup-merge --help`."""

    fmt: CacheFormat | None = None
    weights: tuple[Fraction, ...] = ()
    prune: Prune = field(default_factory=Prune)
    max_size: int | None = None
    memory: int | None = None
    tmpdir: str | None = None
    annex: bool = True
    map_hash: str = "xxh64"
    recover_keys: bool = True
    vocab_size: int | None = None
    threads: int | None = None
    force: bool = False  # overwrite the output
    ignore_vocabulary: bool = False


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What came out."""

    output: str
    format: str
    inputs: tuple[MergeInput, ...]
    n_ngrams: int
    n_pairs: int
    file_bytes: int
    total_seconds: float
    peak_rss_bytes: int
    notes: tuple[str, ...]
    updated: bool = False  # a live file was refreshed (see update_cache)


def merge_caches(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: MergeOptions | None = None,
    progress: Progress | None = None,
) -> MergeReport:
    """Sum caches of any formats into one file; a single input is converted.

    Order and grouping of inputs do not matter. Keyless constmaps have their keys recovered first.
    Memory: a slice of each input, plus what building a constmap takes (see ConstmapWriter).

    Raises:
        TokenizerMismatchError: two inputs say they were made with different vocabularies.
        FormatError: an input is damaged, or its keys cannot be recovered.
        ParameterError: the options contradict each other, or the output exists.
    """
    options = options or MergeOptions()
    if not inputs:
        raise ParameterError("found no inputs, expected at least one cache file")
    check_overwrite(output, force=options.force)
    return join(inputs, output, options, progress, replace_output=options.force)


def join(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: MergeOptions,
    progress: Progress | None = None,
    *,
    replace_output: bool,
    refresh: bool = False,
) -> MergeReport:
    """`merge_caches` for callers that know whether the output may be replaced.

    With `refresh` the output is a live file, so that damage must not be added to it: inputs are
    verified, and the result has the first one's vocabulary and is not empty.
    """
    started = time.perf_counter()
    with ExitStack() as stack:
        pool = stack.enter_context(worker_pool(options.threads or os.cpu_count() or 1))
        spill = stack.enter_context(SpillDirectory(options.tmpdir))
        caches = [stack.enter_context(open_cache(path)) for path in inputs]
        weights = _weights(options.weights, len(caches))
        if not options.ignore_vocabulary:
            _require_one_vocabulary(caches)
        if refresh:
            _verify(caches, pool)
        orders = sorted({order for cache in caches for order in cache.orders}) or [2]
        write = WriteOptions(
            options.fmt or _usual_format(caches), options.annex, options.map_hash, replace_output
        )
        check_format(write.fmt, orders)
        prepared = _prepare(caches, options, pool, progress)
        if progress is not None:
            progress("merge and write", 0, None)
        merged = partial(_merged, prepared, weights, orders, options.prune, spill, pool)
        kept = prune_to_size(merged, options.max_size, write.fmt, annex=options.annex)
        meta = joined_meta(caches, write.fmt, options.prune, options.weights)
        if refresh:
            kept, meta = _not_empty(kept, os.fspath(output)), refreshed_meta(meta, caches)
        written = write_cache(output, kept, meta, write, pool)
        return MergeReport(
            os.fspath(output),
            write.fmt,
            tuple(each.describe() for each in prepared),
            written.n_ngrams,
            written.n_pairs,
            written.file_bytes,
            time.perf_counter() - started,
            peak_rss_bytes(),
            tuple(_duplicates(prepared)),
            updated=refresh and replace_output,
        )


def _prepare(
    caches: Sequence[Cache],
    options: MergeOptions,
    pool: ThreadPoolExecutor | None,
    progress: Progress | None,
) -> list[OrderedInput]:
    """Every input in a form that yields its records in order."""
    return [
        ordered_input(
            cache,
            memory=options.memory,
            recover=options.recover_keys,
            vocab_size=options.vocab_size,
            pool=pool,
            progress=progress,
        )
        for cache in caches
    ]


def _weights(given: tuple[Fraction, ...], n: int) -> list[Fraction]:
    if given and len(given) != n:
        raise ParameterError(f"found {len(given)} weights, expected one for each of the {n} inputs")
    for weight in given:
        if not weight > 0 or max(weight.numerator, weight.denominator) >= 2**31:
            raise ParameterError(
                f"found weight {weight}, expected a fraction above 0 with parts below 2^31"
            )
    return list(given) or [Fraction(1)] * n


def _usual_format(caches: Sequence[Cache]) -> CacheFormat:
    """Legacy only if every input is; else constmap, whatever the order of the inputs."""
    return "legacy" if all(cache.format == "legacy" for cache in caches) else "constmap"


def _require_one_vocabulary(caches: Sequence[Cache]) -> None:
    for cache, before in ((c, b) for i, c in enumerate(caches) for b in caches[:i]):
        if before.meta is not None:
            named = f"{before.meta.tokenizer_name} as in {before.path}"
            ours = before.meta.fingerprint, named, before.meta.text_fingerprint
            require_same_tokenizer(cache.path, cache.meta, *ours)


def _verify(caches: Sequence[Cache], pool: ThreadPoolExecutor | None) -> None:
    """Check what opening has left unproved; keys that have to be recovered prove themselves."""
    for cache in caches:
        if isinstance(cache, ConstmapCache) and cache.has_keys:
            verify_cache(cache, pool)


def _not_empty(blocks: Iterable[CountsBlock], output: str) -> Iterator[CountsBlock]:
    """The same blocks. A legacy file of nothing has no bytes, which nobody takes for a cache."""
    n_ngrams = 0
    for block in blocks:
        n_ngrams += block.n_ngrams
        yield block
    if not n_ngrams:
        raise ParameterError(
            f"{output}: found nothing left after pruning, expected at least one n-gram; lower "
            "--min-count"
        )


def _duplicates(inputs: Sequence[OrderedInput]) -> Iterator[str]:
    for each in inputs:
        if n := sum(each.duplicates.values()):
            yield (
                f"{each.cache.path}: {n} n-grams stood in more than one record; "
                "their counts were summed"
            )


def _merged(
    inputs: Sequence[OrderedInput],
    weights: Sequence[Fraction],
    orders: Sequence[int],
    prune: Prune,
    spill: SpillDirectory,
    pool: ThreadPoolExecutor | None,
    last: bool,
) -> Iterator[CountsBlock]:
    """The sum, one order after the other. Inputs can be read any number of times, so that it makes
    no difference whether this is the last one."""
    del last
    max_token = max(each.max_token for each in inputs)
    for order in orders:
        layout = Layout.of(order, max_token)
        runs = [
            each.records(layout, weight, spill)
            for each, weight in zip(inputs, weights, strict=True)
            if order in each.cache.orders
        ]
        yield from group_runs(merge_runs(runs, layout), layout, prune, pool)
