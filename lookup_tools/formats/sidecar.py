"""The sidecar of a legacy cache: FILE.meta.json, which says what the records cannot.

A legacy file has no header, so a file cut between two records looks whole, and nothing tells which
vocabulary it was made with. The sidecar keeps both, by the size and hash of the file it speaks of.
While a file is replaced the sidecar speaks of the old and the new one, so that a run killed at any
moment leaves a pair that fits together.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import Any

from lookup_tools.errors import ChecksumError, FormatError, TruncatedError
from lookup_tools.formats.meta import CacheMeta, require_count, require_type
from lookup_tools.system.atomic import atomic_output

SUFFIX = ".meta.json"
_FORMAT = "lookup-tools sidecar 1"


@dataclass(frozen=True, slots=True)
class SidecarRecord:
    """One file a sidecar vouches for; `meta` is None if the file came without a sidecar."""

    size: int
    xxh64: str
    meta: CacheMeta | None


def sidecar_path(path: str | os.PathLike[str]) -> str:
    """Beside the file itself where `path` is a link to it: another name is not another file."""
    return os.path.realpath(path) + SUFFIX


def write_sidecar(
    path: str | os.PathLike[str], record: SidecarRecord, standing: list[SidecarRecord]
) -> None:
    """Write the sidecar of a file that is about to appear as `path`; it goes on vouching for the
    one that is `standing` there until then."""
    records = [record, *(known for known in standing if known.xxh64 != record.xxh64)]
    body = {"format": _FORMAT, "files": [_entry(each) for each in records]}
    with atomic_output(sidecar_path(path), force=True, like=path) as file:
        file.write(json.dumps(body, sort_keys=True, ensure_ascii=False, indent=1).encode() + b"\n")


def _entry(record: SidecarRecord) -> dict[str, Any]:
    meta = None if record.meta is None else record.meta.recorded()
    return {"size": record.size, "xxh64": record.xxh64, "meta": meta}


def remove_sidecar(path: str | os.PathLike[str]) -> None:
    """Remove the sidecar of a file that is to have none. Something else of that name is left
    alone."""
    with contextlib.suppress(FileNotFoundError, FormatError):
        _read(path)
        os.unlink(sidecar_path(path))


def find_record(path: str | os.PathLike[str], size: int) -> list[SidecarRecord]:
    """What the sidecar of `path` says of files of that size; empty where there is no sidecar.

    Raises:
        TruncatedError: there is one, but it speaks of other sizes only.
    """
    try:
        records = _read(path)
    except FileNotFoundError:
        return []
    fitting = [record for record in records if record.size == size]
    if not fitting:
        sizes = " or ".join(str(record.size) for record in records)
        raise TruncatedError(
            f"{os.fspath(path)}: found {size} bytes, expected {sizes} as {sidecar_path(path)} "
            "says: the file was "
            "cut or replaced; rebuild it, or delete the sidecar if it was replaced on purpose"
        )
    return fitting


def match_hash(
    path: str | os.PathLike[str], records: list[SidecarRecord], xxh64: str
) -> CacheMeta | None:
    """The metadata of the record with that hash, or None where there are no records at all (or the
    file came without one).

    Raises:
        ChecksumError: there are records, but none with this hash.
    """
    for record in records:
        if record.xxh64 == xxh64:
            return record.meta
    if not records:
        return None
    raise ChecksumError(
        f"{os.fspath(path)}: found contents with hash {xxh64}, expected {records[0].xxh64} as "
        f"{sidecar_path(path)} says: the file was changed; rebuild it, or delete the "
        "sidecar if it was replaced on purpose"
    )


def _read(path: str | os.PathLike[str]) -> list[SidecarRecord]:
    name = sidecar_path(path)
    with open(name, "rb") as file:
        data = file.read()
    try:
        body: Any = json.loads(data)
        if body["format"] != _FORMAT:
            raise ValueError(f"format {body['format']!r:.80}")
        records = [_record(each, name) for each in body["files"]]
        if not records:
            raise ValueError("no files")
    except FormatError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(
            f"{name}: found no sidecar of ours ({error}); delete it or rebuild the cache"
        ) from None
    return records


def _record(entry: Any, name: str) -> SidecarRecord:
    require_count(entry["size"], 0, "size")
    require_type(entry["xxh64"], str, "xxh64")
    meta = None if entry["meta"] is None else CacheMeta.from_json(entry["meta"], name)
    return SidecarRecord(entry["size"], entry["xxh64"], meta)
