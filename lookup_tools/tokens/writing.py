"""Writing token files as the tokens arrive."""

from __future__ import annotations

import contextlib
import hashlib
import os
from array import array
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools.errors import ParameterError
from lookup_tools.system.atomic import atomic_output
from lookup_tools.tokens import layout
from lookup_tools.tokens.stream import Ends, TokenInfo, TokenStream

PathArgument = str | os.PathLike[str]
# zstd's own default; higher levels gain 2-3 % on token ids.
_ZSTD_LEVEL = 3


class TokenWriter:
    """Append tokens to a new token file; it appears when the `with` block ends well.

    Memory is one block (2**20 tokens) and what was appended last. A name ending in `.zst` is
    compressed. Ids are stored in 2 bytes when the vocabulary has at most 65,536, else in 4; a
    name that says otherwise (`.u16`, `.u32`) is refused. The same tokens and documents give the
    same bytes however they are split over calls.

    Raises:
        ParameterError: the file exists (without `force`), the name contradicts the width, ids are
            outside the vocabulary.
        OSError: the disk is full or the folder refuses; names `path`.
    """

    def __init__(
        self,
        path: PathArgument,
        vocab_size: int,
        fingerprint: str | None,
        *,
        tokenizer: str | None = None,
        corpora: Sequence[str] = (),
        text_fingerprint: str | None = None,
        force: bool = False,
    ) -> None:
        if not 0 < vocab_size <= 1 << 31:
            raise ParameterError(f"vocab_size is {vocab_size}, expected 1 to 2**31")
        self.info = TokenInfo(vocab_size, fingerprint, tokenizer, tuple(corpora), text_fingerprint)
        self.n_tokens = 0
        self.n_documents = 0
        self._path, self._force = os.fspath(path), force
        self._width = layout.width_for(vocab_size)
        _check_name(self._path, self._width, vocab_size)
        self._limit = vocab_size
        self._parts: list[npt.NDArray[Any]] = []
        self._buffered = 0
        self._written = 0
        self._last_end = 0
        self._ends = array("q")
        self._file_digest, self._ids_digest = hashlib.sha256(), hashlib.sha256()
        self._stack = contextlib.ExitStack()
        self._out: Any = None

    def __enter__(self) -> TokenWriter:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(atomic_output(self._path, force=self._force))
            self._out = file
            if self._path.endswith(".zst"):
                import zstandard

                compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
                self._out = stack.enter_context(compressor.stream_writer(file, closefd=False))
            self._emit(layout.encode_head(self.info, self._width))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            self._finish()

    def append(self, ids: npt.ArrayLike, doc_ends: npt.ArrayLike | None = None) -> None:
        """Continue the current document with `ids`, any one-dimensional integers.

        `doc_ends`, if given, are positions in `ids` (0 to len, never falling) where documents
        end, so that one call can hold many documents.
        """
        tokens = self._checked_ids(np.asarray(ids))
        if doc_ends is not None:
            ends = np.asarray(doc_ends, np.int64)
            if ends.size and (
                ends[0] < 0 or ends[-1] > tokens.size or np.any(ends[1:] < ends[:-1])
            ):
                raise ParameterError(f"doc_ends: expected to rise from 0 to {tokens.size} at most")
            self._ends.frombytes((ends + self.n_tokens).tobytes())
            self.n_documents += ends.size
            self._last_end = int(ends[-1]) + self.n_tokens if ends.size else self._last_end
        self._parts.append(tokens)
        self._buffered += tokens.size
        self.n_tokens += tokens.size
        if self._buffered > layout.BLOCK_TOKENS:
            self._flush()

    def end_document(self) -> None:
        """End the current document, which may be empty."""
        self._ends.append(self.n_tokens)
        self._last_end = self.n_tokens
        self.n_documents += 1

    def _checked_ids(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ParameterError(f"ids: expected one dimension of integers, found {ids.dtype}")
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < self._limit:
            worst = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise ParameterError(f"id {worst}, expected 0 to {self._limit - 1}: another tokenizer?")
        return ids.astype(layout.dtype_of(self._width))

    def _flush(self) -> None:
        """Write the blocks that are complete.

        That is known only once a token behind them exists: until then further documents may end
        at a block's last position.
        """
        ids = np.concatenate(self._parts)
        ends = np.frombuffer(self._ends, np.int64)
        start = 0
        while ids.size - start > layout.BLOCK_TOKENS:
            stop = start + layout.BLOCK_TOKENS
            count = int(np.searchsorted(ends, self._written + layout.BLOCK_TOKENS, side="right"))
            self._write_block(ids[start:stop], ends[:count])
            start, ends = stop, ends[count:]
        self._ends = array("q", ends.tobytes())
        self._parts, self._buffered = [ids[start:].copy()], ids.size - start

    def _write_block(self, ids: npt.NDArray[Any], ends: Ends) -> None:
        stored = ids.tobytes()
        self._ids_digest.update(stored)
        self._emit(layout.encode_block(stored, ids.size, ends - self._written))
        self._written += ids.size

    def _finish(self) -> None:
        if self.n_tokens > self._last_end:
            self.end_document()
        if self._buffered or self._ends:
            ids = np.concatenate(self._parts) if self._parts else np.empty(0, np.uint16)
            self._write_block(ids, np.frombuffer(self._ends, np.int64))
        digest = self._ids_digest.digest()
        self._emit(layout.encode_foot(self.n_tokens, self.n_documents, digest))
        self._out.write(self._file_digest.digest() + layout.END_MAGIC)

    def _emit(self, data: bytes) -> None:
        self._file_digest.update(data)
        self._out.write(data)


def save_tokens(path: PathArgument, stream: TokenStream, *, force: bool = False) -> None:
    """Write a stream held in memory; its vocabulary size must be known."""
    info = stream.info
    if info.vocab_size is None:
        raise ParameterError("the stream has no vocabulary size: a raw file's must be given")
    with TokenWriter(
        path,
        info.vocab_size,
        info.fingerprint,
        tokenizer=info.tokenizer,
        corpora=info.corpora,
        text_fingerprint=info.text_fingerprint,
        force=force,
    ) as writer:
        writer.append(stream.ids, stream.doc_ends)


def _check_name(path: str, width: int, vocab_size: int) -> None:
    stem = path.removesuffix(".zst")
    if stem.endswith((".u16", ".u32")) and not stem.endswith(f".u{8 * width}"):
        raise ParameterError(
            f"{path}: {vocab_size} ids are stored in {8 * width} bits: name it .u{8 * width}"
        )
