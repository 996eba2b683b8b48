"""Build, measure and merge n-gram caches for lookup decoding: the public API."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lookup_tools.building.create import CreateReport, create_cache, create_from_tokens
    from lookup_tools.building.create_options import CreateOptions
    from lookup_tools.building.merge import MergeOptions, MergeReport, merge_caches
    from lookup_tools.building.update import learn, update_cache
    from lookup_tools.cache import Cache, open_cache
    from lookup_tools.cache.recover_keys import recover_keys
    from lookup_tools.cache.verify import verify_cache
    from lookup_tools.corpora import list_corpora, open_corpus
    from lookup_tools.drafting.drafter import Drafter
    from lookup_tools.drafting.source import DynamicTable, SourceSpec
    from lookup_tools.errors import LookupToolsError
    from lookup_tools.replaying.chunks import ReplayOptions
    from lookup_tools.replaying.replay import ReplayReport, replay
    from lookup_tools.tokenizers import Tokenizer, open_tokenizer
    from lookup_tools.tokens import TokenStream, load_tokens

__all__ = [
    "Cache",
    "CreateOptions",
    "CreateReport",
    "Drafter",
    "DynamicTable",
    "LookupToolsError",
    "MergeOptions",
    "MergeReport",
    "ReplayOptions",
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
    "CreateOptions": "building.create_options",
    "CreateReport": "building.create",
    "create_cache": "building.create",
    "create_from_tokens": "building.create",
    "Drafter": "drafting.drafter",
    "LookupToolsError": "errors",
    "MergeOptions": "building.merge",
    "MergeReport": "building.merge",
    "merge_caches": "building.merge",
    "recover_keys": "cache.recover_keys",
    "ReplayOptions": "replaying.chunks",
    "ReplayReport": "replaying.replay",
    "replay": "replaying.replay",
    "DynamicTable": "drafting.source",
    "SourceSpec": "drafting.source",
    "Tokenizer": "tokenizers",
    "open_tokenizer": "tokenizers",
    "TokenStream": "tokens",
    "load_tokens": "tokens",
    "learn": "building.update",
    "update_cache": "building.update",
    "verify_cache": "cache.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"lookup_tools.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
