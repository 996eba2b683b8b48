"""What the benchmarks share: fresh processes with time and peak memory, medians, JSON, figures."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import click
import zstandard


@dataclass(frozen=True, slots=True)
class Run:
    """One process: wall seconds, peak resident bytes (ru_maxrss, which is never below what this
    process had when it started the other one), and what it printed."""

    seconds: float
    peak_bytes: int
    stdout: str
    stderr: str


def run(command: Sequence[str | os.PathLike[str]], env: dict[str, str] | None = None) -> Run:
    """Run a command to its end.

    Raises:
        click.ClickException: it failed; its last words are given.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            [os.fspath(part) for part in command], stdout=out, stderr=err, env=env
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        finished = Run(seconds, usage.ru_maxrss * 1024, out.read(), err.read())
    if process.returncode:
        words = (finished.stderr or finished.stdout).strip().splitlines()[-3:]
        raise click.ClickException(
            f"{' '.join(map(str, command))}: exit {process.returncode}: {' | '.join(words)}"
        )
    return finished


def tool(name: str) -> list[str]:
    """The command line of one of our commands in this environment."""
    return [sys.executable, "-m", f"lookup_tools.cli.{name}"]


@dataclass(slots=True)
class Series:
    """Repeated measurements of one thing."""

    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def facts(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": self.values,
        }

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        low, mid, high = (
            f"{value * scale:.{digits}f}"
            for value in (min(self.values), self.median, max(self.values))
        )
        return f"{mid} ({low}-{high})"


class Table:
    """Measurements by row and column."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], Series] = {}

    def add(self, row: str, column: str, value: float) -> None:
        self.cells.setdefault((row, column), Series()).values.append(value)

    def get(self, row: str, column: str) -> Series | None:
        return self.cells.get((row, column))

    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for _, column in self.cells))

    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _ in self.cells))

    def facts(self) -> dict[str, Any]:
        return {
            row: {column: self.cells[row, column].facts() for r, column in self.cells if r == row}
            for row in self.rows()
        }


def text_of_size(source: Path, megabytes: int, folder: Path) -> Path:
    """The first so many million bytes of a text, ending at a line's end; zstd is unpacked."""
    path = folder / f"text-{megabytes}.txt"
    if path.exists():
        return path
    wanted = megabytes * 1_000_000
    # Copied in parts: a child's peak memory is measured from what this process has.
    with open(source, "rb") as raw, open(path, "wb") as out:
        stream = (
            zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw)
            if source.suffix == ".zst"
            else raw
        )
        copy_bytes(stream, out, wanted)
        if out.tell() < wanted * 0.99:
            found = out.tell()
            path.unlink()
            raise click.ClickException(
                f"{source}: found {found} bytes, expected {wanted}; use smaller --sizes or "
                "scripts/synth_corpus.py"
            )
    cut_at_line_end(path)
    return path


def copy_bytes(stream: BinaryIO, out: BinaryIO, wanted: int) -> None:
    while wanted and (part := stream.read(min(1 << 22, wanted))):
        out.write(part)
        wanted -= len(part)


def cut_at_line_end(path: Path) -> None:
    """Shorten a file to its last whole line."""
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, end - (1 << 16)))
        last = file.read().rfind(b"\n")
        file.truncate(start + last + 1)


def halves(path: Path, folder: Path) -> list[Path]:
    """A text cut in two at a line's end near its middle."""
    size = path.stat().st_size
    parts = [folder / f"{path.stem}-{number}.txt" for number in (0, 1)]
    with open(path, "rb") as file:
        with open(parts[0], "wb") as out:
            copy_bytes(file, out, size // 2)
            out.write(file.readline())
        with open(parts[1], "wb") as out:
            copy_bytes(file, out, size)
    return parts


def repeat(times: int, sides: dict[str, Callable[[], None]]) -> None:
    """Run the sides alternately, so that what else the machine does meets them alike."""
    for _ in range(times):
        for name, side in sides.items():
            print(f"  {name} ...", file=sys.stderr, flush=True)
            side()


def save(folder: Path, name: str, body: dict[str, Any]) -> None:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(body, indent=1) + "\n")
    print(f"\nwritten: {path}", file=sys.stderr)


def figure(
    folder: Path,
    name: str,
    title: str,
    unit: str,
    lines: Iterable[tuple[str, Sequence[float], Sequence[Series]]],
    scale: float = 1.0,
) -> None:
    """Medians by corpus size with whiskers from minimum to maximum, as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for label, xs, series in lines:
        mid = [each.median * scale for each in series]
        low = [value - min(each.values) * scale for value, each in zip(mid, series, strict=True)]
        high = [max(each.values) * scale - value for value, each in zip(mid, series, strict=True)]
        axes.errorbar(xs, mid, yerr=[low, high], marker="o", capsize=3, label=label)
    axes.set(title=title, xlabel="corpus, MB", ylabel=unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    drawing.savefig(folder / f"{name}.svg")
    pyplot.close(drawing)
