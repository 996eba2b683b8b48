"""Drafting in transformers: a candidate generator for assisted generation.

    with LookupCandidateGenerator(static="corpus.lcs") as lookup:
        output = model.generate(**inputs, max_new_tokens=200, custom_generate=lookup)

`custom_generate` is the hook that transformers documents for a decoding loop of one's own:
`generate` prepares all that it prepares for its own loops, then calls what was given. Here that is
the generator itself, and the loop is transformers' own assisted one, with `_Assisted` in the
model's place to hand it this generator. Nothing is patched, and wrappers of models that pass
arguments on to `generate` work as they are.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

from lookup_tools.cache import Cache
from lookup_tools.drafting.drafter import Drafter
from lookup_tools.drafting.source import DynamicTable, SourceSpec
from lookup_tools.engine.restrictions import Restrictions
from lookup_tools.engine.sharing import opened_dynamic, opened_static
from lookup_tools.errors import EngineError, ParameterError
from lookup_tools.system.closing import Closing
from lookup_tools.tokens.stream import Ids

# The first whose assisted loop makes the cache ready for rollback itself; before, `generate` did,
# for modes of its own.
LEAST_VERSION = (5, 15)


class LookupCandidateGenerator(Closing):
    """Candidates for assisted generation from a `Drafter`: one sequence at a time, incrementally,
    over any number of `generate` calls. Not for two threads at once; generators may share caches.

    Args:
        static, dynamic: caches as paths, which are opened once for all generators of this process
            and until `close`, or as open caches, which stay the caller's; `dynamic` may be a
            `DynamicTable` to share.
        spec_type, n_draft, compat, params: as `Drafter` takes them.

    Attributes:
        steps: passes of the model so far.
        drafted, accepted: tokens proposed in them, and how many of those it confirmed.
        notes: what is worth a warning about these parameters.

    Raises:
        EngineError: no torch, no transformers, or one that is too old.
        ParameterError, FormatError, OSError: a bad argument or file.
    """

    requires_model_outputs = False

    def __init__(
        self,
        static: Cache | str | os.PathLike[str] | None = None,
        dynamic: Cache | DynamicTable | str | os.PathLike[str] | None = None,
        spec_type: str = "ngram-cache",
        n_draft: int = 8,
        *,
        compat: str | None = None,
        **params: int,
    ) -> None:
        self._torch = _require_torch()
        with ExitStack() as opened:
            static = opened_static(static, None, opened)
            dynamic = opened_dynamic(dynamic, SourceSpec(spec_type, params), None, opened)
            drafter = Drafter(
                static, dynamic, spec_type, n_draft, compat=compat, curve=None, group=None, **params
            )
            opened.callback(drafter.close)
            self._opened = opened.pop_all()
        self._drafter = drafter
        self.notes = drafter.notes
        self.steps = self.drafted = self.accepted = 0
        self._current: Any = None
        self.restrict()

    def restrict(self, **restrictions: Any) -> None:
        """What candidates must respect from now on, as `Restrictions` takes it; without arguments,
        nothing. For loops of one's own: `generate` hands it to `__call__`."""
        self._restrictions = Restrictions(**restrictions)

    def get_candidates(self, input_ids: Any, **_: Any) -> tuple[Any, None]:
        """The sequence with its draft behind it.

        Args:
            input_ids: (1, n) int64, on any device.

        Returns:
            (1, n + k) on that device, k from 0 to `n_draft`, and no scores. Nothing to draft gives
            `input_ids` itself.
        """
        _require_one(input_ids)
        self.steps += 1
        self._follow(input_ids)
        n, limits = input_ids.shape[1], self._restrictions.limits
        draft = limits.crop(self._drafter.draft(limits.room(n)))
        if not len(draft):
            return input_ids, None
        candidates = self._torch.cat((input_ids, input_ids.new_tensor(draft)[None]), dim=1)
        candidates = self._restrictions.crop(candidates, draft)
        self.drafted += candidates.shape[1] - n
        return candidates, None

    def update_candidate_strategy(self, input_ids: Any, scores: Any, num_matches: Any) -> None:
        """What the model made of the last candidates: it confirmed `num_matches` of them and
        added one token of its own. Only these tokens are fetched from the device."""
        confirmed = int(num_matches)
        self.accepted += confirmed
        known = -1 if self._current is None else self._current.shape[1]
        if known >= 0 and input_ids.shape[1] == known + confirmed + 1:
            self._drafter.accept(self._fetch(input_ids[0, known:]))
            self._current = input_ids
        else:
            self._follow(input_ids)

    def __call__(
        self,
        model: Any,
        input_ids: Any,
        *,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool = False,
        streamer: Any = None,
        stream_to: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """What `generate(custom_generate=...)` runs; returns what transformers' own loop returns.

        Args:
            stream_to: a streamer. `generate` does not hand its own `streamer` to a custom loop.
        """
        loop = _assisted_loop(model)
        _require_one(input_ids)
        if stream_to is not None:
            streamer = stream_to
            streamer.put(input_ids.cpu())
        self.restrict(
            max_length=generation_config.max_length,
            eos_token_id=generation_config.eos_token_id,
            vocab_size=model.config.get_text_config().vocab_size,
            logits_processor=logits_processor,
            stopping_criteria=stopping_criteria,
        )
        try:
            return loop(
                _Assisted(model, self), input_ids, logits_processor=logits_processor,
                stopping_criteria=stopping_criteria, generation_config=generation_config,
                synced_gpus=synced_gpus, streamer=streamer, **model_kwargs,
            )  # fmt: skip
        finally:
            self.restrict()
            self._current = None

    def _follow(self, input_ids: Any) -> None:
        # The loop hands over the very tensor that it had updated us with.
        if input_ids is not self._current:
            self._drafter.follow(self._fetch(input_ids[0]))
            self._current = input_ids

    def _fetch(self, ids: Any) -> Ids:
        fetched: Ids = ids.to(device="cpu", dtype=self._torch.int32).numpy()
        return fetched

    def close(self) -> None:
        """Let go of the caches. Idempotent."""
        self._opened.close()

    def __del__(self) -> None:
        if hasattr(self, "_opened"):
            self.close()


class _Assisted:
    """A model that names our candidate generator and is itself in everything else."""

    def __init__(self, model: Any, generator: LookupCandidateGenerator) -> None:
        self._model = model
        self._generator = generator

    def _get_candidate_generator(self, **_: Any) -> LookupCandidateGenerator:
        return self._generator

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._model(*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _assisted_loop(model: Any) -> Any:
    """The model's assisted decoding loop, unbound."""
    if getattr(model, "_is_stateful", False):
        raise ParameterError(
            f"found {type(model).__name__}, whose state cannot be rolled back, expected a model "
            "with a key-value cache; generate without a draft"
        )
    loop = getattr(type(model), "_assisted_decoding", None)
    if loop is None or not hasattr(model, "_get_candidate_generator"):
        raise EngineError(
            f"found {type(model).__name__} without transformers' assisted decoding, expected "
            "a model with GenerationMixin; this transformers may be newer than we know"
        )
    return loop


def _require_torch() -> Any:
    """torch, when transformers is there too and new enough."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EngineError(
            f"found no {error.name}, expected it for drafting in transformers; "
            "install lookup-tools[transformers]"
        ) from None
    found = transformers.__version__
    if tuple(map(int, found.split(".")[:2])) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise EngineError(f"found transformers {found}, expected {least} or newer; upgrade it")
    return torch


def _require_one(input_ids: Any) -> None:
    if input_ids.shape[0] != 1:
        raise ParameterError(
            f"found a batch of {input_ids.shape[0]} sequences, expected 1: assisted generation "
            "takes one prompt at a time, without beams or further return sequences"
        )
