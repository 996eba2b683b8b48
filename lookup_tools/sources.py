"""Draft sources by name: from a spec and parameters to an object of the C core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lookup_tools._native import check, ffi, lib, owned
from lookup_tools.cache import Cache
from lookup_tools.errors import ParameterError
from lookup_tools.params import CACHE_PARAMS

SPEC_TYPES = ("ngram-cache",)

@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A draft source and its parameters; parameters left out have llama.cpp's defaults."""

    spec_type: str = "ngram-cache"
    params: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.spec_type not in SPEC_TYPES:
            raise ParameterError(f"found spec type {self.spec_type!r}, expected one of {', '.join(SPEC_TYPES)}")
        cache_params(self.params)


def cache_params(params: Mapping[str, int]) -> Any:
    """`lookup_cache_params` with defaults and `params` filled in.

    Raises:
        ParameterError: an unknown name, or a value outside its range.
    """
    filled = ffi.new("lookup_cache_params *")
    lib.lookup_cache_defaults(filled)
    for name, value in params.items():
        if name not in CACHE_PARAMS:
            raise ParameterError(f"found parameter {name!r}, expected one of {', '.join(CACHE_PARAMS)}")
        member, part, index, least, largest = CACHE_PARAMS[name]
        if not least <= value <= largest:
            raise ParameterError(f"{name}: found {value}, expected {least} to {largest}")
        if index is None:
            setattr(filled, member, value)
        else:
            getattr(getattr(filled, member), part)[index] = value
    return filled


def cache_param_values(params: Mapping[str, int]) -> dict[str, int]:
    """All parameters in force, by name."""
    filled = cache_params(params)
    values = {}
    for name, (member, part, index, _, _) in CACHE_PARAMS.items():
        holder = getattr(filled, member)
        values[name] = int(holder if index is None else getattr(holder, part)[index])
    return values


class DynamicTable:
    """A dynamic cache ready for drafting: the n-gram table of a file, or an empty one, indexed with
    the thresholds it is to be trusted by."""

    def __init__(self, cache: Cache | None, params: Mapping[str, int] | None = None) -> None:
        self.handle = cache.table() if cache is not None else owned("lookup_table", lib.lookup_table_free, lib.lookup_table_new)
        filled = cache_params(params or {})
        check(lib.lookup_table_index(self.handle, ffi.addressof(filled, "dynamic")), "dynamic thresholds")


def make_source(spec: SourceSpec, static: Cache | None, dynamic: DynamicTable | None) -> Any:
    """A C draft source (lookup_source *); it borrows `static` and `dynamic`, which must stay open."""
    view = static.static_view() if static is not None else ffi.NULL
    table = dynamic.handle if dynamic is not None else ffi.NULL
    params = cache_params(spec.params)
    return owned(
        "lookup_source",
        lib.lookup_source_free,
        lambda out: lib.lookup_source_ngram_cache(params, view, table, out),
        spec.spec_type,
    )
