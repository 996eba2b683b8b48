"""From GGUF metadata to a vocabulary, with llama.cpp's defaults."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lookup_tools.errors import TokenizerError
from lookup_tools.tokenizers.gguf_metadata import Metadata, read_metadata
from lookup_tools.tokenizers.pretokenizers import pre_tokenizer
from lookup_tools.tokenizers.vocabulary import (
    CONTROL,
    NORMAL,
    Vocabulary,
    check_unique,
    find_end_of_turn,
)

# llama.cpp's ids for begin, end and unknown where the file names none.
_DEFAULT_IDS = {"gpt2": (11, 11, None), "llama": (1, 2, 0)}


def load_gguf(path: str | os.PathLike[str]) -> Vocabulary:
    """Read the vocabulary of a GGUF file.

    Raises:
        OSError: the file cannot be opened.
        FormatError: not a GGUF file, or a damaged one.
        TokenizerError: no vocabulary in it, or one of a type or pre-tokenizer not supported.
    """
    where = os.fspath(path)
    meta = read_metadata(path)
    model = meta.get("tokenizer.ggml.model")
    if not isinstance(model, str) or model not in _DEFAULT_IDS:
        absent = model is None or (isinstance(model, str) and model in ("none", "no_vocab"))
        found = "no vocabulary" if absent else f"a vocabulary of type {model!r:.80}"
        raise TokenizerError(
            f"{where}: found {found}, expected type 'gpt2' or 'llama'; "
            "give a model with such a vocabulary or its tokenizer.json"
        )
    try:
        return _build(meta, model, where)
    except TokenizerError as error:
        text = str(error)
        raise TokenizerError(text if text.startswith(where) else f"{where}: {text}") from None


def _build(meta: Metadata, model: str, where: str) -> Vocabulary:
    tokens = _tokens(meta, where)
    pre = meta.get("tokenizer.ggml.pre", "")
    if not isinstance(pre, str):
        raise TokenizerError(
            f"{where}: found {pre!r:.80} at 'tokenizer.ggml.pre', expected the name of a "
            "pre-tokenizer; convert the model again"
        )
    family = "spm" if model == "llama" else pre_tokenizer(pre).family
    bos, eos, unk = (
        _special(meta, key, default, len(tokens))
        for key, default in zip(("bos", "eos", "unknown"), _DEFAULT_IDS[model], strict=True)
    )
    vocabulary = Vocabulary(
        name=_text(meta, "general.name") or _text(meta, "general.architecture") or "unnamed",
        model_type=model,
        pre=pre or "default",
        family=family,
        tokens=tokens,
        kinds=_kinds(meta, len(tokens), where),
        merges=_merges(meta, where) if model == "gpt2" else [],
        scores=_scores(meta, len(tokens), where) if model == "llama" else None,
        bos_id=bos,
        eos_id=eos,
        eot_id=_special(meta, "eot", None, len(tokens)),
        unk_id=unk,
        add_space_prefix=model == "llama"
        and meta.get("tokenizer.ggml.add_space_prefix") is not False,
        chat_template=_text(meta, "tokenizer.chat_template"),
    )
    check_unique(vocabulary, where)
    return _with_end_of_turn(vocabulary)


def _with_end_of_turn(vocabulary: Vocabulary) -> Vocabulary:
    """llama.cpp finds this token by its text and makes it a control token; so do we."""
    if vocabulary.eot_id is None:
        eot = find_end_of_turn(vocabulary.ids)
        if eot is not None:
            vocabulary.kinds[eot] = CONTROL
            object.__setattr__(vocabulary, "eot_id", eot)
    return vocabulary


def _text(meta: Metadata, key: str) -> str | None:
    """A string, or None where the file has none or something else under that key."""
    value = meta.get(key)
    return value if isinstance(value, str) else None


def _strings(meta: Metadata, key: str, where: str) -> list[str]:
    raw = meta.get(key)
    if not isinstance(raw, list):
        raise TokenizerError(
            f"{where}: found no list of strings at {key!r}, expected one; convert the model again"
        )
    return [item.decode("utf-8", "surrogateescape") for item in raw]


def _tokens(meta: Metadata, where: str) -> list[str]:
    tokens = _strings(meta, "tokenizer.ggml.tokens", where)
    if not tokens:
        raise TokenizerError(
            f"{where}: found an empty vocabulary, expected tokens; use another file"
        )
    return [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens)]


def _merges(meta: Metadata, where: str) -> list[str]:
    return _strings(meta, "tokenizer.ggml.merges", where)


def _numbers(
    meta: Metadata, key: str, count: int, where: str, kinds: str
) -> np.ndarray[Any, Any] | None:
    """The first `count` numbers under a key; `kinds` are numpy's letters of the kinds allowed."""
    raw = meta.get(key)
    if raw is None:
        return None
    if not isinstance(raw, np.ndarray) or len(raw) < count or raw.dtype.kind not in kinds:
        what = "integers" if kinds == "iu" else "numbers"
        raise TokenizerError(
            f"{where}: found something else at {key!r}, expected {count} {what}; "
            "convert the model again"
        )
    return raw[:count]


def _kinds(meta: Metadata, count: int, where: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    raw = _numbers(meta, "tokenizer.ggml.token_type", count, where, "iu")
    return np.full(count, NORMAL, np.int32) if raw is None else raw.astype(np.int32)


def _scores(meta: Metadata, count: int, where: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    raw = _numbers(meta, "tokenizer.ggml.scores", count, where, "iuf")
    with np.errstate(over="ignore"):  # a score beyond float32 is infinite
        return np.zeros(count, np.float32) if raw is None else raw.astype(np.float32)


def _special(meta: Metadata, key: str, default: int | None, count: int) -> int | None:
    """A special id, or the default where the file has none or one outside the vocabulary."""
    value = meta.get(f"tokenizer.ggml.{key}_token_id")
    if not isinstance(value, int) or not 0 <= value < count:
        value = default
    return value if value is not None and 0 <= value < count else None
