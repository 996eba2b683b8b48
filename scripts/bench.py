"""Benchmarks: ours and, where its binary is given, a peer's, alternately, in fresh processes.

Every command takes --sizes (MB of text, 0 for no cache where that makes sense), --runs, --out, and
writes JSON and figures there. Ratios of one run mean something; seconds belong to the machine.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from benchlib import Table, figure, halves, repeat, run, save, text_of_size, tool

F = TypeVar("F", bound=Callable[..., Any])
HERE = Path(__file__).parent


class Numbers(click.ParamType):
    """25,50,100"""

    name = "list"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        try:
            return value if isinstance(value, list) else [int(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"found {value!r}, expected numbers separated by commas", param, ctx)


def common(function: F) -> F:
    for option in (
        click.option(
            "--out",
            type=click.Path(path_type=Path),
            default=Path("build/bench"),
            show_default=True,
            help="Folder for texts, caches, JSON and figures.",
        ),
        click.option("--runs", type=click.IntRange(1), default=3, show_default=True),
        click.option(
            "--sizes",
            type=Numbers(),
            default="25,50,100,200",
            show_default=True,
            help="MB of text.",
        ),
        click.option(
            "--text",
            required=True,
            type=click.Path(exists=True, path_type=Path),
            help="The corpus; .zst is unpacked.",
        ),
        click.option("-m", "--model", required=True, type=click.Path(exists=True, path_type=Path)),
    ):
        function = option(function)
    return function


tokens_option = click.option(
    "--tokens",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="The test text as a token file.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure building, merging, loading and drafting."""


def _compare(table: Table, rows: list[str], ours: str, peer: str) -> None:
    for row in rows:
        mine, theirs = table.get(row, f"{ours}, s"), table.get(row, f"{peer}, s")
        if not mine or not theirs:
            continue
        line = f"{row}: {theirs.median / mine.median:.1f}x faster than {peer}"
        my_peak, their_peak = table.get(row, f"{ours}, peak MB"), table.get(row, f"{peer}, peak MB")
        if my_peak and their_peak:
            line += f", {their_peak.median / my_peak.median:.1f}x less memory"
        print(line)


def _print(table: Table) -> None:
    for row in table.rows():
        print(f"{row}: median (min-max)")
        for column in table.columns():
            if series := table.get(row, column):
                print(f"  {column:<32} {series.text(digits=3)}")


def _measured(table: Table, row: str, column: str, command: list[Any]) -> Callable[[], None]:
    def side() -> None:
        finished = run(command)
        table.add(row, f"{column}, s", finished.seconds)
        table.add(row, f"{column}, peak MB", finished.peak_bytes / 1e6)
        if "--json" in command:
            for phase, seconds in json.loads(finished.stdout)["seconds"].items():
                table.add(row, f"{column} {phase}, s", seconds)

    return side


@main.command()
@common
@click.option("--peer", type=click.Path(exists=True), help="A llama-lookup-create binary.")
@click.option("--memory", multiple=True, help="Also with this --memory; may be repeated.")
@click.option("--from-tokens", is_flag=True, help="Also from a token file, without tokenizing.")
def create(
    model: Path,
    text: Path,
    sizes: list[int],
    runs: int,
    out: Path,
    peer: str | None,
    memory: tuple[str, ...],
    from_tokens: bool,
) -> None:
    """Text to static cache file."""
    out.mkdir(parents=True, exist_ok=True)
    table = Table()
    for size in sizes:
        source, row = text_of_size(text, size, out), f"{size} MB"
        base = [*tool("create"), "-m", model, "--concatenate", "--force", "--json", "-", "--quiet"]
        output = ["-o", out / f"ours-{size}.lcs"]
        sides = {"ours": _measured(table, row, "ours", [*base, "-f", source, *output])}
        for limit in memory:
            sides[limit] = _measured(
                table,
                row,
                f"--memory {limit}",
                [*base, "-f", source, "-o", out / f"{limit}-{size}.lcs", "--memory", limit],
            )
        if from_tokens:
            tokens = out / f"tokens-{size}.u16"
            run([*base, "-f", source, *output, "--save-tokens", tokens])
            sides["tokens"] = _measured(
                table,
                row,
                "from tokens",
                [*base, "--tokens", tokens, "-o", out / f"tokens-{size}.lcs"],
            )
        if peer:
            sides["peer"] = _measured(
                table,
                row,
                "peer",
                [peer, "-m", model, "-f", source, "--no-escape", "-lcs", out / f"peer-{size}.lcs"],
            )
        print(row, file=sys.stderr)
        repeat(runs, sides)
    _print(table)
    _compare(table, table.rows(), "ours", "peer")
    _scaling(table, sizes)
    _finish(
        out,
        "create",
        table,
        sizes,
        [
            (column, f"{column}, s")
            for column in ("ours", *(f"--memory {limit}" for limit in memory))
        ],
        "Text to static cache",
        "seconds",
    )


