"""Drafts for an engine that hands over its whole history at every step. Free of any engine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from lookup_tools.building.update import learn, update_cache
from lookup_tools.cache import Cache
from lookup_tools.counting.counts import ORDERS
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.cost_meter import CostMeter
from lookup_tools.drafting.drafter import Drafter
from lookup_tools.drafting.params import ADAPTIVE
from lookup_tools.drafting.source import DynamicTable, SourceSpec
from lookup_tools.engine.budget import DraftBudget
from lookup_tools.engine.limits import Limits
from lookup_tools.engine.sharing import opened_dynamic, opened_static
from lookup_tools.evaluation.verify_cost_files import read_cost
from lookup_tools.system.closing import Closing
from lookup_tools.system.signals import temporary_folder
from lookup_tools.tokenizers import Tokenizer
from lookup_tools.tokens.stream import Ids, as_tokens

Path = str | os.PathLike[str]
_REFRESH = 16  # steps between two looks at what was measured


class LookupDrafts(Closing):
    """Drafts of one conversation at a time, from any chain of sources. Not for two threads at once.

    The history is followed, not read again: what was said since is added, what was taken back is
    forgotten, and another prompt is recognised as one.

    Args:
        static, dynamic: caches as paths, which are opened once for all drafts of this process, or
            as open caches, which stay the caller's; `dynamic` may be a `DynamicTable` to share.
        spec_type, n_draft, compat, params: as `Drafter` takes them.
        verify_cost: what verifying wide batches costs in this engine, as `--verify-cost` takes it
            or a `CostCurve`. Without it ngram-adaptive measures it step by step. Drafts that do
            not pay are declined (engine.budget).
        tokenizer: the model's vocabulary. Caches of another one are refused, ids beyond it are
            never drafted, its ends are `eos`, and `save_dynamic` writes its name.
        eos: further ids that end a generation. A draft stops before them.

    Attributes:
        notes: what is worth a warning about these parameters.
        steps: histories that a draft was asked for.
        drafted, accepted: tokens proposed, and those of them that were said. What became of the
            last draft is known when the next history arrives.

    Raises:
        TokenizerMismatchError: a cache says that it has another vocabulary.
        ParameterError, FormatError, OSError: as `Drafter`, `read_cost` and `open_cache` do.
    """

    def __init__(
        self,
        static: Cache | Path | None = None,
        dynamic: Cache | DynamicTable | Path | None = None,
        spec_type: str = ADAPTIVE,
        n_draft: int = 16,
        *,
        compat: str | None = None,
        verify_cost: CostCurve | str | None = None,
        tokenizer: Tokenizer | None = None,
        eos: Iterable[int] = (),
        **params: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = _limits(tokenizer, eos)
        curve = read_cost(verify_cost) if isinstance(verify_cost, str) else verify_cost
        with ExitStack() as opened:
            spec = SourceSpec(spec_type, params)
            static = opened_static(static, tokenizer, opened)
            dynamic = opened_dynamic(dynamic, spec, tokenizer, opened)
            self._drafter = Drafter(
                static,
                dynamic,
                spec_type,
                n_draft,
                compat=compat,
                curve=curve,
                group=None,
                **params,
            )
            opened.callback(self._drafter.close)
            measured = curve is None and ADAPTIVE in spec.kinds
            self._meter = CostMeter() if measured else None
            bound = self._meter.bound() if self._meter else curve
            self._budget = DraftBudget(bound, n_draft) if bound else None
            self._opened = opened.pop_all()
        self.notes = self._drafter.notes
        self.steps = self.drafted = self.accepted = 0
        self._n = self._saved = 0  # tokens of the history; and how many of them save_dynamic has
        self._asked: Ids | None = None  # the draft of a step that is under way
        self._expected: int | None = None
        self._end: int | None = None
        self._started: float | None = None  # when the last draft was handed over
        if self._meter is not None:
            self._drafter.set_curve(self._meter.curve())

    _clock = staticmethod(time.perf_counter)

    def expect(self, max_tokens: int | None) -> None:
        """Say how many tokens the coming request may produce, where the engine does not. The next
        history is its prompt and its first token; its drafts stay within the limit, those of later
        requests do not."""
        self._expected = max_tokens

    def __call__(self, ids: Any, /, *, remaining: int | None = None, **_: Any) -> Ids:
        """Tokens that may follow the history `ids`: 0 to `n_draft` of them.

        Args:
            ids: everything known, (n,) integers; int32 is read in place.
            remaining: how many more tokens may be said, one of them the model's own; see `expect`
                for engines that do not tell.
        """
        self._measure()
        self.observe(ids)
        if self._expected is not None:
            self._end, self._expected = self._n - 1 + self._expected, None
        if remaining is None and self._end is not None:
            remaining = self._end - self._n
        limits = [] if remaining is None else [max(0, remaining - 1)]
        if self._budget is not None:
            limits.append(self._budget.limit())
        most = min(limits, default=None)
        draft = self._drafter.draft(most) if most != 0 else np.empty(0, np.int32)
        draft = self._asked = self._limits.crop(draft)
        self.steps += 1
        self.drafted += len(draft)
        self._started = self._clock()
        return draft.astype(np.intc, copy=False)

    def _measure(self) -> None:
        """The step under way has ended: its batch took as long as the engine was away."""
        if self._meter is None or self._started is None or self._asked is None:
            return
        self._meter.observe(1 + len(self._asked), self._clock() - self._started)
        self._started = None
        if self.steps % _REFRESH == 0 or self.steps < _REFRESH:
            self._drafter.set_curve(self._meter.curve())
            assert self._budget is not None
            self._budget.set_curve(self._meter.bound())

    def observe(self, ids: Any) -> None:
        """Take note of the history without asking for a draft: at the end of a request, so that
        its last tokens are not missing from `save_dynamic`."""
        history = np.asarray(ids)
        known = self._n
        kept = self._drafter.follow(history)
        self._n = len(history)
        self._saved = min(self._saved, kept)
        # A history that was cut back is a new request and tells nothing of the last draft.
        self._settle(history[known:] if kept == known else history[:0])
        if kept < known or (self._end is not None and self._n > self._end):
            self._end = None

    def _settle(self, said: Any) -> None:
        """The step under way has ended; what is not known to be right counts as wrong."""
        draft, self._asked = self._asked, None
        if draft is None:
            return
        accepted = 0
        for guess, token in zip(draft.tolist(), said[: len(draft)].tolist(), strict=False):
            if guess != token:
                break
            accepted += 1
        self.accepted += accepted
        if self._budget is not None:
            self._budget.enter(len(draft), accepted)

    def save_dynamic(self, path: Path) -> None:
        """Merge the n-grams (n = 1 to 4) of what was said into a dynamic cache file, which is
        replaced as a whole and made (legacy, as llama.cpp reads it) where there is none.

        Call it when a conversation ends, before the next begins: it saves the present history, and
        of that what it has not saved yet.

        Raises:
            FormatError, TokenizerMismatchError, OSError: the file there cannot be added to; it is
                left as it is. See `update_cache`.
        """
        history, since = self._drafter.tokens, self._saved
        pieces = [(1, max(ORDERS), history[since:])]
        if 0 < since < len(history):  # and the n-grams across the seam
            pieces += [(n, n, history[max(0, since - n) : since + n]) for n in ORDERS]
        with temporary_folder() as folder:
            new = os.path.join(folder, "new.lcd")
            for low, high, piece in pieces:
                if len(piece) > low:
                    learn(new, [piece], tokenizer=self._tokenizer, n_min=low, n_max=high)
            if os.path.exists(new):
                update_cache(path, [new])
        self._saved = len(history)

    def close(self) -> None:
        """Let go of the caches. Idempotent."""
        self._opened.close()

    def __del__(self) -> None:
        if hasattr(self, "_opened"):
            self.close()


def _limits(tokenizer: Tokenizer | None, eos: Iterable[int]) -> Limits:
    ends = set(as_tokens(list(eos)).tolist())
    if tokenizer is None:
        return Limits(refused=frozenset(ends))
    ends |= {token for token in (tokenizer.eos_id, tokenizer.eot_id) if token is not None}
    return Limits(refused=frozenset(ends), vocab_size=tokenizer.vocab_size)
