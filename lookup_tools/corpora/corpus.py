"""What every corpus is: named sources and a lazy stream of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lookup_tools.corpora.text import Document, Piece

PIECE_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """One input. `name` has no folder in it, so it may go into reproducible files."""

    name: str
    location: str
    size_bytes: int | None


class Corpus:
    """A lazy stream of documents; see `open_corpus`.

    Memory is one piece (or one line, record or row group) at a time; `documents()` holds one
    whole document. Each call of `pieces()` or `documents()` starts again from the beginning,
    except that standard input can be read only once.

    `control_tokens` says that the text holds control tokens that are meant as such, because a chat
    template has put them there; other text that looks like one is text.
    """

    control_tokens = False

    def __init__(self, sources: Sequence[SourceInfo]) -> None:
        self.sources = tuple(sources)
        self.notes: list[str] = []
        self._done_bytes = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(source.name for source in self.sources)

    @property
    def size_bytes(self) -> int | None:
        """The expected total in the unit of `bytes_read`; None when a part is unknown."""
        sizes = [source.size_bytes for source in self.sources]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def bytes_read(self) -> int:
        """How far reading is: bytes on the disk for files (compressed ones too), else of text."""
        return self._done_bytes

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        """All documents in parts of at most about `piece_bytes` bytes of UTF-8.

        Only whole files are divided: a line, a record or a dataset's document is one part.
        """
        raise NotImplementedError

    def documents(self) -> Iterator[Document]:
        """All documents, whole."""
        parts: list[str] = []
        for piece in self.pieces():
            parts.append(piece.text)
            if piece.ends_document:
                yield Document("".join(parts), piece.source)
                parts = []
