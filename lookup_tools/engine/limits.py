"""What a draft must respect in any engine: room, ends, vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tools.tokens.stream import Ids


@dataclass(frozen=True, slots=True)
class Limits:
    """What can be told from ids alone.

    Attributes:
        max_length: most tokens of the whole sequence; None is no limit.
        refused: ids that are never drafted: ends of sequence, and what is suppressed. An end is
            left to the model, so that generation stops there and not a token later.
        vocab_size: ids that the model has are below; None is no limit.
    """

    max_length: int | None = None
    refused: frozenset[int] = frozenset()
    vocab_size: int | None = None

    def room(self, length: int) -> int | None:
        """Most tokens to draft after `length` tokens. Every pass yields one token of the model's
        own, for which room is left."""
        return None if self.max_length is None else max(0, self.max_length - length - 1)

    def crop(self, draft: Ids) -> Ids:
        """A draft up to its first id that is refused or that the model does not have."""
        for at, token in enumerate(draft.tolist()):
            if token in self.refused or (self.vocab_size is not None and token >= self.vocab_size):
                return draft[:at]
        return draft