def _scaling(table: Table, sizes: list[int]) -> None:
    rates = {
        size: series.median / size
        for size in sizes
        if (series := table.get(f"{size} MB", "ours, s"))
    }
    if len(rates) > 1:
        first, last = min(rates), max(rates)
        print(f"time per MB from {first} to {last} MB: x {rates[last] / rates[first]:.2f}")


def _finish(
    out: Path,
    name: str,
    table: Table,
    sizes: list[int],
    lines: list[tuple[str, str]],
    title: str,
    unit: str,
) -> None:
    drawn = []
    for label, column in lines:
        found = [(size, series) for size in sizes if (series := table.get(f"{size} MB", column))]
        if found:
            drawn.append((label, [size for size, _ in found], [series for _, series in found]))
    figure(out, name, title, unit, drawn)
    save(out, name, {"benchmark": name, "sizes": sizes, "table": table.facts()})


@main.command()
@common
@click.option("--peer", type=click.Path(exists=True), help="A llama-lookup-merge binary.")
def merge(
    model: Path, text: Path, sizes: list[int], runs: int, out: Path, peer: str | None
) -> None:
    """Two caches of half the text each to one, legacy and constmap."""
    out.mkdir(parents=True, exist_ok=True)
    table = Table()
    for size in sizes:
        row = f"{size} MB"
        inputs: dict[str, list[Path]] = {"legacy": [], "constmap": []}
        for half in halves(text_of_size(text, size, out), out):
            for fmt, files in inputs.items():
                files.append(half.with_suffix(f".{fmt}"))
                options = ["--concatenate", "--force", "--format", fmt, "-o", files[-1]]
                run([*tool("create"), "-m", model, "-f", half, *options])
        sides = {
            fmt: _measured(
                table,
                row,
                f"ours {fmt}",
                [*tool("merge"), *files, "-o", out / f"merged-{size}.{fmt}", "--force", "--quiet"],
            )
            for fmt, files in inputs.items()
        }
        if peer:
            sides["peer"] = _measured(
                table, row, "peer", [peer, *inputs["legacy"], out / f"peer-merged-{size}.lcs"]
            )
        print(row, file=sys.stderr)
        repeat(runs, sides)
    _print(table)
    for fmt in ("legacy", "constmap"):
        _compare(table, table.rows(), f"ours {fmt}", "peer")
    _finish(
        out,
        "merge",
        table,
        sizes,
        [(fmt, f"ours {fmt}, s") for fmt in ("legacy", "constmap")],
        "Merging two halves",
        "seconds",
    )


def _caches(model: Path, text: Path, sizes: list[int], out: Path) -> dict[int, Path | None]:
    """One static cache a size, built if need be; 0 stands for none."""
    found: dict[int, Path | None] = {}
    for size in sizes:
        path = out / f"ours-{size}.lcs"
        found[size] = None if size == 0 else path
        if size and not path.exists():
            run(
                [
                    *tool("create"),
                    "-m",
                    model,
                    "-f",
                    text_of_size(text, size, out),
                    "--concatenate",
                    "-o",
                    path,
                    "--quiet",
                ]
            )
    return found


@main.command()
@common
@click.option(
    "--load",
    "modes",
    type=click.Choice(["mmap", "read"]),
    multiple=True,
    default=["mmap", "read"],
    show_default=True,
)
def load(
    model: Path, text: Path, sizes: list[int], runs: int, out: Path, modes: tuple[str, ...]
) -> None:
    """Opening a static cache, page cache warm and cold, and the full verify."""
    out.mkdir(parents=True, exist_ok=True)
    table = Table()
    for size, path in _caches(model, text, [size for size in sizes if size], out).items():
        assert path is not None
        row = f"{size} MB"
        for _ in range(runs):
            for temperature in ("cold", "warm"):
                for mode in modes:
                    facts = json.loads(
                        run(
                            [
                                sys.executable,
                                HERE / "bench_probe.py",
                                "load",
                                path,
                                mode,
                                temperature,
                            ]
                        ).stdout
                    )
                    for name in ("load_ms", "private_mb", "shared_mb"):
                        table.add(row, f"{mode} {temperature} {name}", facts[name])
            facts = json.loads(
                run([sys.executable, HERE / "bench_probe.py", "verify", path]).stdout
            )
            for name, value in facts.items():
                table.add(row, name, value)
    _print(table)
    _finish(
        out,
        "load",
        table,
        sizes,
        [(f"{mode} {t}", f"{mode} {t} load_ms") for mode in modes for t in ("warm", "cold")],
        "Opening a static cache",
        "ms",
    )


