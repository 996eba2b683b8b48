"""Tokens or text -> a cache file: the whole build."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from lookup_tools.building.create_options import CreateOptions
from lookup_tools.building.fit_size import prune_to_size
from lookup_tools.corpora import Corpus, Piece, SourceInfo
from lookup_tools.counting.counter import NgramCounter, Seam
from lookup_tools.counting.counts import CountsBlock
from lookup_tools.counting.runs import SpillDirectory
from lookup_tools.errors import CorpusError, ParameterError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.write_cache import Written, check_format, write_cache
from lookup_tools.system.atomic import check_overwrite
from lookup_tools.system.memory import peak_rss_bytes
from lookup_tools.system.progress import Progress
from lookup_tools.system.workers import worker_pool
from lookup_tools.tokenizers import Tokenizer
from lookup_tools.tokens import TokenInfo, TokenWriter
from lookup_tools.tokens.from_corpus import TokenizeNotes, tokenize
from lookup_tools.tokens.stream import TokenBatch


@dataclass(slots=True)
class Seconds:
    """Where the time of a build went. Phases overlap: tokenizing is the time until the last token
    was there, counting what came after it before the first block, building and writing the rest."""

    tokenize: float = 0.0
    count: float = 0.0
    build: float = 0.0
    write: float = 0.0
    total: float = 0.0

    def finish(self, total: float) -> None:
        """The build is over after `total` seconds; writing took what no other phase did."""
        self.total = total
        self.write = total - self.tokenize - self.count - self.build


@dataclass(frozen=True, slots=True)
class CreateReport:
    """What was built."""

    output: str
    format: str
    kind: str
    n_tokens: int
    n_documents: int
    n_special: int
    n_ngrams: int
    n_pairs: int
    file_bytes: int
    seconds: Seconds
    peak_rss_bytes: int
    fingerprint: str | None
    vocab_size: int | None
    notes: tuple[str, ...]


class TextCorpus(Corpus):
    """Documents that are in memory already, as a corpus."""

    def __init__(self, documents: Iterable[str], name: str = "documents") -> None:
        super().__init__([SourceInfo(name, name, None)])
        self._documents = documents

    def pieces(self, piece_bytes: int = 0) -> Iterator[Piece]:
        for text in self._documents:
            self._done_bytes += len(text)
            yield Piece(text, self.sources[0].name, True)


def create_cache(
    documents: Corpus | Iterable[str],
    tokenizer: Tokenizer,
    output: str | os.PathLike[str],
    kind: str = "static",
    options: CreateOptions | None = None,
    progress: Progress | None = None,
) -> CreateReport:
    """Tokenize documents, count their n-grams and write a cache file.

    Args:
        documents: a corpus (`open_corpus`) or any texts; each is a stream of its own unless
            `options.concatenate`.
        output: appears whole or not at all; equal inputs give equal bytes, whatever the threads.
        kind: `static` (2-grams), `dynamic` or `context` (1- to 4-grams); ignored if `options` is
            given, whose kind counts.

    Raises:
        CorpusError: a document cannot be read. ParameterError: the options contradict each other,
        or the output exists. BuildError: a limit of the format was met.
    """
    options = options or CreateOptions(kind=kind)
    corpus = documents if isinstance(documents, Corpus) else TextCorpus(documents)
    options = replace(options, parse_special=options.parse_special or corpus.control_tokens)
    notes = TokenizeNotes()
    batches = tokenize(
        corpus,
        tokenizer,
        parse_special=options.parse_special,
        bos=options.bos,
        concatenate=options.concatenate,
        notes=notes,
    )
    info = token_info(corpus, tokenizer)
    if progress is not None:
        batches = _reporting(batches, corpus, progress)
    return create_from_tokens(batches, info, output, options, notes, progress, corpus.notes)


def token_info(corpus: Corpus, tokenizer: Tokenizer) -> TokenInfo:
    """Whose tokens a corpus gives."""
    return TokenInfo(
        tokenizer.vocab_size,
        tokenizer.fingerprint,
        tokenizer.name,
        corpus.names,
        tokenizer.text_fingerprint,
    )


def _reporting(
    batches: Iterator[TokenBatch], corpus: Corpus, progress: Progress
) -> Iterator[TokenBatch]:
    progress("tokenize and count", 0, corpus.size_bytes)
    for batch in batches:
        progress("tokenize and count", corpus.bytes_read, corpus.size_bytes)
        yield batch


def create_from_tokens(
    batches: Iterable[TokenBatch],
    info: TokenInfo,
    output: str | os.PathLike[str],
    options: CreateOptions,
    notes: TokenizeNotes | None = None,
    progress: Progress | None = None,
    corpus_notes: list[str] | None = None,
) -> CreateReport:
    """Count batches of tokens and write a cache file; see `create_cache`.

    `info` says whose tokens they are; without a vocabulary size ids up to 2^21-1 are expected.
    """
    check_format(options.format, options.orders)
    check_overwrite(output, force=options.force)
    clock, start = Seconds(), time.perf_counter()
    with (
        worker_pool(options.threads or os.cpu_count() or 1) as pool,
        SpillDirectory(options.tmpdir) as spill,
    ):
        max_token = (info.vocab_size or 1 << 21) - 1
        counters = _counters(options, max_token, spill, pool)
        totals = _count(counters, batches, info, options)
        clock.tokenize = time.perf_counter() - start
        if progress is not None:
            progress("build and write", 0, None)
        blocks = _Timed(_kept(counters, options))
        meta = cache_meta(info, options, totals.n_tokens)
        written = write_cache(output, blocks, meta, options.write, pool)
    clock.count = blocks.seconds
    clock.build = written.build_seconds
    clock.finish(time.perf_counter() - start)
    return create_report(
        output, options, info, written, clock,
        n_tokens=totals.n_tokens, n_documents=totals.n_documents,
        n_special=notes.n_special if notes else 0, notes=_notes(notes, corpus_notes),
    )  # fmt: skip


def create_report(
    output: str | os.PathLike[str],
    options: CreateOptions,
    info: TokenInfo,
    written: Written,
    clock: Seconds,
    *,
    n_tokens: int,
    n_documents: int,
    n_special: int,
    notes: tuple[str, ...],
) -> CreateReport:
    """What was built, put together from its parts."""
    return CreateReport(
        output=os.fspath(output),
        format=options.format,
        kind=options.kind,
        n_tokens=n_tokens,
        n_documents=n_documents,
        n_special=n_special,
        n_ngrams=written.n_ngrams,
        n_pairs=written.n_pairs,
        file_bytes=written.file_bytes,
        seconds=clock,
        peak_rss_bytes=peak_rss_bytes(),
        fingerprint=info.fingerprint,
        vocab_size=info.vocab_size,
        notes=notes,
    )


def _kept(counters: list[NgramCounter], options: CreateOptions) -> Iterable[CountsBlock]:
    """The counts that pass the pruning, n-grams of one order after the other."""

    def blocks(last: bool) -> Iterator[CountsBlock]:
        return chain.from_iterable(
            counter.blocks(options.prune, keep=not last) for counter in counters
        )

    return prune_to_size(blocks, options.max_size, options.format, annex=options.annex)


def cache_meta(info: TokenInfo, options: CreateOptions, n_tokens: int) -> CacheMeta:
    """What the file says about itself."""
    return CacheMeta(
        kind=options.kind,
        fingerprint=info.fingerprint,
        text_fingerprint=info.text_fingerprint,
        tokenizer=info.tokenizer,
        vocab_size=info.vocab_size,
        corpora=info.corpora,
        n_tokens=n_tokens,
        options=options.recorded(),
    )


def _notes(notes: TokenizeNotes | None, corpus_notes: list[str] | None) -> tuple[str, ...]:
    lines = list(corpus_notes or ())
    if notes and notes.n_special:
        lines.append(
            f"{notes.n_special} special-token texts stand in the corpus and were encoded as "
            "plain text; "
            "--parse-special encodes them as llama.cpp's control tokens"
        )
    if notes and notes.uncut_chars:
        lines.append(
            f"a text of {notes.uncut_chars} characters has no place that is safe to cut and "
            "was encoded as a whole"
        )
    return tuple(lines)


def _counters(
    options: CreateOptions, max_token: int, spill: SpillDirectory, pool: ThreadPoolExecutor | None
) -> list[NgramCounter]:
    # Sorting a counter's keys takes about as much again, and the rest of the process its own share.
    share = (
        None if options.memory is None else max(1 << 20, options.memory // 3 // len(options.orders))
    )
    return [
        NgramCounter(order, max_token, memory=share, spill=spill, pool=pool)
        for order in options.orders
    ]


def _count(
    counters: list[NgramCounter],
    batches: Iterable[TokenBatch],
    info: TokenInfo,
    options: CreateOptions,
) -> _Totals:
    """Count up to `max_tokens` tokens, and save them where that is asked for.

    Raises:
        CorpusError: there are none.
    """
    totals = _Totals(options.max_tokens)
    counted = totals.limit(batches)
    if options.save_tokens:
        counted = _saving(counted, info, options)
    seam = Seam(max(counter.layout.order for counter in counters))
    for batch in counted:
        totals.n_tokens += len(batch.ids)
        totals.n_documents += len(batch.ends)
        joined = seam.join(batch)
        for counter in counters:
            counter.add(*joined)
    if totals.n_tokens == 0:
        raise CorpusError(
            "found no tokens in the corpus, expected at least one; check the input files"
        )
    return totals


@dataclass(slots=True)
class _Totals:
    max_tokens: int | None
    n_tokens: int = 0
    n_documents: int = 0

    def limit(self, batches: Iterable[TokenBatch]) -> Iterator[TokenBatch]:
        """The batches, ended after `max_tokens` tokens."""
        left = self.max_tokens
        for batch in batches:
            if left is not None and len(batch.ids) >= left:
                yield TokenBatch(batch.ids[:left], batch.ends[batch.ends <= left])
                return
            left = None if left is None else left - len(batch.ids)
            yield batch


def _saving(
    batches: Iterable[TokenBatch], info: TokenInfo, options: CreateOptions
) -> Iterator[TokenBatch]:
    """The same batches, written to a token file on the way."""
    assert options.save_tokens is not None
    if info.vocab_size is None or info.fingerprint is None:
        raise ParameterError(
            "found tokens of an unknown vocabulary, expected one with a fingerprint to save; "
            "tokenize with -m"
        )
    with TokenWriter(
        options.save_tokens,
        info.vocab_size,
        info.fingerprint,
        tokenizer=info.tokenizer,
        corpora=info.corpora,
        text_fingerprint=info.text_fingerprint,
        force=options.force,
    ) as writer:
        for batch in batches:
            writer.append(batch.ids, np.ascontiguousarray(batch.ends, np.int64))
            yield batch


class _Timed:
    """Blocks, with the time spent on making them."""

    def __init__(self, blocks: Iterable[CountsBlock]) -> None:
        self._blocks = iter(blocks)
        self.seconds = 0.0

    def __iter__(self) -> Iterator[CountsBlock]:
        while True:
            start = time.perf_counter()
            block = next(self._blocks, None)
            self.seconds += time.perf_counter() - start
            if block is None:
                return
            yield block
