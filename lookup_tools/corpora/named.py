"""Datasets as a corpus: rows, wherever they come from, joined into documents."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lookup_tools.corpora.corpus import PIECE_BYTES, Corpus, SourceInfo
from lookup_tools.corpora.hub import iter_rows
from lookup_tools.corpora.manifests import Manifest
from lookup_tools.corpora.text import Piece
from lookup_tools.errors import CorpusError, ParameterError

# Every 8th topic is held out: about a tenth of the text.
_TOPICS_TEST_STRIDE = 8
_HEADING = re.compile(r" = (?!= ).+(?<! =) = \n?")


class DatasetCorpus(Corpus):
    def __init__(self, manifest: Manifest, split: str, copy: Path | None) -> None:
        self.manifest, self.split = manifest, split
        self._copy = copy
        self._expected = manifest.splits.get(split)
        size = self._expected.text_bytes if self._expected else None
        name = f"{manifest.name}:{split}"
        super().__init__([SourceInfo(name, str(copy or manifest.path or manifest.name), size)])

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        self._done_bytes = 0
        name = self.names[0]
        for document in group_rows(self._counted_rows(), self.manifest.rows):
            yield Piece(document, name, True)

    def _counted_rows(self) -> Iterator[str]:
        rows = 0
        for row in _rows_of(self.manifest, self.split, self._copy):
            rows += 1
            self._done_bytes += len(row) if row.isascii() else len(row.encode())
            yield row
        expected = self._expected.rows if self._expected else None
        if expected not in (None, rows):
            self.notes.append(f"{self.names[0]}: read {rows:,} rows, expected {expected:,}")


def group_rows(rows: Iterable[str], how: str) -> Iterator[str]:
    """Join rows into documents as a manifest's `rows` says; nothing is added or dropped.

    `articles`: a document begins at a WikiText level-1 heading (` = Title = `) that is the first
    row or follows a blank one. Inside paragraphs the same shape occurs in formulas.
    """
    if how == "each":
        yield from rows
        return
    parts: list[str] = []
    content = False
    after_blank = True
    for row in rows:
        heading = how == "articles" and after_blank and _HEADING.fullmatch(row)
        if heading and content:
            yield "".join(parts)
            parts, content = [], False
        parts.append(row)
        after_blank = not row.strip()
        content = content or not after_blank
    if parts:
        yield "".join(parts)


def _rows_of(manifest: Manifest, split: str, copy: Path | None) -> Iterator[str]:
    if manifest.source == "hub":
        return iter_rows(manifest, split, copy)
    if copy is not None:
        raise ParameterError(f"{manifest.name} comes with Python: drop --dataset-path")
    return _python_topics(split)


def _python_topics(split: str) -> Iterator[str]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise CorpusError(
            "python-topics: this Python has no pydoc_data.topics: install the full standard "
            "library, or give text with -f"
        ) from error
    for index, key in enumerate(sorted(topics), start=1):
        held_out = index % _TOPICS_TEST_STRIDE == 0
        if split == "all" or held_out == (split == "test"):
            yield topics[key]
