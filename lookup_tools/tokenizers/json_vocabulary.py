"""From a Hugging Face ``tokenizer.json`` to a vocabulary.

A byte-level BPE whose pre-tokenizer is one of the table's is taken apart and treated exactly as a
GGUF file's. Any other definition is kept whole and run by ``tokenizers`` as it stands.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lookup_tools.errors import TokenizerError
from lookup_tools.tokenizers.pretokenizers import PreTokenizer, all_rows
from lookup_tools.tokenizers.synthesis import PUBLISHED, pre_tokenizer_json, published_form
from lookup_tools.tokenizers.token_kinds import looks_special, override_kinds
from lookup_tools.tokenizers.vocabulary import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
    find_end_of_turn,
)

Document = dict[str, Any]


def load_json(path: str | os.PathLike[str]) -> tuple[Vocabulary, Document | None]:
    """Read a ``tokenizer.json``; the document comes back when it has to be run as it stands.

    A ``tokenizer_config.json`` beside it supplies begin, end and chat template.

    Raises:
        OSError: the file cannot be opened.
        TokenizerError: not JSON, or JSON that is no tokenizer.
    """
    where = os.fspath(path)
    document = _parse(path, where)
    ids, kinds = _tokens(document, where)
    config = _config(Path(path).with_name("tokenizer_config.json"))
    row = None if document.get("normalizer") else _known_row(document)
    bos, eos = (ids.get(_content(config.get(key))) for key in ("bos_token", "eos_token"))
    eot = find_end_of_turn(ids)
    settled = np.array(kinds, np.int32)
    override_kinds(settled, ids, (), (eos, eot))
    vocabulary = Vocabulary(
        name=Path(path).resolve().parent.name or "tokenizer.json",
        model_type="gpt2" if row or "ByteLevel" in json.dumps(document.get("decoder")) else "json",
        pre=row.family if row else "own definition",
        family=row.family if row else _definition(document),
        guarded=True,
        tokens=_by_id(ids, len(kinds)),
        kinds=settled,
        merges=_merges(document, where),
        bos_id=bos,
        eos_id=eos,
        eot_id=eot,
        chat_template=_template(config.get("chat_template")),
    )
    return vocabulary, None if row else document


def _parse(path: str | os.PathLike[str], where: str) -> Document:
    raw = Path(path).read_bytes()
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise TokenizerError(
            f"{where}: found text that is not JSON, expected a GGUF file or a tokenizer.json; "
            "give the model's vocabulary"
        ) from None
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
        raise TokenizerError(
            f"{where}: found JSON without a tokenizer in it, expected a tokenizer.json with "
            "'model' and 'vocab'; give the model's own file"
        )
    assert isinstance(document, dict)
    return document


def _tokens(document: Document, where: str) -> tuple[dict[str, int], list[int]]:
    """Token ids by text, and the kind of every id."""
    vocab = document["model"]["vocab"]
    try:
        if isinstance(vocab, list):  # Unigram: [text, score] in id order
            vocab = {text: i for i, (text, _) in enumerate(vocab)}
        ids = dict(vocab)
        added = [
            (str(t["content"]), int(t["id"]), bool(t.get("special")) or looks_special(t["content"]))
            for t in document.get("added_tokens") or []
        ]
        ids.update({text: token_id for text, token_id, _ in added})
        size = 1 + max(ids.values(), default=-1)
        if min(ids.values(), default=0) < 0 or size > 4 * len(ids) + 1024:
            raise ValueError
    except (TypeError, ValueError, KeyError):
        raise TokenizerError(
            f"{where}: found token ids that make no vocabulary, expected texts with ids from 0 on; "
            "download the file again"
        ) from None
    kinds = [UNUSED] * size
    for token_id in ids.values():
        kinds[token_id] = NORMAL
    for _, token_id, special in added:
        kinds[token_id] = CONTROL if special else USER_DEFINED
    return ids, kinds


def _by_id(ids: dict[str, int], size: int) -> list[str]:
    tokens = [f"[PAD{i}]" for i in range(size)]
    for text, token_id in ids.items():
        tokens[token_id] = text
    return tokens


def _merges(document: Document, where: str) -> list[str]:
    """Each merge as its two parts with a space between; files have lists of two as well."""
    pairs = document["model"].get("merges") or []
    try:
        return [pair if isinstance(pair, str) else " ".join(map(str, pair)) for pair in pairs]
    except TypeError:
        raise TokenizerError(
            f"{where}: found merges that are no pairs of texts, expected a list of them; download "
            "the file again"
        ) from None


def literal_document(document: Document, control: Iterable[str]) -> Document:
    """The definition without its control tokens: where the model itself has one, under a text that
    no input holds, so that only unknown text still gives the token for it."""
    renamed = {text: f"\U0010ffff{i}\U0010ffff" for i, text in enumerate(control)}
    model = dict(document["model"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {renamed.get(text, text): i for text, i in model["vocab"].items()}
    else:
        model["vocab"] = [[renamed.get(text, text), score] for text, score in model["vocab"]]
    if model.get("merges"):
        pairs = [m.split(" ", 1) if isinstance(m, str) else list(m) for m in model["merges"]]
        model["merges"] = [p for p in pairs if not renamed.keys() & {*p, "".join(p)}]
    if model.get("unk_token") in renamed:
        model["unk_token"] = renamed[model["unk_token"]]
    added = [t for t in document.get("added_tokens") or [] if t.get("content") not in renamed]
    return {**document, "model": model, "added_tokens": added}


def _essence(part: Any) -> str:
    """A pre-tokenizer's definition without the fields that do not change the split."""
    if isinstance(part, dict) and part.get("type") == "Sequence":
        return "+".join(map(_essence, part.get("pretokenizers") or []))
    if isinstance(part, dict):
        kept = {key: value for key, value in part.items() if key != "trim_offsets"}
        if kept.get("type") == "ByteLevel":
            kept.setdefault("use_regex", True)
        return json.dumps(kept, sort_keys=True)
    return json.dumps(part)


def _known_row(document: Document) -> PreTokenizer | None:
    """The table row this definition equals, if any; merge handling takes part."""
    model = document["model"]
    if model.get("type", "BPE") != "BPE" or model.get("byte_fallback") or model.get("dropout"):
        return None
    essence = _essence(document.get("pre_tokenizer"))
    ignore_merges = bool(model.get("ignore_merges"))
    for row in all_rows():
        if row.ignore_merges != ignore_merges:
            continue
        forms = [pre_tokenizer_json(row)]
        if row.family in PUBLISHED:
            forms.append(published_form(row.family))
        if any(essence == _essence(form) for form in forms):
            return row
    return None


def _definition(document: Document) -> str:
    """A short hash naming a definition outside the table."""
    keys = ("normalizer", "pre_tokenizer")
    parts = {key: document.get(key) for key in keys}
    model = {k: v for k, v in document["model"].items() if k not in ("vocab", "merges")}
    if isinstance(document["model"]["vocab"], list):
        model["vocab"] = document["model"]["vocab"]
    text = json.dumps({**parts, "model": model}, sort_keys=True)
    return "json:" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _config(path: Path) -> Document:
    """The sibling configuration; a missing or broken one is treated as empty."""
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _content(token: Any) -> str:
    """The text of a token given as a string or as a described one; "" for none."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _template(value: Any) -> str | None:
    if isinstance(value, list):
        named = {t.get("name"): t.get("template") for t in value if isinstance(t, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None
