"""What a build would take, from a sample of its corpus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from lookup_tools.building.create_options import CreateOptions
from lookup_tools.building.fit_size import size_bound
from lookup_tools.corpora import Corpus, Piece
from lookup_tools.counting.counter import NgramCounter, Seam
from lookup_tools.errors import CorpusError
from lookup_tools.tokenizers import Tokenizer
from lookup_tools.tokens.from_corpus import tokenize
from lookup_tools.tokens.stream import TokenBatch

SAMPLE_CHARS = 8_000_000
# Memory of a build beside its keys: the interpreter, text on its way, the tokenizer.
_BASE_BYTES = 150_000_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected build. Numbers of n-grams are extrapolated by a power law (Heaps' law), so they
    are rough for corpora much larger than the sample."""

    sampled_tokens: int
    sampled_share: float | None
    n_tokens: int | None
    n_ngrams: int | None
    n_pairs: int | None
    file_bytes: int | None
    memory_bytes: int | None

    def facts(self) -> dict[str, Any]:
        return {"dry_run": True, **asdict(self)}

    def text(self) -> str:
        if self.n_tokens is None or self.file_bytes is None or self.memory_bytes is None:
            return (
                f"the corpus does not say how large it is; its first {self.sampled_tokens:,} "
                "tokens were read"
            )
        share = 100 * (self.sampled_share or 0)
        return (
            f"about {self.n_tokens:,} tokens, {self.n_ngrams:,} n-grams, {self.n_pairs:,} "
            "pairs: a file of about "
            f"{self.file_bytes / 1e6:,.0f} MB, built in about {self.memory_bytes / 1e6:,.0f} "
            "MB of memory "
            f"(from a sample of {share:.1f} %)"
        )


def estimate_build(corpus: Corpus, tokenizer: Tokenizer, options: CreateOptions) -> Estimate:
    """Tokenize and count the start of a corpus and extrapolate.

    Raises:
        CorpusError: there are no tokens in it.
    """
    sample, read = _sample(corpus)
    batches = list(
        tokenize(
            sample,
            tokenizer,
            parse_special=options.parse_special or corpus.control_tokens,
            bos=options.bos,
            concatenate=options.concatenate,
        )
    )
    n = sum(len(batch.ids) for batch in batches)
    if n == 0:
        raise CorpusError(
            "found no tokens in the corpus, expected at least one; check the input files"
        )
    size = corpus.size_bytes
    if not size or not read:
        return Estimate(n, None, None, None, None, None, None)
    factor = max(1.0, size / read)
    total = min(int(n * factor), options.max_tokens or int(n * factor))
    half, full = (
        _distinct(_first(batches, n // 2), options, tokenizer),
        _distinct(batches, options, tokenizer),
    )
    ngrams, pairs = (_grow(a, b, total / n) for a, b in zip(half, full, strict=True))
    file_bytes = size_bound(options.format, ngrams, pairs, annex=options.annex)
    file_bytes = min(file_bytes, options.max_size) if options.max_size else file_bytes
    keys = (
        sum(
            8 * -(-(order + 1) * tokenizer.vocab_size.bit_length() // 64)
            for order in options.orders
        )
        * total
    )
    memory = _BASE_BYTES + int(min(1.5 * keys, options.memory or math.inf)) + 55 * ngrams
    return Estimate(n, 1 / factor, total, ngrams, pairs, file_bytes, memory)


def corpus_sample(corpus: Corpus) -> Corpus:
    """The start of a corpus, in memory."""
    sample, _ = _sample(corpus)
    sample.control_tokens = corpus.control_tokens
    return sample


def _sample(corpus: Corpus) -> tuple[Corpus, int]:
    """The start of a corpus, and how far into it that goes (in the unit of `bytes_read`)."""
    pieces: list[Piece] = []
    chars = 0
    for piece in corpus.pieces():
        pieces.append(piece)
        chars += len(piece.text)
        if chars >= SAMPLE_CHARS:
            break
    # Reading runs ahead of the pieces, so plain text is measured itself; of compressed text only
    # the reader's position is known in the right unit.
    text_bytes = sum(len(piece.text.encode(errors="replace")) for piece in pieces)
    return _Pieces(pieces), min(text_bytes, corpus.bytes_read)


class _Pieces(Corpus):
    def __init__(self, pieces: list[Piece]) -> None:
        super().__init__([])
        self._pieces = pieces

    def pieces(self, piece_bytes: int = 0) -> Iterator[Piece]:
        return iter(self._pieces)


def _first(batches: list[TokenBatch], n: int) -> Iterator[TokenBatch]:
    for batch in batches:
        if n <= 0:
            return
        yield TokenBatch(batch.ids[:n], batch.ends[batch.ends <= n])
        n -= len(batch.ids)


def _distinct(batches: Any, options: CreateOptions, tokenizer: Tokenizer) -> tuple[int, int]:
    counters = [NgramCounter(order, tokenizer.vocab_size - 1) for order in options.orders]
    seam = Seam(max(options.orders))
    for batch in batches:
        joined = seam.join(batch)
        for counter in counters:
            counter.add(*joined)
    blocks = [block for counter in counters for block in counter.blocks(options.prune)]
    return sum(b.n_ngrams for b in blocks), sum(b.n_pairs for b in blocks)


def _grow(half: int, full: int, times: float) -> int:
    """`full`, `times` as much text later, if the growth from half to full goes on."""
    exponent = math.log2(full / half) if half else 1.0
    return int(full * times**exponent)
