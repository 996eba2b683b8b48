"""Traces: drafts that some other drafter made, one JSON object a line."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from lookup_tools._native import ffi, i32, u64
from lookup_tools.errors import FormatError


class Trace:
    """A trace in the form the C source reads.

    Draft k starts at `positions[k]` of the replayed stream (the position of its first token) and is
    `tokens[ends[k-1]:ends[k]]`.
    """

    def __init__(self, positions: array[int], ends: array[int], tokens: array[int]) -> None:
        self.positions = np.frombuffer(positions, np.uint64) if positions else _none(np.uint64)
        self.ends = np.frombuffer(ends, np.uint64) if ends else _none(np.uint64)
        self.tokens = np.frombuffer(tokens, np.int32) if tokens else _none(np.int32)
        self._borrowed = (u64(self.positions), u64(self.ends), i32(self.tokens))
        self.pointer: Any = ffi.new("lookup_trace *", (*self._borrowed, len(self.positions)))


def _none(dtype: type[np.generic]) -> np.ndarray[Any, Any]:
    return np.empty(0, dtype)


def read_trace(path: str) -> Trace:
    """JSONL of {"pos": int, "draft": [ids]}, positions rising; blank lines are passed over.

    Raises:
        FormatError: a line is something else, or its position does not rise; it is named.
        OSError: the file cannot be read.
    """
    positions, ends, tokens = array("Q"), array("Q"), array("i")
    for number, position, draft in _lines(path):
        if positions and position <= positions[-1]:
            raise FormatError(
                f"{path}, line {number}: found position {position} after {positions[-1]}, "
                "expected positions to rise; sort the trace and keep one draft a position"
            )
        positions.append(position)
        tokens.extend(draft)
        ends.append(len(tokens))
    return Trace(positions, ends, tokens)


def _lines(path: str) -> Iterator[tuple[int, int, list[int]]]:
    with open(path, encoding="utf-8", errors="strict") as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, *_parsed(line, f"{path}, line {number}")
        except UnicodeDecodeError as error:
            raise FormatError(f"{path}: found bytes that are not UTF-8, expected JSONL") from error


def _parsed(line: str, where: str) -> tuple[int, list[int]]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict) and _is_id(row.get("pos"), 2**63):
        draft = row.get("draft")
        if isinstance(draft, list) and all(_is_id(token, 2**31) for token in draft):
            return int(row["pos"]), draft
    raise FormatError(
        f'{where}: found {line.strip()[:60]!r}, expected {{"pos": int, "draft": [ids]}}'
    )


def _is_id(value: Any, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
