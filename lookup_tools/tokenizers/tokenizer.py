"""The tokenizer that the rest of the package uses, whatever file it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from lookup_tools.errors import ParameterError, TokenizerError
from lookup_tools.tokenizers.backends import Encoded, Ids, Lengths, sum_groups
from lookup_tools.tokenizers.cuts import Cutter
from lookup_tools.tokenizers.encoders import Encoders, cut_kind
from lookup_tools.tokenizers.vocabulary import CONTROL, Vocabulary

# Long enough that cutting costs nothing, short enough that every processor gets some.
_PIECE_CHARS = 1 << 16


class Tokenizer:
    """Texts to ids and back, as llama.cpp does it; made by ``open_tokenizer``.

    Ids are those of ``llama-tokenize --no-bos --no-escape``: special tokens in the text are text
    unless ``parse_special`` is given, and BOS is added only on request. Instances may be shared
    by threads. The encoders are built at the first use of each mode.
    """

    def __init__(self, vocabulary: Vocabulary, document: dict[str, Any] | None = None) -> None:
        self._vocabulary = vocabulary
        self._document = document
        self._encoders = Encoders(vocabulary, document)
        self._cut_kind = "none" if document else cut_kind(vocabulary)
        self._cutters: dict[bool, Cutter] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made of; encoders are built again where it is used."""
        return type(self), (self._vocabulary, self._document)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.name}>"

    @property
    def name(self) -> str:
        """For people: model, type, pre-tokenizer and size."""
        return f"{self._vocabulary.name} ({self.model_type}/{self.pre}, {self.vocab_size} ids)"

    @property
    def model_type(self) -> str:
        """``gpt2``, ``llama``, or ``json`` for a definition run as it stands."""
        return self._vocabulary.model_type

    @property
    def pre(self) -> str:
        """The pre-tokenizer's name."""
        return self._vocabulary.pre

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self._vocabulary.tokens)

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits; equal fingerprints give equal ids for every text."""
        return self._vocabulary.fingerprint()

    @cached_property
    def text_fingerprint(self) -> str:
        """16 hex digits over the texts of the tokens, which engines can compute, too: equal ones
        give ids the same meaning, though perhaps texts other ids."""
        return self._vocabulary.text_fingerprint()

    @property
    def bos_id(self) -> int | None:
        """The begin-of-text id."""
        return self._vocabulary.bos_id

    @property
    def note(self) -> str | None:
        """What the engine warns of when it loads this vocabulary."""
        return self._vocabulary.note

    @property
    def eos_id(self) -> int | None:
        """The end-of-text id."""
        return self._vocabulary.eos_id

    @property
    def eot_id(self) -> int | None:
        """The end-of-turn id."""
        return self._vocabulary.eot_id

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja chat template."""
        return self._vocabulary.chat_template

    @cached_property
    def special_texts(self) -> list[str]:
        """The literal texts of the control tokens, in id order."""
        return [self._vocabulary.tokens[i] for i in self._vocabulary.of_kind(CONTROL)]

    @property
    def backend(self) -> str:
        """What encodes: ``core``, or the library ``tokenizers``."""
        return self._encoders.name

    def encode(self, text: str, *, parse_special: bool = False, bos: bool = False) -> Ids:
        """The ids of one text, as a C-contiguous int32 array; see ``encode_batch``."""
        return self.encode_batch([text], parse_special=parse_special, bos=bos)[0]

    def encode_large(
        self,
        text: str,
        *,
        parse_special: bool = False,
        bos: bool = False,
        piece_chars: int | None = None,
    ) -> Ids:
        """The ids of one large text, cut at safe places and encoded on all processors.

        ``piece_chars`` is the least length of a piece; the default suits the encoder.
        """
        pieces = self.split(text, piece_chars, parse_special=parse_special)
        ids, _ = self._encoders.run(pieces, parse_special)
        return self._with_bos(ids, np.array([len(ids)], np.int64))[0] if bos else ids

    def encode_batch(
        self, texts: Sequence[str], *, parse_special: bool = False, bos: bool = False
    ) -> Encoded:
        """The ids of all texts one after the other (int32), and each text's count (int64).

        Large texts are cut at safe places first, so that one text keeps every processor busy and
        texts of any size cost the same per byte. No Python object is made per token where the
        core encodes. With ``bos`` every text begins with the BOS id.

        Raises:
            ParameterError: a text holds a lone surrogate, which no encoding has.
            TokenizerError: ``bos`` without a BOS token in the vocabulary.
        """
        if max(map(len, texts), default=0) <= _PIECE_CHARS:
            ids, lengths = self._encoders.run(list(texts), parse_special)
        else:
            split = [self.split(text, parse_special=parse_special) for text in texts]
            ids, lengths = self._encoders.run(list(chain(*split)), parse_special)
            counts = np.fromiter(map(len, split), dtype=np.int64, count=len(split))
            lengths = sum_groups(lengths, counts)
        return self._with_bos(ids, lengths) if bos else (ids, lengths)

    def split(
        self, text: str, piece_chars: int | None = None, *, parse_special: bool = False
    ) -> list[str]:
        """Texts whose ids, put together, are those of ``text``: itself where no cut is safe.

        Where the vocabulary puts a space before every text (``llama`` ones), the later pieces
        leave out the space they begin with, for that reason.
        """
        if piece_chars is None:
            piece_chars = _PIECE_CHARS
        if len(text) <= piece_chars:
            return [text]
        cuts = self.safe_cuts(text, piece_chars, parse_special=parse_special) or []
        skip = 1 if self._vocabulary.add_space_prefix else 0
        starts = [0, *(cut + skip for cut in cuts)]
        return [text[a:b] for a, b in zip(starts, [*cuts, len(text)], strict=True)]

    def safe_cuts(
        self, text: str, target_chars: int, *, parse_special: bool = False
    ) -> list[int] | None:
        """Positions where ``text`` may be cut, each ``target_chars`` or a little more apart.

        None: this vocabulary allows no cuts. The pieces' ids equal the whole text's (``llama``
        vocabularies: see ``split``).
        """
        if target_chars < 1:
            raise ParameterError(f"target_chars is {target_chars}, expected at least 1")
        cutter = self._cutters.get(parse_special)
        if cutter is None:
            cutter = Cutter(self._cut_kind, self._vocabulary.literals(parse_special))
            self._cutters[parse_special] = cutter
        return cutter.find(text, target_chars)

    def count_special(self, text: str) -> int:
        """How many literal control-token texts occur in ``text``; they are encoded as text."""
        pattern = self._special_pattern
        return 0 if pattern is None else sum(1 for _ in pattern.finditer(text))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one id stands for; special and user-defined tokens give their own text.

        Raises:
            ParameterError: the id is outside the vocabulary.
        """
        if not 0 <= token_id < self.vocab_size:
            raise ParameterError(
                f"found the id {token_id}, expected 0 to {self.vocab_size - 1}; "
                "the ids belong to another vocabulary"
            )
        return self._vocabulary.token_bytes(token_id)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; bytes that are not UTF-8 become U+FFFD.

        The space that a ``llama`` vocabulary puts before a text is taken off again.
        """
        numbers = ids.tolist() if isinstance(ids, np.ndarray) else ids
        text = b"".join(map(self.token_bytes, numbers)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self._vocabulary.add_space_prefix else text

    @cached_property
    def _special_pattern(self) -> re.Pattern[str] | None:
        texts = sorted(self.special_texts, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts))) if texts else None

    def _with_bos(self, ids: Ids, lengths: Lengths) -> Encoded:
        if self.bos_id is None:
            raise TokenizerError(
                f"found no BOS token in {self.name}, expected one for --bos; leave the flag out"
            )
        starts = np.cumsum(lengths) - lengths
        return np.insert(ids, starts, self.bos_id).astype(np.int32, copy=False), lengths + 1
