"""Text files, tables of text and standard input as a corpus."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from lookup_tools.corpora import columns, stores
from lookup_tools.corpora import text as texts
from lookup_tools.corpora.corpus import PIECE_BYTES, Corpus, SourceInfo
from lookup_tools.corpora.text import ChatRenderer, Errors, Piece
from lookup_tools.errors import CorpusError, ParameterError
from lookup_tools.system.compressed import ByteStream, regular_size


@dataclass(frozen=True, slots=True)
class Part:
    """A file to read, or some of it: row groups of a table, or the lines that begin in a range of
    bytes of plain text. Parts in order give what the files give."""

    source: SourceInfo
    groups: tuple[int, int] | None = None
    range: tuple[int, int] | None = None

    @property
    def shown(self) -> str:
        """The name in messages; lines are counted from a range's start."""
        start = self.range[0] if self.range else 0
        return f"{self.source.location} (from byte {start})" if start else self.source.location


class FileCorpus(Corpus):
    def __init__(
        self,
        files: list[str],
        mode: str,
        field: str,
        errors: Errors,
        stdin: BinaryIO | None,
        render: ChatRenderer | None,
    ) -> None:
        if files.count("-") > 1:
            raise ParameterError("standard input (-) is named twice: it can be read only once")
        tables = mode == "parquet"
        if tables and "-" in files:
            raise ParameterError("standard input (-) cannot be a parquet file: give its path")
        files = stores.expand_inputs(files, columns.SUFFIXES if tables else ())
        super().__init__([_file_source(file) for file in files])
        self.parts = tuple(Part(source) for source in self.sources)
        self._columns = columns.parse_columns(field) if tables else ()
        self._mode, self._field, self._errors, self._render = mode, field, errors, render
        self.control_tokens = mode == "chat"
        self._stdin = stdin
        self._stdin_used = False
        self._stream: ByteStream | None = None

    @property
    def mode(self) -> str:
        """What a document is: file, line, jsonl, parquet or chat."""
        return self._mode

    def of_parts(self, parts: Sequence[Part], render: ChatRenderer | None = None) -> FileCorpus:
        """The same reading of these parts only. It can be pickled: chats get their renderer where
        they are read."""
        corpus = copy.copy(self)
        corpus.sources = tuple(part.source for part in parts)
        corpus.parts, corpus.notes = tuple(parts), []
        corpus._stdin, corpus._render = None, render
        return corpus

    @property
    def bytes_read(self) -> int:
        return self._done_bytes + (self._stream.position if self._stream else 0)

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        if piece_bytes < 1:
            raise ParameterError(f"piece_bytes is {piece_bytes}, expected at least 1")
        self._done_bytes = 0
        if self._mode == "parquet":
            yield from self._table_pieces()
            return
        for part in self.parts:
            with self._open(part) as stream:
                self._stream = stream
                try:
                    yield from self._stream_pieces(stream, piece_bytes)
                finally:
                    self._done_bytes += stream.position
                    self._stream = None

    def _table_pieces(self) -> Iterator[Piece]:
        for part in self.parts:
            before, size = self._done_bytes, part.source.size_bytes or 0
            name = part.source.location
            with stores.open_stored(name, random=True) as file:
                rows = columns.iter_rows(file, name, self._columns, self._errors, part.groups)
                for row in rows:
                    yield Piece(row.text, name, True)
                    self._done_bytes = before + int(row.share * size)
            self._done_bytes = before + size

    def _stream_pieces(self, stream: ByteStream, piece_bytes: int) -> Iterator[Piece]:
        if self._mode == "file":
            return texts.iter_text(stream, piece_bytes, self._errors)
        records: Iterable[str]
        if self._mode == "line":
            records = (line for _, line in texts.iter_lines(stream, self._errors))
        elif self._mode == "jsonl":
            records = texts.iter_field(stream, self._field, self._errors)
        else:
            assert self._render is not None, "checked by _parse_mode"
            records = texts.iter_chats(stream, self._render, self._errors)
        return (Piece(record, stream.name, True) for record in records)

    def _open(self, part: Part) -> ByteStream:
        location = part.source.location
        if part.range is not None:
            between = stores.LinesBetween(stores.open_stored(location), *part.range)
            return ByteStream(part.shown, _damaged, cast(BinaryIO, between), owned=True)
        if stores.is_url(location):
            raw = cast(BinaryIO, stores.open_stored(location))
            return ByteStream(location, _damaged, raw, owned=True)
        if location != "-":
            return ByteStream(location, _damaged)
        if self._stdin_used:
            raise CorpusError("standard input has been read already: it can be read only once")
        self._stdin_used = True
        return ByteStream("<stdin>", _damaged, self._stdin or sys.stdin.buffer)


def _file_source(file: str) -> SourceInfo:
    if file == "-":
        return SourceInfo("stdin", "-", None)
    if stores.is_url(file):
        name = file.partition("?")[0].rstrip("/").rpartition("/")[2]
        return SourceInfo(name or file, file, stores.size_of(file))
    return SourceInfo(os.path.basename(file), file, regular_size(file))


def _damaged(name: str, detail: str, early: bool) -> CorpusError:
    remedy = "fetch the file again" if early else "check the file or fetch it again"
    return CorpusError(f"{name}: {detail}: {remedy}")
