"""What the commands share: options, parameter types, progress bars, and errors as one line."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import click

from lookup_tools.errors import LookupToolsError
from lookup_tools.system.closing import Closing

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

# C0 and C1 but for newline and tab, and what turns the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NO_MEMORY = "out of memory: pass a smaller --memory, or use a machine with more"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Size(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """A number of bytes: 1500000, 512M, 2G, 1.5GiB (all units are powers of 1024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", str(value).strip().lower())
        if not match or float(match[1]) == 0:
            self.fail(f"found {value!r}, expected a size above 0 such as 512M or 2G", param, ctx)
        return int(float(match[1]) * _UNITS[match[2]])


class Weight(click.ParamType):  # type: ignore[type-arg]
    """A positive rational number: 2, 0.5, 1/3."""

    name = "weight"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Fraction:
        try:
            weight = Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            self.fail(f"found {value!r}, expected a number such as 2, 0.5 or 1/3", param, ctx)
        if weight <= 0:
            self.fail(f"found {value!r}, expected a number above 0", param, ctx)
        return weight


SIZE = Size()
# Whether a file may be read is found out by reading it, and is no fault of the command line.
FILE = click.Path(readable=False)
WEIGHT = Weight()
POSITIVE = click.IntRange(1, 2**31 - 1)


def version_option() -> Callable[[F], F]:
    return click.version_option(package_name="lookup-tools", prog_name="lookup-tools")


def vocabulary_option(function: F) -> F:
    """--ignore-vocabulary, for commands that read caches."""
    return click.option(
        "--ignore-vocabulary",
        is_flag=True,
        help="Use files of another vocabulary all the same.",
    )(function)


def shared_options(function: F) -> F:
    """--json, --quiet, --threads, --force."""
    for option in (
        click.option("--force", is_flag=True, help="Overwrite outputs that exist."),
        click.option(
            "--threads",
            type=click.IntRange(1, 1024),
            help="Worker threads [all processors]. Results do not depend on it.",
        ),
        click.option("--quiet", is_flag=True, help="No progress bars and notes."),
        click.option(
            "--json",
            "json_to",
            metavar="FILE|-",
            help="Write the results as JSON; with - stdout holds it alone.",
        ),
    ):
        function = option(function)
    return function


def output_options(function: F) -> F:
    """What to leave out of a cache file, and how to write it."""
    for option in (
        click.option(
            "--no-annex",
            is_flag=True,
            help="Leave out keys and metadata (no annex, no sidecar).",
        ),
        click.option(
            "--map-hash",
            type=click.Choice(["xxh64", "xxh3"]),
            default="xxh64",
            show_default=True,
            help="Key hash of the constmap.",
        ),
        click.option(
            "--max-size", type=SIZE, help="Drop the least frequent pairs until the file fits."
        ),
        click.option(
            "--top-k",
            type=click.IntRange(0, 2**31 - 1),
            default=0,
            help="Keep the K most frequent followers of each n-gram [all].",
        ),
        click.option(
            "--min-count",
            type=POSITIVE,
            default=1,
            show_default=True,
            help="Drop followers counted less often.",
        ),
    ):
        function = option(function)
    return function


def one_line_errors(function: F) -> F:
    """Our own errors and the system's as one line and exit code 1, and a clean Ctrl-C."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            from lookup_tools.system.signals import terminate_cleanly

            use_one_heap()
            limit_processors(kwargs.get("threads"))
            with terminate_cleanly():
                return function(*args, **kwargs)
        except BrokenPipeError:
            raise  # click ends quietly when the reader of stdout is gone
        except (LookupToolsError, OSError, MemoryError) as error:
            raise click.ClickException(printable(_sentence(error))) from error
        except RuntimeError as error:
            if "start new thread" not in str(error):
                raise
            raise click.ClickException(_NO_MEMORY) from error
        except KeyboardInterrupt:
            click.echo("interrupted; outputs are whole or absent", err=True)
            raise SystemExit(130) from None

    return wrapped  # type: ignore[return-value]


def _sentence(error: BaseException) -> str:
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return _NO_MEMORY
    if isinstance(error, OSError) and error.strerror:
        return (
            f"{os.fspath(error.filename)}: {error.strerror}" if error.filename else error.strerror
        )
    return " ".join(str(error).split())


def printable(text: str) -> str:
    """Text for a terminal. Names in it come from files, and control characters in one of those
    could move the cursor or retitle the window."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def emit(
    text: str, body: Callable[[], dict[str, Any]], json_to: str | None, *, force: bool
) -> None:
    """Print the text, or write the JSON where it was asked for."""
    if json_to != "-":
        click.echo(printable(text))
    if json_to is None:
        return
    from lookup_tools.reports.builds import to_json
    from lookup_tools.system.atomic import atomic_output

    encoded = to_json(body()) + "\n"
    if json_to == "-":
        click.echo(encoded, nl=False)
        return
    with atomic_output(json_to, force=force) as file:
        file.write(encoded.encode())


def note(message: str, quiet: bool) -> None:
    if not quiet:
        click.echo(f"note: {printable(message)}", err=True)


def limit_processors(threads: int | None) -> None:
    """Keep this process to that many processors: the tokenizer library starts a thread for each
    one it is allowed."""
    if threads is None or not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(0))
    if threads < len(allowed):
        os.sched_setaffinity(0, allowed[:threads])


def use_one_heap() -> None:
    """One glibc heap for all threads: batches are made by one thread and freed by another, and a
    heap for each thread keeps what it once held (measured: a quarter less, and no slower)."""
    arena_max = -8  # M_ARENA_MAX of malloc.h
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(arena_max, 1)


class ProgressBars(Closing):
    """tqdm bars on stderr, one a phase, with an ETA where the total is known.

    Silent when stderr is no terminal or `quiet`; a call costs well under a microsecond then.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet or not sys.stderr.isatty()
        self._phase = ""
        self._bar: Any = None
        self._shown = 0.0

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        if self._quiet:
            return
        if phase != self._phase:
            self._start(phase, total)
        now = time.monotonic()
        if now - self._shown >= 0.1 or done == total:
            self._shown = now
            self._bar.n = done
            self._bar.refresh()

    def tell(self, line: str) -> None:
        """A line for people who watch."""
        if not self._quiet:
            click.echo(line, err=True)

    def _start(self, phase: str, total: int | None) -> None:
        from tqdm import tqdm

        self.close()
        self._phase = phase
        unit = "B" if "tokenize" in phase else "it"
        # Some terminals have no size, and tqdm would then print nothing.
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        self._bar = tqdm(
            ncols=columns,
            desc=phase,
            total=total,
            unit=unit,
            unit_scale=True,
            file=sys.stderr,
            leave=False,
            mininterval=0,
        )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
