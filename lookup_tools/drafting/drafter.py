"""Drafting in a running engine: begin a prompt, draft, accept what the model really said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookup_tools._native import check, ffi, lib
from lookup_tools.cache import Cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.group import AdaptiveGroup
from lookup_tools.drafting.params import ADAPTIVE
from lookup_tools.drafting.source import DynamicTable, Source, SourceSpec, adaptive_group
from lookup_tools.errors import ClosedError, ParameterError
from lookup_tools.system.closing import Closing
from lookup_tools.tokens.stream import Ids, as_tokens

_FIRST_CAPACITY = 4096


class Drafter(Closing):
    """One sequence's drafter. Not for two threads at once; any number may share the caches.

    Args:
        static: an open cache for the static tier; held open until `close`.
        dynamic: an open cache, or a `DynamicTable` to share one between drafters.
        spec_type: the draft source, or a chain `a,b`; `params` are its parameters by flag name.
        n_draft: most tokens in one draft, 1 to 1024.
        compat: `llama.cpp` keeps that engine's quirks (ngram-map-k4v).
        curve: what the engine's batches cost; ngram-adaptive drafts as much as pays by it (the
            example `dense` without one). `set_curve` gives another one later.
        group: for ngram-adaptive: what several drafters share. One of its own without.

    Attributes:
        notes: what is worth a warning about these parameters.
    """

    def __init__(
        self,
        static: Cache | None = None,
        dynamic: Cache | DynamicTable | None = None,
        spec_type: str = ADAPTIVE,
        n_draft: int = 16,
        *,
        compat: str | None = None,
        curve: CostCurve | None = None,
        group: AdaptiveGroup | None = None,
        **params: int,
    ) -> None:
        if not 1 <= n_draft <= lib.LOOKUP_MAX_DRAFT:
            raise ParameterError(f"found n_draft {n_draft}, expected 1 to {lib.LOOKUP_MAX_DRAFT}")
        spec = SourceSpec(spec_type, params)
        self.notes = spec.notes(n_draft)
        self._static = static
        self._dynamic = (
            DynamicTable.for_spec(dynamic, spec) if isinstance(dynamic, Cache) else dynamic
        )
        if static is not None:
            static.hold()
        try:
            earlier = dynamic if isinstance(dynamic, Cache) else None
            self.group = group or adaptive_group(spec, static, earlier, curve)
            self._source: Source | None = Source(
                spec, static, self._dynamic, compat, group=self.group
            )
        except BaseException:
            if static is not None:
                static.release()
            raise
        self._n_draft = n_draft
        self._grow(np.empty(0, np.int32), _FIRST_CAPACITY)
        self._out = np.empty(n_draft, np.int32)
        self._out_pointer = ffi.from_buffer("int32_t[]", self._out)
        self._count = ffi.new("size_t *")
        self._drafted = 0

    def _grow(self, kept: Ids, capacity: int) -> None:
        history = np.empty(capacity, np.int32)
        history[: len(kept)] = kept
        self._history, self._n = history, len(kept)
        self._pointer = ffi.from_buffer("int32_t[]", history)

    @property
    def tokens(self) -> Ids:
        """Everything said so far, prompt included."""
        return self._history[: self._n].copy()

    def begin(self, ids: Any) -> None:
        """Start a new prompt and forget the old one; see `end`."""
        prompt = as_tokens(ids)
        source = self._pointer_of_source()
        self._grow(prompt, max(_FIRST_CAPACITY, 2 * len(prompt)))
        self._drafted = 0
        check(lib.lookup_source_begin(source, self._pointer, self._n))

    def draft(self, limit: int | None = None) -> Ids:
        """Up to `n_draft` tokens that may come next, `limit` of them at most (an engine's remaining
        budget); empty when the source declines."""
        source = self._pointer_of_source()
        capacity = self._n_draft if limit is None else max(0, min(limit, self._n_draft))
        status = lib.lookup_source_draft(
            source, self._pointer, self._n, self._out_pointer, ffi.NULL, capacity, self._count
        )
        if status:
            check(status)
        self._drafted = self._count[0]
        return self._out[: self._drafted].copy()

    @property
    def n_draft(self) -> int:
        return self._n_draft

    @property
    def is_chain(self) -> bool:
        return self._source is not None and len(self._source.kinds) > 1

    def _request(self, limit: int) -> tuple[Any, Any, int, int]:
        """What AdaptiveGroup.draft takes."""
        source, most = self._pointer_of_source(), max(0, min(limit, self._n_draft))
        return source, self._pointer, self._n, most

    def _drafted_together(self, draft: list[int]) -> Ids:
        self._drafted = len(draft)
        self._out[: len(draft)] = draft
        return self._out[: len(draft)].copy()

    def end(self) -> None:
        """The text is over. ngram-adaptive takes it into its dynamic tier, as an earlier text that
        later ones may repeat; the other sources forget it."""
        source = self._pointer_of_source()
        if self._source is not None:
            self._source.end(self._pointer, self._n)
        self._n = self._drafted = 0
        check(lib.lookup_source_begin(source, self._pointer, 0))

    def set_curve(self, curve: CostCurve) -> None:
        """From the next draft on ngram-adaptive drafts as much as pays by this curve."""
        if self.group is not None:
            self.group.set_curve(curve)

    def accept(self, ids: Any) -> int:
        """Append what the model really produced; returns how many tokens of the last draft that
        confirmed."""
        said = as_tokens(ids)
        source = self._pointer_of_source()
        confirmed = 0
        limit = min(self._drafted, len(said))
        while confirmed < limit and self._out[confirmed] == said[confirmed]:
            confirmed += 1
        if self._drafted:
            check(lib.lookup_source_accept(source, confirmed))
        self._drafted = 0
        self._append(said)
        return confirmed

    def follow(self, ids: Any) -> int:
        """Make the history equal `ids`, however it came about: more was said, the end was taken
        back, or this is another prompt. Returns how many leading tokens were known already.

        For engines that hand over the whole history each time. It is compared, not counted again:
        what was added is accepted (and confirms the last draft as far as it agrees), what was
        taken back is forgotten.
        """
        history = np.asarray(ids)
        if history.dtype != np.int32 or history.ndim != 1 or not history.flags.c_contiguous:
            history = as_tokens(history)
        source = self._pointer_of_source()
        shorter = min(self._n, len(history))
        given = ffi.from_buffer("int32_t[]", history)
        kept = int(lib.lookup_common_prefix(self._pointer, given, shorter))
        if not kept:  # another prompt: some sources tell it from what was said
            self.begin(history)
            return 0
        added = as_tokens(history[kept:])
        if kept == self._n:
            self.accept(added)
            return kept
        self._drafted = 0
        check(lib.lookup_source_truncate(source, self._pointer, kept))
        self._n = kept
        self._append(added)
        return kept

    def _append(self, said: Ids) -> None:
        total = self._n + len(said)
        if total > len(self._history):
            self._grow(self._history[: self._n], 2 * total)
        self._history[self._n : total] = said
        self._n = total

    def close(self) -> None:
        """Let go of the caches. Idempotent."""
        if self._source is None:
            return
        self._source.close()
        self._source = None
        if self._static is not None:
            self._static.release()

    def _pointer_of_source(self) -> Any:
        if self._source is None:
            raise ClosedError("found a closed drafter, expected an open one; make a new one")
        return self._source.pointer

    def __del__(self) -> None:
        if getattr(self, "_source", None) is not None:
            self.close()


def draft_together(drafters: Sequence[Drafter], limits: Sequence[int] | None = None) -> list[Ids]:
    """One draft for each request of the next batch, their lengths chosen together: all tokens of
    the batch share what verifying it costs.

    Args:
        drafters: with ngram-adaptive alone and one `group`; which ones take part may change with
            every call.
        limits: most tokens for each, besides its own `n_draft`.

    Raises:
        ParameterError: they do not share a group.
    """
    group = drafters[0].group if drafters else None
    if group is None or any(each.group is not group or each.is_chain for each in drafters):
        raise ParameterError(
            f"found {len(drafters)} drafters without one group, expected ngram-adaptive drafters "
            "made with the same group=AdaptiveGroup(...)"
        )
    bounds = limits if limits is not None else [each.n_draft for each in drafters]
    given = [each._request(bound) for each, bound in zip(drafters, bounds, strict=True)]
    drafts = group.draft(given, max(each[3] for each in given))
    pairs = zip(drafters, drafts, strict=True)
    return [each._drafted_together(draft) for each, draft in pairs]
