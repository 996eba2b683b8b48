"""Text files, tables of text and standard input as a corpus."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

from lookup_tools.corpora import columns, stores
from lookup_tools.corpora import text as texts
from lookup_tools.corpora.corpus import PIECE_BYTES, Corpus, SourceInfo
from lookup_tools.corpora.text import ChatRenderer, Errors, Piece
from lookup_tools.errors import CorpusError, ParameterError
from lookup_tools.system.compressed import ByteStream, regular_size


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
        self._columns = columns.parse_columns(field) if tables else ()
        self._mode, self._field, self._errors, self._render = mode, field, errors, render
        self.control_tokens = mode == "chat"
        self._stdin = stdin
        self._stdin_used = False
        self._stream: ByteStream | None = None

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
        for source in self.sources:
            with self._open(source.location) as stream:
                self._stream = stream
                try:
                    yield from self._stream_pieces(stream, piece_bytes)
                finally:
                    self._done_bytes += stream.position
                    self._stream = None

    def _table_pieces(self) -> Iterator[Piece]:
        for source in self.sources:
            before, size = self._done_bytes, source.size_bytes or 0
            with stores.open_stored(source.location, random=True) as file:
                rows = columns.iter_rows(file, source.location, self._columns, self._errors)
                for row in rows:
                    yield Piece(row.text, source.location, True)
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

    def _open(self, location: str) -> ByteStream:
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
