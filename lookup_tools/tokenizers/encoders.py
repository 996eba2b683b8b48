"""Chooses and builds the encoders of one vocabulary, each at its first use."""

from __future__ import annotations

import json
import threading
from functools import cached_property
from typing import Any

import numpy as np

from lookup_tools.errors import ParameterError
from lookup_tools.tokenizers import synthesis
from lookup_tools.tokenizers.backends import Encoded, TokenizersBackend
from lookup_tools.tokenizers.json_vocabulary import literal_document
from lookup_tools.tokenizers.native import NativeBackend, rules_of
from lookup_tools.tokenizers.pretokenizers import pre_tokenizer
from lookup_tools.tokenizers.vocabulary import CONTROL, Vocabulary


def cut_kind(vocabulary: Vocabulary) -> str:
    """The kind of safe cuts this vocabulary allows, for ``Cutter``."""
    if vocabulary.model_type == "llama":
        return "words" if synthesis.words_are_separate(vocabulary) else "none"
    return pre_tokenizer(vocabulary.pre).cuts


class Encoders:
    """The core's encoder where it has one for the vocabulary, else ``tokenizers``.

    ``document`` is set for a definition that runs as it stands.
    """

    def __init__(self, vocabulary: Vocabulary, document: dict[str, Any] | None) -> None:
        self._vocabulary, self._document = vocabulary, document
        self._native: NativeBackend | None = None
        self._reference: dict[bool, TokenizersBackend] = {}
        self._lock = threading.RLock()

    @cached_property
    def name(self) -> str:
        """What encodes: ``core`` or ``tokenizers``."""
        own = self._document is None and rules_of(self._vocabulary) >= 0
        return "core" if own else "tokenizers"

    def run(self, pieces: list[str], parse_special: bool) -> Encoded:
        """Ids of all pieces one after the other, and each piece's count."""
        if not pieces:
            return np.empty(0, np.int32), np.empty(0, np.int64)
        try:
            if self.name == "core":
                return self.native.encode(pieces, parse_special)
            return self.reference(parse_special).encode(pieces)
        except UnicodeEncodeError as error:
            raise ParameterError(
                f"found a lone surrogate (U+{ord(error.object[error.start]):04X}) in the text, "
                "expected text that UTF-8 can hold; decode the input with errors='replace'"
            ) from None

    @property
    def native(self) -> NativeBackend:
        """The core's encoder."""
        with self._lock:
            if self._native is None:
                self._native = NativeBackend(self._vocabulary)
            return self._native

    def reference(self, parse_special: bool) -> TokenizersBackend:
        """The ``tokenizers`` encoder, for what the core does not split and for tests."""
        with self._lock:
            found = self._reference.get(parse_special)
            if found is None:
                found = TokenizersBackend(self._json(parse_special), len(self._vocabulary.tokens))
                self._reference[parse_special] = found
            return found

    def _json(self, parse_special: bool) -> str:
        if self._document is None:
            return synthesis.document(self._vocabulary, parse_special=parse_special)
        document = {**self._document, "post_processor": None, "truncation": None, "padding": None}
        if not parse_special:
            control = self._vocabulary.of_kind(CONTROL)
            document = literal_document(document, [self._vocabulary.tokens[i] for i in control])
        return json.dumps(document, ensure_ascii=False)
