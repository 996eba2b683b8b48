"""Corpus -> batches of tokens: read, cut where it is safe, encode while the next text is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from lookup_tools.corpora import Corpus, Piece
from lookup_tools.tokenizers import Tokenizer
from lookup_tools.tokens.stream import TokenBatch

BATCH_CHARS = 1 << 21
# Where a safe place to cut a running text is looked for: this many characters before its end.
CUT_WINDOW = 4096
# One batch is prepared while another is encoded; encoding itself uses all processors.
MAX_BATCHES_AHEAD = 3


@dataclass(slots=True)
class TextBatch:
    """Texts to encode together. `starts`/`ends` tell which of them begin or end a document."""

    texts: list[str] = field(default_factory=list)
    starts: list[bool] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    chars: int = 0

    def add(self, text: str, *, starts: bool, ends: bool) -> None:
        self.texts.append(text)
        self.starts.append(starts)
        self.ends.append(ends)
        self.chars += len(text)


@dataclass(slots=True)
class TokenizeNotes:
    """What is worth telling about a corpus once it is tokenized."""

    n_special: int = 0
    n_documents: int = 0
    n_tokens: int = 0
    uncut_chars: int = 0  # the longest text that offered no safe place to cut it


class _Cutting:
    """Regroups pieces of documents into texts whose ids can be put together."""

    def __init__(self, tokenizer: Tokenizer, parse_special: bool, notes: TokenizeNotes) -> None:
        self._tokenizer = tokenizer
        self._parse_special = parse_special
        self._notes = notes
        self._parts: list[str] = []
        self._chars = 0
        self._next_try = BATCH_CHARS
        self._at_start = True

    def feed(self, piece: Piece, batch: TextBatch) -> None:
        self._parts.append(piece.text)
        self._chars += len(piece.text)
        if piece.ends_document:
            self._emit("".join(self._parts), batch, ends=True)
            self._keep("")
        elif self._chars >= self._next_try:
            self._cut(batch)

    def _cut(self, batch: TextBatch) -> None:
        text = "".join(self._parts)
        target = max(1, len(text) - CUT_WINDOW)
        *done, rest = self._tokenizer.split(text, target, parse_special=self._parse_special)
        for part in done:
            self._emit(part, batch, ends=False)
        self._keep(rest)
        if not done:  # twice as much text before the next try, so that tries cost little in all
            self._next_try = 2 * self._chars
            self._notes.uncut_chars = max(self._notes.uncut_chars, self._chars)

    def _emit(self, text: str, batch: TextBatch, *, ends: bool) -> None:
        batch.add(text, starts=self._at_start, ends=ends)
        self._at_start = ends

    def _keep(self, text: str) -> None:
        self._parts = [text] if text else []
        self._chars = len(text)
        self._next_try = BATCH_CHARS

    def finish(self, batch: TextBatch) -> None:
        """End a document that the corpus left open."""
        if self._parts or not self._at_start:
            self._emit("".join(self._parts), batch, ends=True)
            self._keep("")


def _text_batches(corpus: Corpus, cutting: _Cutting) -> Iterator[TextBatch]:
    batch = TextBatch()
    for piece in corpus.pieces():
        cutting.feed(piece, batch)
        if batch.chars >= BATCH_CHARS or len(batch.texts) >= 1 << 16:
            yield batch
            batch = TextBatch()
    cutting.finish(batch)
    if batch.texts:
        yield batch


def tokenize(
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    parse_special: bool = False,
    bos: bool = False,
    concatenate: bool = False,
    notes: TokenizeNotes | None = None,
) -> Iterator[TokenBatch]:
    """The corpus as token batches; documents are streams of their own unless `concatenate`.

    Control tokens' texts are encoded as such with `parse_special`, or if the corpus asks for it.
    A document of any size is encoded in parts, cut only where the vocabulary is certain to break;
    where it never is, the whole document is encoded at once and `notes.uncut_chars` says so.
    """
    notes = notes if notes is not None else TokenizeNotes()
    parse_special = parse_special or corpus.control_tokens
    cutting = _Cutting(tokenizer, parse_special, notes)

    def encode(batch: TextBatch) -> tuple[TokenBatch, int, int]:
        special = 0 if parse_special else sum(tokenizer.count_special(text) for text in batch.texts)
        ids, lengths = tokenizer.encode_batch(batch.texts, parse_special=parse_special)
        ends = np.cumsum(lengths, dtype=np.int64)
        if bos:
            ids, ends = _with_bos(ids, ends, batch.starts, tokenizer)
        return TokenBatch(ids, ends[np.array(batch.ends, bool)]), special, sum(batch.ends)

    tokenizer.encode_batch([""], parse_special=parse_special)  # builds the encoder, once
    with ThreadPoolExecutor(1, thread_name_prefix="tokenize") as worker:
        for encoded in _in_order(worker, encode, _text_batches(corpus, cutting)):
            batch, special, documents = encoded
            notes.n_special += special
            notes.n_documents += documents
            notes.n_tokens += len(batch.ids)
            yield TokenBatch(batch.ids, np.empty(0, np.int64)) if concatenate else batch


def _with_bos(
    ids: np.ndarray, ends: np.ndarray, starts: list[bool], tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """BOS in front of the texts that begin a document."""
    first = np.array(starts, bool)
    bos = tokenizer.encode("", bos=True)  # refuses a vocabulary without BOS
    at = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[first]
    return np.insert(ids, at, bos[0]).astype(np.int32), ends + np.cumsum(first)


def _in_order(worker: ThreadPoolExecutor, encode, batches: Iterable[TextBatch]) -> Iterator:  # type: ignore[no-untyped-def,type-arg]
    waiting: deque[Future] = deque()  # type: ignore[type-arg]
    try:
        for batch in batches:
            waiting.append(worker.submit(encode, batch))
            if len(waiting) >= MAX_BATCHES_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
