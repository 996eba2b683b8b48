"""Tokens in memory, with the identity of the vocabulary they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools.errors import ParameterError, TokenizerMismatchError

Ids = npt.NDArray[np.int32]
Ends = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """Whose ids these are; every field is None or empty for raw files."""

    vocab_size: int | None = None
    fingerprint: str | None = None
    tokenizer: str | None = None
    corpora: tuple[str, ...] = ()
    text_fingerprint: str | None = None

    def require_tokenizer(self, fingerprint: str, name: str) -> None:
        """Refuse ids of another vocabulary; without a fingerprint there is nothing to compare.

        Raises:
            TokenizerMismatchError: both names are in the message.
        """
        if self.fingerprint is not None and self.fingerprint != fingerprint:
            theirs = f"{self.tokenizer or 'an unnamed tokenizer'} ({self.fingerprint[:12]})"
            raise TokenizerMismatchError(
                f"the tokens were made with {theirs}, expected {name} ({fingerprint[:12]}): "
                "tokenize again, or leave out -m"
            )


@dataclass(frozen=True, slots=True, eq=False)
class TokenStream:
    """All tokens of a corpus.

    `ids` is (n,) int32, C-contiguous; document k is `ids[doc_ends[k-1]:doc_ends[k]]`, `doc_ends`
    being (documents,) int64, never falling, the last equal to n. Documents may be empty.
    """

    ids: Ids
    doc_ends: Ends
    info: TokenInfo = TokenInfo()

    def __post_init__(self) -> None:
        ids, ends = self.ids, self.doc_ends
        if ids.dtype != np.int32 or ids.ndim != 1 or not ids.flags.c_contiguous:
            raise ParameterError("ids: expected a one-dimensional contiguous int32 array")
        if ends.dtype != np.int64 or ends.ndim != 1:
            raise ParameterError("doc_ends: expected a one-dimensional int64 array")
        last = int(ends[-1]) if ends.size else 0
        if last != ids.size or (ends.size and (ends[0] < 0 or np.any(ends[1:] < ends[:-1]))):
            raise ParameterError(f"doc_ends: expected to rise to {ids.size}, the number of ids")

    @classmethod
    def from_documents(cls, documents: Sequence[Ids], info: TokenInfo | None = None) -> TokenStream:
        """Join documents given one by one."""
        lengths = np.fromiter((len(document) for document in documents), np.int64, len(documents))
        joined = [np.empty(0, np.int32), *documents]
        ids = np.ascontiguousarray(np.concatenate(joined), np.int32)
        return cls(ids, np.cumsum(lengths, dtype=np.int64), info or TokenInfo())

    @property
    def vocab_size(self) -> int | None:
        return self.info.vocab_size

    @property
    def fingerprint(self) -> str | None:
        return self.info.fingerprint

    def documents(self) -> Iterator[Ids]:
        """Each document as a view of `ids`."""
        start = 0
        for end in self.doc_ends.tolist():
            yield self.ids[start:end]
            start = end

    def concatenated(self) -> TokenStream:
        """The same ids as one document, for `--concatenate`."""
        return replace(self, doc_ends=np.array([self.ids.size], np.int64))


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Some tokens of a stream of documents.

    `ends` are the ascending offsets at which documents end; tokens behind the last one belong to a
    document that the next batch goes on with.
    """

    ids: Ids
    ends: Ends


def as_tokens(ids: Any) -> Ids:
    """Ids as a C-contiguous int32 array: int32 buffers as they are, lists and wider integers
    converted once.

    Raises:
        ParameterError: not integers, negative, beyond 2^31-1, or not one-dimensional.
    """
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ParameterError(
            f"found {array.ndim}-dimensional {array.dtype} tokens, expected one row of integers"
        )
    least, largest = int(array.min()), int(array.max())
    if least < 0 or largest >= 2**31:
        found = least if least < 0 else largest
        raise ParameterError(f"found token {found}, expected ids from 0 to 2^31-1")
    return np.ascontiguousarray(array, np.int32)
