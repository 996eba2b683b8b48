"""From GGUF metadata to a vocabulary, with llama.cpp's defaults."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lookup_tools.errors import TokenizerError
from lookup_tools.tokenizers.gguf_metadata import Metadata, read_metadata
from lookup_tools.tokenizers.pretokenizers import pre_tokenizer
from lookup_tools.tokenizers.token_kinds import override_kinds
from lookup_tools.tokenizers.vocabulary import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    check_unique,
    find_end_of_turn,
)

# llama.cpp's ids for begin, end and unknown where the file names none.
_DEFAULT_IDS = {"gpt2": (11, 11, None), "llama": (1, 2, 0)}


_NO_PRE = (
    "names no pre-tokenizer (tokenizer.ggml.pre), so its text is split by llama.cpp's default "
    "rules, as in the engine, which warns of degraded quality; convert the model again"
)


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
        note=None if pre or model == "llama" else _NO_PRE,
    )
    check_unique(vocabulary, where)
    _find_end_of_turn(vocabulary)
    _settle_kinds(vocabulary, meta)
    return vocabulary


# Roles of tokens for which a file may give an id, and the keys of older files.
_FIM_KEYS = {
    **{f"fim_{role}": (f"fim_{role}",) for role in ("pad", "rep", "sep")},
    "fim_pre": ("fim_pre", "prefix"),
    "fim_suf": ("fim_suf", "suffix"),
    "fim_mid": ("fim_mid", "middle"),
}


def _settle_kinds(vocabulary: Vocabulary, meta: Metadata) -> None:
    """Kinds and stripping as llama.cpp sets them by the tokens' texts and the model's name."""
    count = len(vocabulary.tokens)
    named = {
        role
        for role, keys in _FIM_KEYS.items()
        if any(_special(meta, key, None, count) is not None for key in keys)
    }
    ends = {vocabulary.eos_id, vocabulary.eot_id, _special(meta, "eom", None, count)}
    override_kinds(vocabulary.kinds, vocabulary.ids, named, ends - {None})
    name = (_text(meta, "general.name") or "").lower()
    masked = {"[MASK]"} if "modern-bert" in name else set()
    if vocabulary.pre in ("jina-v2-de", "jina-v2-es", "jina-v2-code"):
        masked = {"<mask>"}
    vocabulary.strip.update({vocabulary.ids[t]: 1 for t in masked if t in vocabulary.ids})
    if not masked and ("phi-3" in name or "phi3" in name):
        kept = ("<unk>", "<s>", "<|endoftext|>")
        recognised = vocabulary.of_kind(CONTROL, USER_DEFINED, UNKNOWN)
        vocabulary.strip.update({i: 2 for i in recognised if vocabulary.tokens[i] not in kept})


def _find_end_of_turn(vocabulary: Vocabulary) -> None:
    """llama.cpp finds this token by its text and makes it a control token; so do we."""
    eot = find_end_of_turn(vocabulary.ids)
    if vocabulary.eot_id is None and eot is not None:
        vocabulary.kinds[eot] = CONTROL
        object.__setattr__(vocabulary, "eot_id", eot)


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