@main.command()
@common
@tokens_option
@click.option("-c", "--ctx-size", default=4096, show_default=True)
@click.option("--draft-max", default=8, show_default=True)
@click.option(
    "--peer",
    help="A command with {cache} (- for none), {draft} and {ctx} in it, that prints "
    "llama-lookup-stats' lines or us_per_drafted=N.",
)
def draft(
    model: Path,
    text: Path,
    sizes: list[int],
    runs: int,
    out: Path,
    tokens: Path,
    ctx_size: int,
    draft_max: int,
    peer: str | None,
) -> None:
    """Microseconds per drafted token by size of the static cache; whole chunks are timed."""
    out.mkdir(parents=True, exist_ok=True)
    table = Table()
    for size, path in _caches(model, text, sizes, out).items():
        row = f"{size} MB"

        def ours(row: str = row, path: Path | None = path) -> None:
            command = [
                *tool("stats"),
                "--tokens",
                tokens,
                "-c",
                str(ctx_size),
                "--draft-max",
                str(draft_max),
                "--compat",
                "llama.cpp",
                "--json",
                "-",
                "--quiet",
            ]
            source = json.loads(run([*command, *(["-lcs", path] if path else [])]).stdout)[
                "sources"
            ][0]
            table.add(row, "ours us/drafted", source["us_per_drafted_token"])
            table.add(row, "n_drafted", source["n_drafted"])

        sides: dict[str, Callable[[], None]] = {"ours": ours}
        if peer:
            words = [
                word.format(cache=path or "-", draft=draft_max, ctx=ctx_size)
                for word in shlex.split(peer)
            ]
            sides["peer"] = lambda row=row, words=words: table.add(
                row, "peer us/drafted", _us_per_drafted(run(words).stdout)
            )  # type: ignore[misc]
        print(row, file=sys.stderr)
        repeat(runs, sides)
    _print(table)
    for row in table.rows():
        mine, theirs = table.get(row, "ours us/drafted"), table.get(row, "peer us/drafted")
        if mine and theirs:
            print(f"{row}: {mine.median / theirs.median:.3f} of the peer's time")
    _finish(
        out,
        "draft",
        table,
        sizes,
        [("ours", "ours us/drafted"), ("peer", "peer us/drafted")],
        "Latency per drafted token",
        "us",
    )


def _us_per_drafted(printed: str) -> float:
    found = re.search(r"us_per_drafted=([\d.]+)", printed) or re.search(
        r"([\d.]+) us per token", printed
    )
    if not found:
        raise click.ClickException(
            f"found no figure in the peer's output: {printed.strip()[-200:]!r}"
        )
    return float(found[1])


@main.command()
@common
@tokens_option
@click.option("--processes", default=8, show_default=True)
def memory(
    model: Path, text: Path, sizes: list[int], runs: int, out: Path, tokens: Path, processes: int
) -> None:
    """Memory of one process and of several with the same cache: private, and Pss in all."""
    out.mkdir(parents=True, exist_ok=True)
    table = Table()
    for size, path in _caches(model, text, [size for size in sizes if size], out).items():
        for _ in range(runs):
            facts = json.loads(
                run(
                    [
                        sys.executable,
                        HERE / "bench_probe.py",
                        "memory",
                        str(path),
                        str(tokens),
                        str(processes),
                    ]
                ).stdout
            )
            for name, value in facts.items():
                table.add(f"{size} MB", name, value)
    _print(table)
    _finish(
        out,
        "memory",
        table,
        sizes,
        [
            ("private after open", "private_open_mb"),
            ("cache Pss, one", "cache_pss_one_mb"),
            (f"cache Pss, {processes}", "cache_pss_all_mb"),
        ],
        "Memory",
        "MB",
    )


if __name__ == "__main__":
    main()
