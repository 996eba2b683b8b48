"""Build, measure and merge n-gram caches for lookup decoding: the public API."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lookup_tools.cache import Cache, open_cache
    from lookup_tools.corpora import list_corpora, open_corpus
    from lookup_tools.create_options import CreateOptions
    from lookup_tools.creating import CreateReport, create_cache, create_from_tokens
    from lookup_tools.drafting import Drafter
    from lookup_tools.errors import LookupToolsError
    from lookup_tools.merge import MergeOptions, MergeReport, merge_caches
    from lookup_tools.recovery import recover_keys
    from lookup_tools.replaying import ReplayReport, replay
    from lookup_tools.sources import DynamicTable, SourceSpec
    from lookup_tools.tokenizers import Tokenizer, open_tokenizer
    from lookup_tools.tokens import TokenStream, load_tokens
    from lookup_tools.updating import learn, update_cache
    from lookup_tools.verify import verify_cache

__all__ = [
    "Cache",
    "CreateOptions",
    "CreateReport",
    "Drafter",
    "DynamicTable",
    "LookupToolsError",
    "MergeOptions",
    "MergeReport",
    "ReplayReport",
    "SourceSpec",
    "TokenStream",
    "Tokenizer",
    "create_cache",
    "create_from_tokens",
    "learn",
    "list_corpora",
    "load_tokens",
    "merge_caches",
    "open_cache",
    "open_corpus",
    "open_tokenizer",
    "recover_keys",
    "replay",
    "update_cache",
    "verify_cache",
]

# Name -> module; imported at first use, so that a command loads only what it needs.
_HOMES = {
    "Cache": "cache",
    "open_cache": "cache",
    "list_corpora": "corpora",
    "open_corpus": "corpora",
    "CreateOptions": "create_options",
    "CreateReport": "creating",
    "create_cache": "creating",
    "create_from_tokens": "creating",
    "Drafter": "drafting",
    "LookupToolsError": "errors",
    "MergeOptions": "merge",
    "MergeReport": "merge",
    "merge_caches": "merge",
    "recover_keys": "recovery",
    "ReplayReport": "replaying",
    "replay": "replaying",
    "DynamicTable": "sources",
    "SourceSpec": "sources",
    "Tokenizer": "tokenizers",
    "open_tokenizer": "tokenizers",
    "TokenStream": "tokens",
    "load_tokens": "tokens",
    "learn": "updating",
    "update_cache": "updating",
    "verify_cache": "verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"lookup_tools.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
