"""Open a cache for drafting; measure load time and memory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from lookup_tools.cache import Cache, open_cache
from lookup_tools.errors import FormatError, ParameterError
from lookup_tools.formats.meta import require_same_tokenizer
from lookup_tools.system.mapping import LoadMode
from lookup_tools.system.memory import memory_now


@dataclass(slots=True)
class LoadedCache:
    """An open cache, the time opening took, and the memory of this process it took then."""

    cache: Cache
    load_seconds: float
    private_bytes: int
    resident_bytes: int

    def facts(self) -> dict[str, Any]:
        """The entry `static` or `dynamic` in the JSON of lookup-stats."""
        cache = self.cache
        return {
            "path": cache.path,
            "format": cache.format,
            "file_bytes": cache.file_bytes,
            "n_ngrams": cache.n_ngrams,
            "n_pairs": cache.n_pairs,
            "load_mode": cache.load_mode,
            "load_seconds": self.load_seconds,
            "private_bytes": self.private_bytes,
            "resident_bytes": self.resident_bytes,
        }


def load_cache(
    path: str | os.PathLike[str], role: str, *, load: LoadMode = "mmap", populate: bool = False
) -> LoadedCache:
    """Open a cache ready for its role, `static` or `dynamic`, and measure that.

    Raises:
        FormatError: the file cannot play that role (a static tier needs 2-grams).
    """
    if role not in ("static", "dynamic"):
        raise ParameterError(f"found role {role!r}, expected static or dynamic")
    before = memory_now()
    start = time.perf_counter()
    cache = open_cache(path, load=load, populate=populate)
    try:
        if role == "static":
            if 2 not in cache.orders:
                raise FormatError(
                    f"{cache.path}: found no 2-grams, expected a static cache; pass this file with "
                    "-lcd"
                )
            cache.static_view()
    except BaseException:
        cache.close()
        raise
    seconds = time.perf_counter() - start
    after = memory_now()
    return LoadedCache(
        cache,
        seconds,
        max(0, after.private - before.private),
        max(0, after.resident - before.resident),
    )


def require_vocabulary(
    cache: Cache,
    fingerprint: str | None,
    name: str,
    text_fingerprint: str | None = None,
    *,
    ignore: bool,
) -> None:
    """Refuse a cache of another vocabulary unless that is to be ignored.

    Raises:
        TokenizerMismatchError: both names are given.
    """
    if not ignore:
        require_same_tokenizer(cache.path, cache.meta, fingerprint, name, text_fingerprint)
