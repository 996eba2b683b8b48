"""A vocabulary as read from a file: tokens, kinds, merges, special ids; and its fingerprint."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lookup_tools._native import check, ffi, lib, u8, u64
from lookup_tools.errors import TokenizerError
from lookup_tools.tokenizers.bytelevel import to_bytes

# Token kinds of GGUF's ``tokenizer.ggml.token_type``.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Texts by which llama.cpp finds the end-of-turn token when the file does not name it.
_END_OF_TURN = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
)


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer is made of; ``kinds`` and ``scores`` run parallel to ``tokens``.

    ``family`` is the row of the pre-tokenizer table (or a hash of an unknown definition), ``pre``
    the name in the file. ``merges`` are "left right" strings and empty for ``llama`` vocabularies,
    whose ``scores`` rank the merges instead. ``strip`` names tokens that take white space beside
    them away when they are recognised.
    """

    name: str
    model_type: str
    pre: str
    family: str
    tokens: list[str]
    kinds: np.ndarray[Any, np.dtype[np.int32]]
    merges: list[str]
    scores: np.ndarray[Any, np.dtype[np.float32]] | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None
    unk_id: int | None = None
    add_space_prefix: bool = False
    chat_template: str | None = None
    note: str | None = None
    guarded: bool = False  # literal text never gives a control token, whatever the merges say
    strip: dict[int, int] = field(default_factory=dict)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token text to id."""
        return {token: i for i, token in enumerate(self.tokens)}

    def of_kind(self, *kinds: int) -> list[int]:
        """Ids of the tokens of these kinds, ascending."""
        found: list[int] = np.flatnonzero(np.isin(self.kinds, kinds)).tolist()
        return found

    def literals(self, parse_special: bool) -> list[str]:
        """Token texts recognised before any splitting: user-defined ones, others if parsed."""
        kinds = (USER_DEFINED, CONTROL, UNKNOWN) if parse_special else (USER_DEFINED,)
        return [self.tokens[i] for i in self.of_kind(*kinds)]

    def strips(self, ids: list[int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Which of these tokens take white space away: bit 1 before them, bit 2 behind them."""
        return np.array([self.strip.get(i, 0) for i in ids], np.uint8)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes an id stands for; the id must be in range."""
        token, kind = self.tokens[token_id], int(self.kinds[token_id])
        if kind in (CONTROL, USER_DEFINED, UNKNOWN):
            return token.encode("utf-8", "surrogateescape")
        if self.model_type == "gpt2":
            return to_bytes(token)
        if re.fullmatch("<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        return token.replace("\u2581", " ").encode("utf-8", "surrogateescape")

    def fingerprint(self) -> str:
        """32 hex digits over everything that decides which ids a text gets.

        SHA-256 over type, pre-tokenizer family, tokens, token kinds, merges (scores where they
        rank) and the special ids. Names and chat templates do not take part.
        """
        digest = hashlib.sha256()
        head = (self.model_type, self.family, self.add_space_prefix, self.bos_id, self.eos_id)
        digest.update(repr(head).encode())
        for texts in (self.tokens, self.merges):
            lengths = np.fromiter(map(len, texts), dtype="<i4", count=len(texts))
            digest.update(len(texts).to_bytes(8, "little") + lengths.tobytes())
            digest.update("".join(texts).encode("utf-8", "surrogatepass"))
        digest.update(self.kinds.astype("<i4").tobytes())
        if self.scores is not None:
            digest.update(self.scores.astype("<f4").tobytes())
        return digest.hexdigest()[:32]

    def text_fingerprint(self) -> str:
        """16 hex digits over token texts and which of them are unused: csrc/core/vocabulary.c."""
        texts = [_text_bytes(token) for token in self.tokens]
        ends = np.cumsum(np.fromiter(map(len, texts), np.uint64, len(texts)), dtype=np.uint64)
        kinds = np.where(self.kinds == UNUSED, lib.LOOKUP_TOKEN_UNUSED, lib.LOOKUP_TOKEN_TEXT)
        state = ffi.new("lookup_vocabulary *")
        joined = b"".join(texts)
        check(
            lib.lookup_vocabulary_add_many(
                state,
                ffi.from_buffer("char[]", joined),
                u64(ends),
                u8(kinds.astype(np.uint8)),
                len(texts),
            )
        )
        return f"{lib.lookup_vocabulary_fingerprint(state):016x}"


def _text_bytes(token: str) -> bytes:
    """As the model file spells it: bytes that were no UTF-8 there are those bytes again, halves of
    characters, which only JSON can spell, are kept apart."""
    try:
        return token.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return token.encode("utf-8", "surrogatepass")


def find_end_of_turn(ids: dict[str, int]) -> int | None:
    """The end-of-turn token by its text, as llama.cpp looks for it; None without one."""
    return next((ids[text] for text in _END_OF_TURN if text in ids), None)


def check_unique(vocabulary: Vocabulary, where: str) -> None:
    """Refuse a vocabulary in which one text has two ids."""
    if len(vocabulary.ids) != len(vocabulary.tokens):
        raise TokenizerError(
            f"{where}: found {len(vocabulary.tokens)} tokens with {len(vocabulary.ids)} distinct "
            "texts, expected each text once; convert the model again"
        )
