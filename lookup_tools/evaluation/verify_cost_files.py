"""Read verify-cost curves: tables, our own JSON, llama-batched-bench's, llama-bench's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from lookup_tools.drafting.cost_curve import PRESETS, CostCurve
from lookup_tools.errors import FormatError, ParameterError

_TABLE = re.compile(r"\s*\d+\s*:\s*[0-9.eE+-]+\s*(,\s*\d+\s*:\s*[0-9.eE+-]+\s*)*")
_EXPECTED = (
    "expected a preset (dense, moe), a table such as 1:1,2:1.05,4:1.3, or a JSON file of "
    "widths and costs, of llama-batched-bench or of llama-bench"
)


def read_cost(given: str) -> CostCurve:
    """The curve that `--verify-cost` names.

    Raises:
        ParameterError: neither a preset, a table nor a file.
        FormatError: a file in which no widths and costs can be found.
    """
    if given in PRESETS:
        return CostCurve.example(given)
    if _TABLE.fullmatch(given):
        return CostCurve.of(_table(given))
    if not os.path.exists(given):
        raise ParameterError(f"found verify cost {given!r}, {_EXPECTED}")
    text = Path(given).read_text(encoding="utf-8", errors="replace")
    return curve_of(_rows(text), given)


def _table(text: str) -> list[tuple[float, float]]:
    try:
        pairs = [pair.split(":") for pair in text.split(",")]
        return [(int(width), float(cost)) for width, cost in pairs]
    except ValueError:
        raise ParameterError(f"found verify cost {text!r}, {_EXPECTED}") from None


def _rows(text: str) -> list[dict[str, Any]]:
    """The rows of a JSON array, of JSONL, or of one object."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, list):
        return [row for row in body if isinstance(row, dict)]
    if isinstance(body, dict):
        return _object_rows(body)
    return [row for line in text.splitlines() if (row := _json_object(line))]


def _object_rows(body: dict[str, Any]) -> list[dict[str, Any]]:
    points = body.get("points")
    rows = points if isinstance(points, list) else [body]
    return [row for row in rows if isinstance(row, dict)]


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def curve_of(rows: Sequence[dict[str, Any]], name: str) -> CostCurve:
    """The curve in the rows of any of the known producers; several times of one width count as
    their median.

    Raises:
        FormatError: none of them.
    """
    for read, seconds in (
        (_ours, True),
        (_relative, False),
        (_batched_bench, True),
        (_llama_bench, True),
    ):
        try:
            pairs = [pair for row in rows if (pair := read(row)) is not None]
        except (TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{name}: found {error}, expected numbers") from error
        if pairs:
            by_width: dict[int, list[float]] = {}
            for width, cost in pairs:
                by_width.setdefault(width, []).append(cost)
            medians = [(width, median(costs)) for width, costs in by_width.items()]
            return CostCurve.of(medians, name, seconds=seconds)
    raise FormatError(f"{name}: found no widths and costs, {_EXPECTED}")


def _ours(row: dict[str, Any]) -> tuple[int, float] | None:
    return (int(row["width"]), float(row["seconds"])) if {"width", "seconds"} <= set(row) else None


def _relative(row: dict[str, Any]) -> tuple[int, float] | None:
    return (int(row["width"]), float(row["cost"])) if {"width", "cost"} <= set(row) else None


def _batched_bench(row: dict[str, Any]) -> tuple[int, float] | None:
    """`pl` sequences generate `tg` tokens each, one batch of `pl` tokens after the other."""
    if not {"pl", "tg", "t_tg"} <= set(row) or not int(row["tg"]):
        return None
    return int(row["pl"]), float(row["t_tg"]) / int(row["tg"])


def _llama_bench(row: dict[str, Any]) -> tuple[int, float] | None:
    """A prompt of w tokens is one batch of w tokens, if w fits one."""
    if not {"n_prompt", "n_gen", "avg_ns"} <= set(row) or int(row["n_gen"]):
        return None
    width = int(row["n_prompt"])
    fits = width <= int(row.get("n_ubatch") or width)
    return (width, float(row["avg_ns"]) / 1e9) if width and fits else None
