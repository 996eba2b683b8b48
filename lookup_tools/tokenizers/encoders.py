"""Chooses and builds the encoders of one vocabulary, each at its first use."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from lookup_tools.errors import ParameterError
from lookup_tools.tokenizers import agreement, synthesis
from lookup_tools.tokenizers.backends import Encoded, TokenizersBackend, TokieBackend
from lookup_tools.tokenizers.pretokenizers import pre_tokenizer
from lookup_tools.tokenizers.vocabulary import Vocabulary


def cut_kind(vocabulary: Vocabulary) -> str:
    """The kind of safe cuts this vocabulary allows, for ``Cutter``."""
    if vocabulary.model_type == "llama":
        return "words" if synthesis.words_are_separate(vocabulary) else "none"
    return pre_tokenizer(vocabulary.pre).cuts


class Encoders:
    """One encoder for literal text and one that parses special tokens.

    ``document`` is set for a definition that runs as it stands; ``refine`` cuts a text, given
    whether special tokens are parsed, into pieces that may be encoded apart.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        document: dict[str, Any] | None,
        refine: Callable[[str, bool], list[str]],
    ) -> None:
        self._vocabulary, self._document, self._refine = vocabulary, document, refine
        self._chosen: dict[bool, TokieBackend | TokenizersBackend] = {}
        self._reference: dict[bool, TokenizersBackend] = {}
        self._lock = threading.RLock()

    @cached_property
    def name(self) -> str:
        """The library that encodes ordinary text."""
        if self._document is not None or self._vocabulary.model_type != "gpt2":
            return "tokenizers"
        rule = pre_tokenizer(self._vocabulary.pre).tokie
        return "tokie" if agreement.trusted(rule, self._vocabulary) else "tokenizers"

    def run(self, pieces: list[str], parse_special: bool) -> Encoded:
        """Ids of all pieces one after the other, and each piece's count."""
        if not pieces:
            return np.empty(0, np.int32), np.empty(0, np.int64)
        try:
            return self._encoder(parse_special).encode(pieces)
        except UnicodeEncodeError as error:
            raise ParameterError(
                f"found a lone surrogate (U+{ord(error.object[error.start]):04X}) in the text, "
                "expected text that UTF-8 can hold; decode the input with errors='replace'"
            ) from None

    def reference(self, parse_special: bool) -> TokenizersBackend:
        """The ``tokenizers`` encoder, which serves whatever tokie cannot."""
        with self._lock:
            found = self._reference.get(parse_special)
            if found is None:
                found = TokenizersBackend(self._json(parse_special), len(self._vocabulary.tokens))
                self._reference[parse_special] = found
            return found

    def _encoder(self, parse_special: bool) -> TokieBackend | TokenizersBackend:
        with self._lock:
            found = self._chosen.get(parse_special)
            if found is None:
                found = self._chosen[parse_special] = self._build(parse_special)
            return found

    def _build(self, parse_special: bool) -> TokieBackend | TokenizersBackend:
        if self.name == "tokenizers":
            return self.reference(parse_special)
        vocabulary = self._vocabulary
        return TokieBackend(
            synthesis.document(vocabulary, parse_special=parse_special, for_tokie=True),
            agreement.Doubt(pre_tokenizer(vocabulary.pre).tokie, vocabulary),
            lambda: self.reference(parse_special),
            lambda text: self._refine(text, parse_special),
        )

    def _json(self, parse_special: bool) -> str:
        if self._document is None:
            return synthesis.document(self._vocabulary, parse_special=parse_special)
        document = {**self._document, "post_processor": None, "truncation": None, "padding": None}
        if not parse_special:
            added = self._document.get("added_tokens") or []
            document["added_tokens"] = [token for token in added if not token.get("special")]
        return json.dumps(document, ensure_ascii=False)
