"""The ``tokenizers`` package behind the same call as the core: for definitions without a splitter
there (``native.py``), and as the tests' oracle. It gives ids only as Python lists."""

from __future__ import annotations

import numpy as np

from lookup_tools.errors import TokenizerError
from lookup_tools.tokenizers.native import UNFIT, Encoded, Ids, Lengths

__all__ = ["Encoded", "Ids", "Lengths", "TokenizersBackend", "sum_groups"]


class TokenizersBackend:
    """The ``tokenizers`` package on a JSON document.

    Ids from ``vocab_size`` on are stand-ins for bytes the vocabulary lacks, and are left out.
    """

    def __init__(self, document: str, vocab_size: int) -> None:
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(document)
        except Exception as error:  # the library raises nothing more special
            raise TokenizerError(UNFIT.format(error)) from None
        self._size = vocab_size
        self._drop: bool = self._tokenizer.get_vocab_size() > vocab_size

    def encode(self, texts: list[str]) -> Encoded:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        parts = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        if self._drop:
            parts = [part[part < self._size] for part in parts]
        lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        return np.concatenate([*parts, np.empty(0, np.int32)]), lengths


def sum_groups(lengths: Lengths, counts: Lengths) -> Lengths:
    """Sums of consecutive groups of ``counts`` lengths; a group may be empty."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    stops = np.cumsum(counts)
    sums: Lengths = ends[stops] - ends[stops - counts]
    return sums
