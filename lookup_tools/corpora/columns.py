"""Text columns of parquet and arrow files, row by row; only the asked columns are read."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lookup_tools.corpora.text import Errors
from lookup_tools.errors import CorpusError, LookupToolsError, ParameterError

# Text below this is in memory at a time, for rows of a few kilobytes.
_ROWS_PER_BATCH = 512
# Levels that parquet puts into a list's path, which no reader of the schema wrote.
_LIST_LEVELS = ("list", "element", "item", "array", "bag", "array_element")

SUFFIXES = (".parquet", ".parq", ".pq", ".arrow", ".feather", ".ipc")


@dataclass(frozen=True, slots=True)
class Row:
    """One row's text and how much of the file has been read with it (0 to 1)."""

    text: str
    share: float


def parse_columns(given: str) -> tuple[str, ...]:
    """`a` or `a.b` or `a,b` (joined by a newline)."""
    columns = tuple(column.strip() for column in given.split(","))
    if not all(columns):
        raise ParameterError(
            f"found columns {given!r}, expected COLUMN, OUTER.INNER or several with commas between"
        )
    return columns


def row_groups(file: Any, name: str) -> int | None:
    """How many row groups (parquet) or record batches (arrow) there are; None for a stream."""
    with _one_line(name):
        opened = _open(file, name, None)
    return opened.num_row_groups if hasattr(opened, "num_row_groups") else getattr(
        opened, "num_record_batches", None
    )  # fmt: skip


def iter_rows(
    file: io.RawIOBase,
    name: str,
    columns: Sequence[str],
    errors: Errors = "strict",
    groups: tuple[int, int] | None = None,
) -> Iterator[Row]:
    """The text of every row, the asked columns joined by a newline; a list's strings likewise.

    `groups` are the first row group to read and the one to stop before.

    Raises:
        CorpusError: no parquet or arrow file, no such column, a value that is no text, damage;
            names the row group.
    """
    with _one_line(name):
        opened = _open(file, name, columns)
    parquet = hasattr(opened, "num_row_groups")
    paths = _paths(opened, columns, name) if parquet else None
    count = opened.num_row_groups if parquet else getattr(opened, "num_record_batches", None)
    first, last = groups or (0, count)
    group = first
    while last is None or group < last:
        place = f"{name}: row group {group}" if parquet else f"{name}: record batch {group}"
        with _one_line(place):
            batches = _batches(opened, group, paths)
        row = 0
        while True:
            with _one_line(place):
                batch = next(batches, None)
            if batch is None:
                break
            if batch is _END:
                return
            texts = [_column(batch, column, name) for column in columns]
            for values in zip(*texts, strict=True):
                text = _joined(values, columns, f"{place}, row {row}", errors)
                row += 1
                yield Row(text, (group + 1) / last if last else 0.0)
        group += 1


_END: Any = object()


def _open(file: Any, name: str, columns: Sequence[str] | None) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ParameterError(
            f"{name}: found no package pyarrow, expected it for parquet and arrow files; pip "
            "install 'lookup-tools[remote]'"
        ) from error
    if not file.seekable():
        raise CorpusError(f"{name}: found a stream, expected a file: copy it to a disk first")
    head = bytearray(8)
    file.seek(0)
    found = bytes(head[: file.readinto(head) or 0])
    file.seek(0)
    if found.startswith(b"PAR1"):
        return pq.ParquetFile(file, pre_buffer=False)
    if found.startswith(b"ARROW1"):
        return pa.ipc.open_file(file, options=_fields(pa, file, pa.ipc.open_file, columns, name))
    if found.startswith(b"\xff\xff\xff\xff"):
        return pa.ipc.open_stream(
            file, options=_fields(pa, file, pa.ipc.open_stream, columns, name)
        )
    if found.startswith(b"FEA1"):
        raise CorpusError(f"{name}: is a feather file of version 1: write it again as version 2")
    raise CorpusError(f"{name}: is no parquet or arrow file: give text with another --documents")


def _fields(pa: Any, file: Any, reader: Any, columns: Sequence[str] | None, name: str) -> Any:
    """Options that leave out every other column."""
    if columns is None:
        return pa.ipc.IpcReadOptions()
    names = reader(file).schema.names
    file.seek(0)
    wanted = [column if column in names else column.split(".")[0] for column in columns]
    for column, top in zip(columns, wanted, strict=True):
        if top not in names:
            raise _no_column(name, column, names)
    return pa.ipc.IpcReadOptions(included_fields=sorted({names.index(top) for top in wanted}))


def _paths(parquet: Any, columns: Sequence[str], name: str) -> list[str]:
    """The leaves of the file that the asked columns are."""
    leaves = [parquet.schema.column(k).path for k in range(len(parquet.schema.names))]
    paths: list[str] = []
    for column in columns:
        found = [leaf for leaf in leaves if leaf == column or _plain(leaf) == column]
        if not found:
            raise _no_column(name, column, list(dict.fromkeys(map(_plain, leaves))))
        paths += found
    return paths


def _plain(path: str) -> str:
    first, *rest = path.split(".")
    return ".".join([first, *(part for part in rest if part not in _LIST_LEVELS)])


def _no_column(name: str, column: str, known: Sequence[str]) -> CorpusError:
    listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return CorpusError(
        f"{name}: found no text column {column!r}, expected one of {listed}: choose with "
        "--documents parquet:COLUMN"
    )


def _batches(opened: Any, group: int, paths: list[str] | None) -> Iterator[Any]:
    if paths is not None:
        return iter(
            opened.iter_batches(
                batch_size=_ROWS_PER_BATCH, row_groups=[group], columns=paths, use_threads=False
            )
        )
    if hasattr(opened, "get_batch"):
        return iter([opened.get_batch(group)])
    try:
        return iter([opened.read_next_batch()])
    except StopIteration:
        return iter([_END])


def _column(batch: Any, column: str, name: str) -> list[Any]:
    """Every row's value of a column, inner ones looked up."""
    names = batch.schema.names
    if column in names:
        values: list[Any] = batch.column(names.index(column)).to_pylist()
        return values
    top, *inner = column.split(".")
    if top not in names:
        raise _no_column(name, column, names)
    return [_inner(value, inner) for value in batch.column(names.index(top)).to_pylist()]


def _inner(value: Any, path: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_inner(each, path) for each in value]
    if path and isinstance(value, dict):
        return _inner(value.get(path[0]), path[1:])
    return value


def _joined(values: Sequence[Any], columns: Sequence[str], place: str, errors: Errors) -> str:
    parts: list[str] = []
    for value, column in zip(values, columns, strict=True):
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, bytes):
                text = _decoded(text, f"{place}: column {column!r}", errors)
            if not isinstance(text, str):
                kind = "null" if text is None else type(text).__name__
                raise CorpusError(f"{place}: column {column!r} is {kind}, expected a string")
            parts.append(text)
    return "\n".join(parts)


def _decoded(data: bytes, place: str, errors: Errors) -> str:
    try:
        return data.decode(errors=errors)
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{place}: byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8: "
            "convert the file, or go on with --errors replace"
        ) from error


@contextmanager
def _one_line(place: str) -> Iterator[None]:
    """Whatever pyarrow raises becomes one line with the row group."""
    try:
        yield
    except (LookupToolsError, MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # pyarrow's own classes, OSError and UnicodeDecodeError among them
        cause = error.__cause__ or error.__context__
        if isinstance(cause, LookupToolsError):
            raise cause from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CorpusError(f"{place}: cannot be read ({reason}): fetch the file again") from error
