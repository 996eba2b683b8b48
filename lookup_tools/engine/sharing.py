"""Caches given by path: opened once, however many drafters of this process use them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from lookup_tools.cache import Cache
from lookup_tools.cache.load_cost import load_cache
from lookup_tools.drafting.source import DynamicTable, SourceSpec
from lookup_tools.formats.meta import CacheMeta, require_same_tokenizer
from lookup_tools.tokenizers import Tokenizer

Path = str | os.PathLike[str]


@dataclass(slots=True)
class _Entry:
    value: Any
    users: int = 0


# The collector may end a forgotten user at any moment, in this thread, too.
_LOCK = threading.RLock()
_ENTRIES: dict[tuple[Any, ...], _Entry] = {}


@contextmanager
def shared_cache(path: Path) -> Iterator[Cache]:
    """A static cache, open until its last user is done. A file that was replaced since is another
    file and is opened by itself.

    Raises:
        FormatError, OSError: as `load_cache`.
    """
    key = ("static", *_identity(path))
    with _shared(key, lambda: load_cache(path, "static").cache, Cache.close) as cache:
        yield cache


@dataclass(frozen=True, slots=True)
class SharedTable:
    """The table that a spec's ngram-cache drafts from (None if it has no such member), and what its
    file says about itself."""

    table: DynamicTable | None
    meta: CacheMeta | None


@contextmanager
def shared_table(path: Path, spec: SourceSpec) -> Iterator[SharedTable]:
    """A dynamic cache, in memory until its last user is done. Drafters with the same thresholds
    share it.

    Raises:
        FormatError, OSError: as `load_cache`.
    """
    kind = "ngram-cache"
    values = spec.member_values()[spec.kinds.index(kind)] if kind in spec.kinds else {}
    key = ("dynamic", *_identity(path), *sorted(values.items()))
    with _shared(key, lambda: _table(path, spec), lambda _: None) as table:
        yield table


def opened_static(
    static: Cache | Path | None, tokenizer: Tokenizer | None, opened: ExitStack
) -> Cache | None:
    """A static cache as a path, which joins `opened`, or as it is; checked against a vocabulary."""
    if isinstance(static, str | os.PathLike):
        static = opened.enter_context(shared_cache(static))
    if static is not None:
        _require_vocabulary(static.path, static.meta, tokenizer)
    return static


def opened_dynamic(
    dynamic: Cache | DynamicTable | Path | None,
    spec: SourceSpec,
    tokenizer: Tokenizer | None,
    opened: ExitStack,
) -> Cache | DynamicTable | None:
    """The same for a dynamic cache."""
    if isinstance(dynamic, str | os.PathLike):
        shared = opened.enter_context(shared_table(dynamic, spec))
        _require_vocabulary(os.fspath(dynamic), shared.meta, tokenizer)
        return shared.table
    if isinstance(dynamic, Cache):
        _require_vocabulary(dynamic.path, dynamic.meta, tokenizer)
    return dynamic


def _require_vocabulary(path: str, meta: CacheMeta | None, tokenizer: Tokenizer | None) -> None:
    if tokenizer is not None:
        ours = tokenizer.fingerprint, tokenizer.name, tokenizer.text_fingerprint
        require_same_tokenizer(path, meta, *ours)


def _identity(path: Path) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _table(path: Path, spec: SourceSpec) -> SharedTable:
    with load_cache(path, "dynamic").cache as cache:
        return SharedTable(DynamicTable.for_spec(cache, spec), cache.meta)


@contextmanager
def _shared(
    key: tuple[Any, ...], make: Callable[[], Any], drop: Callable[[Any], None]
) -> Iterator[Any]:
    entry = _taken(key, make)
    try:
        yield entry.value
    finally:
        with _LOCK:
            entry.users -= 1
            if not entry.users:
                del _ENTRIES[key]
                drop(entry.value)


def _taken(key: tuple[Any, ...], make: Callable[[], Any]) -> _Entry:
    """The entry of a key, with one user more. Whoever asks while it is made waits for it."""
    with _LOCK:
        while True:
            entry = _ENTRIES.get(key)
            if entry is None:
                entry = _ENTRIES[key] = _Entry(make())
            entry.users += 1
            if _ENTRIES.get(key) is entry:  # else its last user ended in between
                return entry
