"""Draft sources by name: from a spec and parameters to an object of the C core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lookup_tools._native import check, ffi, lib, owned
from lookup_tools.cache import Cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.group import AdaptiveGroup
from lookup_tools.drafting.params import ADAPTIVE, SOURCE_PARAMS, TRACE
from lookup_tools.drafting.spec import SourceSpec
from lookup_tools.drafting.trace import Trace, read_trace
from lookup_tools.errors import ParameterError

SPEC_TYPES = tuple(SOURCE_PARAMS)
COMPATS = (None, "llama.cpp")

__all__ = [
    "COMPATS",
    "SPEC_TYPES",
    "DynamicTable",
    "Source",
    "SourceSpec",
    "cache_param_values",
    "cache_params",
]


def _fill(filled: Any, kind: str, values: Mapping[str, int]) -> Any:
    for name, value in values.items():
        *path, last = SOURCE_PARAMS[kind][name].place
        holder = filled
        for step in path:
            holder = getattr(holder, str(step))
        if isinstance(last, int):
            holder[last] = value
        else:
            setattr(holder, last, value)
    return filled


def cache_params(params: Mapping[str, int]) -> Any:
    """`lookup_cache_params` with defaults and `params` filled in.

    Raises:
        ParameterError: an unknown name, or a value outside its range.
    """
    values = SourceSpec("ngram-cache", params).member_values()[0]
    filled = ffi.new("lookup_cache_params *")
    lib.lookup_cache_defaults(filled)
    return _fill(filled, "ngram-cache", values)


def cache_param_values(params: Mapping[str, int]) -> dict[str, int]:
    """All parameters of ngram-cache in force, by name."""
    return SourceSpec("ngram-cache", params).values()


class DynamicTable:
    """A dynamic cache ready for drafting: the n-gram table of a file, or an empty one, indexed with
    the thresholds it is to be trusted by."""

    def __init__(self, cache: Cache | None, params: Mapping[str, int] | None = None) -> None:
        self.handle = (
            cache.table()
            if cache is not None
            else owned("lookup_table", lib.lookup_table_free, lib.lookup_table_new)
        )
        filled = cache_params(params or {})
        status = lib.lookup_table_index(self.handle, ffi.addressof(filled, "dynamic"))
        check(status, "dynamic thresholds")

    @classmethod
    def for_spec(cls, cache: Cache | None, spec: SourceSpec) -> DynamicTable | None:
        """The table a spec's ngram-cache drafts from; None if it has no such member."""
        if "ngram-cache" not in spec.kinds:
            return None
        return cls(cache, spec.member_values()[spec.kinds.index("ngram-cache")])


def adaptive_group(
    spec: SourceSpec,
    static: Cache | None,
    dynamic: Cache | None,
    curve: CostCurve | None = None,
    learned: str | None = None,
    vocabulary: str | None = None,
) -> AdaptiveGroup | None:
    """What a spec's ngram-adaptive drafts from and learns; None if it has no such member."""
    if ADAPTIVE not in spec.kinds:
        return None
    memory = spec.member_values()[spec.kinds.index(ADAPTIVE)]["memory"]
    return AdaptiveGroup(
        static, dynamic, memory=memory, curve=curve, learned=learned, vocabulary=vocabulary
    )


