"""Opening cache files."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import BinaryIO

from lookup_tools.cache.base import Cache
from lookup_tools.cache.constmap import ConstmapCache
from lookup_tools.cache.legacy import LegacyCache
from lookup_tools.errors import FormatError, ParameterError
from lookup_tools.formats.sniff import sniff_file
from lookup_tools.system.mapping import LOAD_MODES, LoadMode, map_file

_TRIES = 4


def open_cache(
    path: str | os.PathLike[str], *, load: LoadMode = "mmap", populate: bool = False
) -> Cache:
    """Open a cache file of any format.

    A constmap is opened in O(1) and read in place; `Cache.close` (or a `with` block) releases it.
    Bounds are proved here, truth is not: `lookup_tools.cache.verify.verify_cache` checks that.

    A file that is replaced while it is opened is opened again.

    Raises:
        FormatError: the file is something else, or contradicts itself; TruncatedError: it was cut.
        OSError: it cannot be read.
    """
    if load not in LOAD_MODES:
        raise ParameterError(f"found load mode {load!r}, expected one of {', '.join(LOAD_MODES)}")
    name = os.fspath(path)
    for _ in range(_TRIES):
        with open(name, "rb") as file:
            status = os.fstat(file.fileno())
            try:
                return _open(file, name, load, populate)
            except FormatError:  # perhaps of a legacy file and the sidecar of its successor
                if os.path.samestat(status, os.stat(name)):
                    raise
    with open(name, "rb") as file:
        return _open(file, name, load, populate)


def _open(file: BinaryIO, name: str, load: LoadMode, populate: bool) -> Cache:
    fmt = sniff_file(file, name)
    buffer = map_file(file, name, load, populate=populate)
    try:
        if fmt == "legacy":
            return LegacyCache(name, buffer, load)
        return ConstmapCache(name, buffer, load, fmt)
    except BaseException:
        _close_quietly(buffer)
        raise


def _close_quietly(buffer: mmap.mmap) -> None:
    # The exception's own frames may still hold a view; then it goes when they do.
    with contextlib.suppress(BufferError):
        buffer.close()
