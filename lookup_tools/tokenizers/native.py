"""The core's encoder: what llama.cpp gives, without the GIL and no Python object per token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lookup_tools._native import check, ffi, i32, i64, lib, owned, u8, u64
from lookup_tools.errors import FormatError, TokenizerError
from lookup_tools.system.workers import processors, worker_pool
from lookup_tools.tokenizers.pretokenizers import pre_tokenizer
from lookup_tools.tokenizers.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary

Ids = np.ndarray[Any, np.dtype[np.int32]]
Lengths = np.ndarray[Any, np.dtype[np.int64]]
Encoded = tuple[Ids, Lengths]

UNFIT = (
    "found merges and tokens that do not fit ({}), expected a usable vocabulary; "
    "convert the model again"
)
# Reads of the core go this far beyond a text.
_SLACK = bytes(64)
# Fewer bytes are not worth another thread.
_SHARE = 1 << 16
_MEMO_BITS = 17


def rules_of(vocabulary: Vocabulary) -> int:
    """The core's number for the way a vocabulary splits text; negative if it has none."""
    family = vocabulary.family.encode()
    rules = int(lib.lookup_tokenizer_rules(family))
    # Without byte tokens SentencePiece fuses unknown neighbours, which the core does not.
    if vocabulary.model_type == "llama" and not all(
        f"<0x{byte:02X}>" in vocabulary.ids for byte in range(256)
    ):
        return -1
    return rules


class Memos:
    """Memos that no thread uses at the moment; there are never more than threads at work."""

    def __init__(self, bits: int = _MEMO_BITS) -> None:
        self._bits, self._free = bits, list[Any]()

    def take(self) -> Any:
        """One of them, a new one if need be; `give` it back."""
        try:
            return self._free.pop()
        except IndexError:
            create = lambda out: lib.lookup_memo_new(self._bits, out)  # noqa: E731
            return owned("lookup_memo", lib.lookup_memo_free, create)

    def give(self, memo: Any) -> None:
        self._free.append(memo)


class NativeBackend:
    """One vocabulary in the core; literal text and text with special tokens share its tables."""

    def __init__(self, vocabulary: Vocabulary, *, memo_bits: int = _MEMO_BITS) -> None:
        self.threads = processors()
        self._memos = Memos(memo_bits)
        self._tokenizer = _tokenizer(vocabulary)
        self._literals = {special: _literals(vocabulary, special) for special in (False, True)}

    def encode(self, texts: list[str], parse_special: bool) -> Encoded:
        """The ids of all texts one after the other, and each one's count."""
        raw = [text.encode() for text in texts]
        shares = _shares([len(each) for each in raw], self.threads)
        literals = self._literals[parse_special]
        if len(shares) == 1:
            return self._share(raw, literals)
        with worker_pool(len(shares)) as pool:
            assert pool is not None  # there are at least two shares
            found = list(pool.map(lambda ab: self._share(raw[slice(*ab)], literals), shares))
        ids, lengths = zip(*found, strict=True)
        return np.concatenate(ids), np.concatenate(lengths)

    def _share(self, raw: list[bytes], literals: Any) -> Encoded:
        text, ends = _joined(raw)
        room = lib.lookup_tokenize_room(self._tokenizer, int(ends[-1]) if len(ends) else 0)
        ids, counts = np.empty(room, np.int32), np.empty(len(raw), np.int64)
        memo = self._memos.take()
        status = lib.lookup_tokenize(
            self._tokenizer,
            literals,
            memo,
            u8(text),
            u64(ends),
            len(raw),
            i32(ids),
            len(ids),
            i64(counts),
        )
        self._memos.give(memo)
        check(status, "encoding")
        return ids[: int(counts.sum())].copy(), counts


def _joined(raw: Sequence[bytes]) -> tuple[Any, Any]:
    """All of them as one array, slack behind it, and where each ends."""
    ends = np.cumsum(np.fromiter(map(len, raw), np.uint64, count=len(raw)), dtype=np.uint64)
    return np.frombuffer(b"".join([*raw, _SLACK]), np.uint8), ends


def _shares(sizes: list[int], threads: int) -> list[tuple[int, int]]:
    """Consecutive texts of about the same size for each thread."""
    ends = np.cumsum(np.array([0, *sizes], np.int64))
    parts = int(max(1, min(threads, len(sizes), ends[-1] // _SHARE)))
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, parts) // parts).tolist()
    bounds = sorted({0, *cuts, len(sizes)})
    return list(pairwise(bounds)) or [(0, 0)]


def _strings(texts: Sequence[str]) -> tuple[Any, Any]:
    return _joined([text.encode("utf-8", "surrogatepass") for text in texts])


def _tokenizer(vocabulary: Vocabulary) -> Any:
    tokens, token_ends = _strings(vocabulary.tokens)
    merges, merge_ends = _strings(vocabulary.merges)
    unreachable = np.isin(vocabulary.kinds, (CONTROL,)).astype(np.uint8)
    scores = None if vocabulary.scores is None else np.ascontiguousarray(vocabulary.scores)
    held = {
        "tokens": u8(tokens),
        "token_ends": u64(token_ends),
        "merges": u8(merges),
        "merge_ends": u64(merge_ends),
        "unreachable": u8(unreachable) if vocabulary.guarded else ffi.NULL,
        "scores": ffi.NULL if scores is None else ffi.from_buffer("float[]", scores),
    }
    given = ffi.new(
        "lookup_tokens *",
        {
            **held,
            "n_tokens": len(vocabulary.tokens),
            "n_merges": len(vocabulary.merges),
            "rules": rules_of(vocabulary),
            "ignore_merges": scores is None and pre_tokenizer(vocabulary.pre).ignore_merges,
            "space_prefix": vocabulary.add_space_prefix,
        },
    )
    try:
        return owned(
            "lookup_tokenizer",
            lib.lookup_tokenizer_free,
            lambda out: lib.lookup_tokenizer_new(given, out),
        )
    except FormatError as error:
        reason = str(error).split(";")[0]
        raise TokenizerError(UNFIT.format(reason)) from None


def _literals(vocabulary: Vocabulary, parse_special: bool) -> Any:
    kinds = (USER_DEFINED, CONTROL, UNKNOWN) if parse_special else (USER_DEFINED,)
    chosen = vocabulary.of_kind(*kinds)
    if not chosen:
        return ffi.NULL
    texts, ends = _strings([vocabulary.tokens[i] for i in chosen])
    ids, strip = np.array(chosen, np.int32), vocabulary.strips(chosen)
    return owned(
        "lookup_literals",
        lib.lookup_literals_free,
        lambda out: lib.lookup_literals_new(
            u8(texts), u64(ends), i32(ids), u8(strip), len(chosen), out
        ),
    )
