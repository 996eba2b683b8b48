"""What a draft must respect in transformers: all that `generate` was told about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lookup_tools.engine.limits import Limits
from lookup_tools.errors import ParameterError
from lookup_tools.tokens.stream import Ids

# None of these forbids a token that the model is sure of: they only reshape the scores. Some sort
# the vocabulary or run the model for that, so they are not asked.
_NEVER_FORBID = frozenset(
    {
        "EncoderRepetitionPenaltyLogitsProcessor",
        "EpsilonLogitsWarper",
        "EtaLogitsWarper",
        "ExponentialDecayLengthPenalty",
        "InfNanRemoveLogitsProcessor",
        "LogitNormalization",
        "MaxTimeCriteria",
        "MinPLogitsWarper",
        "RepetitionPenaltyLogitsProcessor",
        "SynthIDTextWatermarkLogitsProcessor",
        "TemperatureLogitsWarper",
        "TopHLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
        "TypicalLogitsWarper",
        "UnbatchedClassifierFreeGuidanceLogitsProcessor",
        "WatermarkLogitsProcessor",
    }
)
# These forbid the same few ids, for as long as they forbid any: read once instead of asked.
_REFUSE = {
    "EosTokenCriteria": "eos_token_id",
    "MinLengthLogitsProcessor": "eos_token_id",
    "MinNewTokensLengthLogitsProcessor": "eos_token_id",
    "SuppressTokensLogitsProcessor": "suppress_tokens",
}
_SURE = 100.0


class Restrictions:
    """Limits, logits processors and stopping criteria of one generation. Needs torch only where a
    processor has to be asked.

    Args:
        max_length: most tokens of the whole sequence.
        eos_token_id: one id or several.
        vocab_size: ids of the model are below.
        logits_processor, stopping_criteria: as `generate` prepares them.

    Raises:
        ParameterError: processors without `vocab_size`.
    """

    def __init__(
        self,
        max_length: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        vocab_size: int | None = None,
        logits_processor: Iterable[Any] = (),
        stopping_criteria: Iterable[Any] = (),
    ) -> None:
        given = [] if eos_token_id is None else eos_token_id
        self._refused = {given} if isinstance(given, int) else {int(token) for token in given}
        self._max_length = max_length
        self._processors = [each for each in logits_processor if not self._read(each)]
        self._criteria = [each for each in stopping_criteria if not self._read(each)]
        if self._processors and vocab_size is None:
            raise ParameterError("found logits processors alone, expected vocab_size with them")
        self.limits = Limits(self._max_length, frozenset(self._refused), vocab_size)

    def _read(self, rule: Any) -> bool:
        """Take over what a processor or criterion of transformers says; False if it must be
        asked."""
        kind = type(rule).__name__
        if kind in _REFUSE:
            self._refused.update(getattr(rule, _REFUSE[kind]).flatten().tolist())
        elif kind == "MaxLengthCriteria":
            lengths = (self._max_length, rule.max_length)
            self._max_length = min(length for length in lengths if length is not None)
        else:
            return kind in _NEVER_FORBID
        return True

    def crop(self, candidates: Any, draft: Ids) -> Any:
        """Candidates, (1, n + k) with a draft of k at their end, up to the first token of it that a
        processor forbids or a criterion stops at."""
        if not (self._processors or self._criteria):
            return candidates
        start = candidates.shape[1] - len(draft)
        for at, token in enumerate(draft.tolist(), start):
            if self._forbids(candidates[:, :at], token) or self._stops(candidates[:, : at + 1]):
                return candidates[:, :at]
        return candidates

    def _forbids(self, ids: Any, token: int) -> bool:
        """Whether a processor rules the token out even where the model is sure of it."""
        if not self._processors:
            return False
        import torch

        scores: Any = torch.zeros((1, self.limits.vocab_size or 0), device=ids.device)
        scores[0, token] = _SURE
        for processor in self._processors:
            scores = processor(ids, scores)
        return bool(scores[0, token] <= torch.finfo(scores.dtype).min)

    def _stops(self, ids: Any) -> bool:
        return any(bool(criterion(ids, None)) for criterion in self._criteria)
