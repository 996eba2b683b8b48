"""The two encoders behind one call: texts in, flat ids and lengths out.

tokie runs whole batches without the GIL on threads of its own and hands its buffers to numpy.
``tokenizers`` encodes batches without the GIL too, but gives ids only as Python lists, one text
at a time; it serves what tokie cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lookup_tools.errors import TokenizerError
from lookup_tools.system.signals import temporary_folder
from lookup_tools.tokenizers.agreement import Doubt

Ids = np.ndarray[Any, np.dtype[np.int32]]
Lengths = np.ndarray[Any, np.dtype[np.int64]]
Encoded = tuple[Ids, Lengths]

_UNFIT = (
    "found merges and tokens that do not fit ({}), expected a usable vocabulary; "
    "convert the model again"
)


class TokenizersBackend:
    """The ``tokenizers`` package on a JSON document.

    Ids from ``vocab_size`` on are stand-ins for bytes the vocabulary lacks, and are left out.
    """

    def __init__(self, document: str, vocab_size: int) -> None:
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(document)
        except Exception as error:  # the library raises nothing more special
            raise TokenizerError(_UNFIT.format(error)) from None
        self._size = vocab_size
        self._drop: bool = self._tokenizer.get_vocab_size() > vocab_size

    def encode(self, texts: list[str]) -> Encoded:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        parts = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        if self._drop:
            parts = [part[part < self._size] for part in parts]
        lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        return np.concatenate([*parts, np.empty(0, np.int32)]), lengths


class TokieBackend:
    """tokie, with ``doubtful`` texts left to another backend (made when first needed)."""

    def __init__(
        self,
        document: str,
        doubtful: Doubt,
        other: Callable[[], TokenizersBackend],
        refine: Callable[[str], list[str]],
    ) -> None:
        import tokie

        self._tokenizer: Any  # the stubs of 0.1.4 leave out encode_batch_flat
        # tokie loads from files only.
        with temporary_folder() as folder:
            path = Path(folder, "tokenizer.json")
            path.write_text(document, encoding="utf-8")
            try:
                self._tokenizer = tokie.Tokenizer.from_json(str(path))
            except (tokie.TokieError, ValueError) as error:
                raise TokenizerError(_UNFIT.format(error)) from None
        self._doubtful, self._other, self._refine = doubtful, other, refine

    def encode(self, texts: list[str]) -> Encoded:
        doubts = self._doubtful.indices(texts)
        if not doubts:
            return self._flat(texts)
        return self._mixed(texts, set(doubts))

    def _flat(self, texts: list[str]) -> Encoded:
        ids, lengths = self._tokenizer.encode_batch_flat(texts, False)
        return ids.view(np.int32), lengths.view(np.int64)

    def _mixed(self, texts: list[str], doubts: set[int]) -> Encoded:
        """Cut the doubtful texts finer, so that little of them takes the slow road."""
        pieces: list[str] = []
        slow: list[int] = []
        counts = np.ones(len(texts), np.int64)
        for i, text in enumerate(texts):
            if i not in doubts:
                pieces.append(text)
                continue
            finer = self._refine(text)
            counts[i] = len(finer)
            slow += [len(pieces) + j for j, part in enumerate(finer) if self._doubtful(part)]
            pieces += finer
        chosen = np.zeros(len(pieces), bool)
        chosen[slow] = True
        fast = self._flat([p for p, s in zip(pieces, chosen.tolist(), strict=True) if not s])
        other = self._other().encode([pieces[i] for i in slow])
        ids, lengths = interleave(fast, other, chosen)
        return ids, sum_groups(lengths, counts)


def interleave(first: Encoded, second: Encoded, from_second: np.ndarray[Any, Any]) -> Encoded:
    """One sequence of texts from two: where ``from_second`` is set, the next of ``second``.

    Cost: one copy of the ids, and a slice for every text of ``second``.
    """
    lengths = np.empty(len(from_second), np.int64)
    lengths[~from_second], lengths[from_second] = first[1], second[1]
    # Where in ``first`` each text of ``second`` goes, and where it ends in ``second``.
    own = np.where(from_second, 0, lengths)
    places = np.cumsum(own)[from_second].tolist()
    parts: list[Ids] = []
    at = taken = 0
    for place, length in zip(places, second[1].tolist(), strict=True):
        parts += [first[0][at:place], second[0][taken : taken + length]]
        at, taken = place, taken + length
    parts.append(first[0][at:])
    return np.concatenate(parts), lengths


def sum_groups(lengths: Lengths, counts: Lengths) -> Lengths:
    """Sums of consecutive groups of ``counts`` lengths; a group may be empty."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    stops = np.cumsum(counts)
    sums: Lengths = ends[stops] - ends[stops - counts]
    return sums
