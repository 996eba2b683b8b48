"""Counts -> a cache file of the chosen format, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import BinaryIO

from lookup_tools.counting.counts import CountsBlock
from lookup_tools.errors import ParameterError
from lookup_tools.formats.constmap import ConstmapWriter
from lookup_tools.formats.legacy import LegacyWriter
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sidecar import remove_sidecar
from lookup_tools.formats.sniff import FORMATS, CacheFormat
from lookup_tools.system.atomic import atomic_output, check_overwrite
from lookup_tools.system.locking import folder_lock

KINDS = ("static", "dynamic", "context")
KIND_ORDERS = {"static": (2,), "dynamic": (1, 2, 3, 4), "context": (1, 2, 3, 4)}


def default_format(kind: str) -> CacheFormat:
    """What a kind is written as when nothing else is asked for."""
    return "constmap" if kind == "static" else "legacy"


def check_format(fmt: str, orders: Iterable[int]) -> None:
    """Refuse a format that cannot hold these orders.

    Raises:
        ParameterError: no such format, or a constmap asked to hold other than 2-grams.
    """
    if fmt not in FORMATS:
        raise ParameterError(f"found format {fmt!r}, expected one of {', '.join(FORMATS)}")
    others = sorted(set(orders) - {2})
    if fmt != "legacy" and others:
        raise ParameterError(
            f"found {', '.join(f'{order}-grams' for order in others)}, expected 2-grams only "
            f"in a {fmt} file; use --format legacy"
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a cache file is written.

    Without `annex` it carries no keys and no metadata: no annex in a constmap, no sidecar beside a
    legacy file. `force` replaces a file that exists.
    """

    fmt: CacheFormat
    annex: bool = True
    map_hash: str = "xxh64"
    force: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What a cache file turned out to hold."""

    n_ngrams: int
    n_pairs: int
    file_bytes: int
    build_seconds: float


def write_cache(
    path: str | os.PathLike[str],
    blocks: Iterable[CountsBlock],
    meta: CacheMeta,
    options: WriteOptions,
    pool: ThreadPoolExecutor | None = None,
) -> Written:
    """Write sorted blocks as a cache file that appears complete or not at all.

    Raises:
        ParameterError: the file exists and may not be replaced, or the format cannot hold the
            blocks.
        BuildError: see ConstmapWriter.
        OSError: naming `path`.
    """
    check_overwrite(path, force=options.force)
    with ExitStack() as stack, ExitStack() as undo:
        with atomic_output(path, force=options.force) as file:
            writer = _writer(file, path, options, pool)
            for block in blocks:
                writer.write(block)
            writer.finish(meta)
            file_bytes = file.seek(0, os.SEEK_END) if file.seekable() else writer.n_bytes
            file.flush()  # so that little can go wrong once there is a sidecar
            _alone(path, stack)
            if isinstance(writer, LegacyWriter) and writer.vouch(path):
                undo.callback(remove_sidecar, path)
        undo.pop_all()
        # A sidecar goes last: a run killed in between must leave a pair that fits.
        if options.fmt != "legacy" or not options.annex:
            remove_sidecar(path)
    return Written(writer.n_ngrams, writer.n_pairs, file_bytes, writer.build_seconds)


def _writer(
    file: BinaryIO,
    path: str | os.PathLike[str],
    options: WriteOptions,
    pool: ThreadPoolExecutor | None,
) -> LegacyWriter | ConstmapWriter:
    if options.fmt == "legacy":
        return LegacyWriter(file)
    if not file.seekable():
        raise ParameterError(
            f"{os.fspath(path)}: found a pipe, expected a file for the {options.fmt} format, whose "
            "header is written last; use --format legacy"
        )
    return ConstmapWriter(
        file,
        second_version=options.fmt == "constmap2",
        map_hash=options.map_hash,
        annex=options.annex,
        pool=pool,
    )


def _alone(path: str | os.PathLike[str], stack: ExitStack) -> None:
    """Until `stack` ends, nobody else puts a cache into that folder: a file and its sidecar have to
    be of the same run. Where folders cannot be locked that is left to luck."""
    if os.path.isfile(path) or not os.path.exists(path):
        with suppress(OSError):
            stack.enter_context(folder_lock(os.path.dirname(os.path.realpath(path))))
