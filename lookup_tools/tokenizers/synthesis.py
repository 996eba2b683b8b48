"""From a vocabulary to the ``tokenizer.json`` document that both backends load."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from lookup_tools.tokenizers.bytelevel import BYTE_TO_CHAR, missing_bytes
from lookup_tools.tokenizers.pretokenizers import PreTokenizer, pre_tokenizer
from lookup_tools.tokenizers.vocabulary import (
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
)

_LONG_TOKEN = 256  # characters; vocabularies of real models end at about 100
SPACE = "\u2581"  # the lower one eighth block: SentencePiece's visible space

Document = dict[str, Any]


def document(vocabulary: Vocabulary, *, parse_special: bool) -> str:
    """The JSON text; without ``parse_special`` control tokens are ordinary vocabulary entries."""
    kinds = (USER_DEFINED, CONTROL, UNKNOWN) if parse_special else (USER_DEFINED,)
    added = [_added(i, vocabulary.tokens[i]) for i in vocabulary.of_kind(*kinds)]
    parts = _spm(vocabulary) if vocabulary.model_type == "llama" else _byte_level(vocabulary)
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "post_processor": None,
            **parts,
        },
        ensure_ascii=False,
    )


def _added(token_id: int, text: str) -> Document:
    return {
        "id": token_id,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
    }


def _byte_level(vocabulary: Vocabulary) -> Document:
    row = pre_tokenizer(vocabulary.pre)
    return {
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer_json(row),
        "decoder": _byte_level_split(use_regex=False),
        "model": _bpe(
            _with_all_bytes(vocabulary.ids),
            _pairs(vocabulary.merges),
            ignore_merges=row.ignore_merges,
        ),
    }


def pre_tokenizer_json(row: PreTokenizer) -> Document:
    """The row as a sequence of isolating splits, then the byte-to-character mapping."""
    return _sequence(*map(_split, row.splits), _byte_level_split(use_regex=False))


PUBLISHED = ("gpt-2", "smollm", "llama-bpe", "dbrx", "glm4", "qwen2")


def published_form(family: str) -> Document:
    """The pre-tokenizer as models of this family publish it in their ``tokenizer.json``."""
    if family in ("gpt-2", "smollm"):
        last = _byte_level_split(use_regex=True)
        digits = {"type": "Digits", "individual_digits": True}
        return _sequence(digits, last) if family == "smollm" else last
    digits_at_once = r"\p{N}" if family == "qwen2" else r"\p{N}{1,3}"
    pattern = (
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits_at_once}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return _sequence(_split(pattern), _byte_level_split(use_regex=False))


def _sequence(*parts: Document) -> Document:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def _split(pattern: str) -> Document:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _byte_level_split(*, use_regex: bool) -> Document:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": use_regex,
    }


def _bpe(vocab: dict[str, int], merges: list[Any], **options: Any) -> Document:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": vocab,
        "merges": merges,
        **options,
    }


def _with_all_bytes(ids: dict[str, int]) -> dict[str, int]:
    """The vocabulary with stand-ins, beyond its own ids, for bytes it lacks."""
    lacking = missing_bytes(ids)
    return {**ids, **{BYTE_TO_CHAR[b]: len(ids) + i for i, b in enumerate(lacking)}}


def _pairs(merges: list[str]) -> list[Any]:
    """Merges in the short form where a single space makes it unambiguous, else as pairs.

    llama.cpp splits at the first space after the first character.
    """
    if all(merge.count(" ") == 1 for merge in merges):
        return list(merges)
    found = []
    for merge in merges:
        at = merge.find(" ", 1)
        if at > 0:
            found.append([merge[:at], merge[at + 1 :]])
    return found


def _spm(vocabulary: Vocabulary) -> Document:
    prepend = [{"type": "Prepend", "prepend": SPACE}] if vocabulary.add_space_prefix else []
    escape = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    split = _split(f"(?<=[^{SPACE}])(?={SPACE})")
    unknown = None if vocabulary.unk_id is None else vocabulary.tokens[vocabulary.unk_id]
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, escape]},
        "pre_tokenizer": split if words_are_separate(vocabulary) else None,
        "decoder": None,
        "model": _bpe(
            vocabulary.ids,
            merges_from_scores(vocabulary),
            byte_fallback=True,
            unk_token=unknown,
            fuse_unk=True,
            ignore_merges=False,
        ),
    }


def words_are_separate(vocabulary: Vocabulary) -> bool:
    """Whether no mergeable token has a space after something else, so no merge crosses words."""
    return not any(
        SPACE in token[1:] and SPACE in token.lstrip(SPACE) for token in vocabulary.tokens
    )


def merges_from_scores(vocabulary: Vocabulary) -> list[list[str]]:
    """Every way to join two tokens into a third, best score first.

    llama.cpp merges the neighbouring pair whose joint token has the highest score, leftmost first
    on ties; ranking all pairs by that score asks for the same merges in the same order.
    """
    assert vocabulary.scores is not None
    ids, scores = vocabulary.ids, vocabulary.scores
    order = np.argsort(-scores, kind="stable").tolist()
    lengths = sorted({len(token) for token in ids})
    merges = []
    for token_id in order:
        token = vocabulary.tokens[token_id]
        for at in _cuts(len(token), lengths):
            left, right = token[:at], token[at:]
            if left in ids and right in ids:
                merges.append([left, right])
    return merges


def _cuts(length: int, lengths: list[int]) -> Iterable[int]:
    """Where a token may be cut in two. Of a long one only parts as long as some token are looked
    at: a forged token of a megabyte would take minutes."""
    if length <= _LONG_TOKEN:
        return range(1, length)
    known = set(lengths)
    return [at for at in lengths if length - at in known]