class Source:
    """A draft source of the C core and everything it borrows. Not for two threads at once.

    Args:
        static, dynamic: for ngram-cache; they must stay open until `close`.
        compat: `llama.cpp` drafts as that does where the two differ (ngram-map-k4v).
        traces: files already read, by name.
        group: for ngram-adaptive; one of its own without.
    """

    def __init__(
        self,
        spec: SourceSpec,
        static: Cache | None = None,
        dynamic: DynamicTable | None = None,
        compat: str | None = None,
        traces: Mapping[str, Trace] | None = None,
        group: AdaptiveGroup | None = None,
    ) -> None:
        if compat not in COMPATS:
            raise ParameterError(f"found compat {compat!r}, expected llama.cpp")
        self.spec = spec
        self.kinds = spec.kinds
        self._traces = dict(traces or {})
        self._given = (static, dynamic, compat)
        self.group = group or adaptive_group(spec, static, None)
        self._members: list[Any] = []
        rows = zip(self.kinds, spec.member_names, spec.member_values(), strict=True)
        for kind, name, values in rows:
            self._members.append(self._member(kind, name, values))
        self.pointer = self._members[0]
        if len(self._members) > 1:
            self.pointer = _own(
                lambda out: lib.lookup_source_chain(self._members, len(self._members), out), spec
            )

    def _member(self, kind: str, name: str, values: dict[str, int]) -> Any:
        static, dynamic, compat = self._given
        if kind == TRACE:
            if name not in self._traces:
                self._traces[name] = read_trace(name.partition(":")[2])
            trace = self._traces[name]
            return _own(lambda out: lib.lookup_source_trace(trace.pointer, out), self.spec)
        if kind == ADAPTIVE:
            assert self.group is not None
            return self.group.join()
        if kind == "ngram-cache":
            view = static.static_view() if static is not None else ffi.NULL
            table = dynamic.handle if dynamic is not None else ffi.NULL
            filled = cache_params(values)
            return _own(
                lambda out: lib.lookup_source_ngram_cache(filled, view, table, out), self.spec
            )
        structure = "ngram_map" if kind.startswith("ngram-map") else kind.replace("-", "_")
        filled = _fill(ffi.new(f"lookup_{structure}_params *"), kind, values)
        if structure == "ngram_map":
            filled.k4v, filled.compat = kind == "ngram-map-k4v", compat == "llama.cpp"
        create = getattr(lib, f"lookup_source_{structure}")
        return _own(lambda out: create(filled, out), self.spec)

    def fresh(self) -> Source:
        """Another one as this was at first, but for what a group learned; files are not read
        again."""
        return Source(self.spec, *self._given, self._traces, self.group)

    def end(self, tokens: Any, n: int) -> None:
        """The text, `n` ids behind a pointer, is over: ngram-adaptive keeps what it said."""
        if ADAPTIVE in self.kinds:
            member = self._members[self.kinds.index(ADAPTIVE)]
            check(lib.lookup_adaptive_end(member, tokens, n), self.spec.spec_type)

    def seek(self, start: int) -> None:
        """Tell traces where in the stream the next sequence begins."""
        for kind, member in zip(self.kinds, self._members, strict=True):
            if kind == TRACE:
                check(lib.lookup_trace_seek(member, start), self.spec.spec_type)

    def mod_counts(self) -> Any | None:
        """`lookup_ngram_mod_counts` of the ngram-mod member, if there is one."""
        return self._counts("ngram-mod", "mod")

    def map_counts(self, kind: str) -> Any | None:
        """`lookup_ngram_map_counts` of that member, if there is one."""
        return self._counts(kind, "map")

    def _counts(self, kind: str, name: str) -> Any | None:
        if kind not in self.kinds:
            return None
        counts = ffi.new(f"lookup_ngram_{name}_counts *")
        member = self._members[self.kinds.index(kind)]
        check(getattr(lib, f"lookup_ngram_{name}_counters")(member, counts), self.spec.spec_type)
        return counts

    def chain_counts(self) -> list[Any]:
        """`lookup_chain_counts` of each member; empty if this is no chain."""
        if len(self._members) == 1:
            return []
        found = [ffi.new("lookup_chain_counts *") for _ in self._members]
        for at, counts in enumerate(found):
            check(lib.lookup_chain_counters(self.pointer, at, counts), self.spec.spec_type)
        return found

    def close(self) -> None:
        """Free it: the chain first, then its members. Idempotent."""
        members, self._members = self._members, []
        if len(members) > 1:
            ffi.release(self.pointer)
        for member in members:
            ffi.release(member)
        self.pointer = ffi.NULL


def _own(create: Any, spec: SourceSpec) -> Any:
    return owned("lookup_source", lib.lookup_source_free, create, spec.spec_type)
