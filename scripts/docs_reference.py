"""The reference in docs/commands.md, written from the commands themselves.

`scripts/docs_check.py --write` writes it, `scripts/docs_check.py` says when it is stale.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"
NAMES = ("create", "stats", "merge", "inspect")


def command(name: str) -> click.Command:
    found: click.Command = importlib.import_module(f"lookup_tools.cli.{name}").main
    return found


def value_of(option: click.Parameter) -> str:
    """What an option takes, for people: a choice, a range or a kind of value."""
    kind = option.type
    if getattr(option, "is_flag", False):
        return ""
    if option.metavar:
        return option.metavar
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        return "N"
    names = {"text": "TEXT", "path": "PATH", "file": "PATH", "directory": "DIR"}
    return names.get(kind.name, kind.name.upper())


def range_of(option: click.Parameter) -> str:
    kind = option.type
    if isinstance(kind, click.FloatRange):
        return f"above {kind.min:g}"
    if not isinstance(kind, click.IntRange):
        return ""
    low, high = kind.min, kind.max
    if high is None or high == 2**31 - 1:
        return f"{low} or more"
    return f"{low} to {high}"


def notes_of(option: click.Option) -> str:
    notes = []
    if option.required:
        notes.append("required")
    if option.multiple and "repeated" not in (option.help or ""):
        notes.append("may be repeated")
    if option.show_default and option.default is not None:
        default = option.default
        if option.secondary_opts:
            default = option.opts[0] if default else option.secondary_opts[0]
        notes.append(f"default {default}")
    notes.append(range_of(option))
    return "; ".join(note for note in notes if note)


def row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value, notes = value_of(option), notes_of(option)
    takes = f" *{value}*" if value else ""
    text = f"{option.help or ''}{f' ({notes})' if notes else ''}"
    return "| {} | {} |".format(*(cell.replace("|", "\\|") for cell in (names + takes, text)))


def reference(name: str) -> str:
    """The generated part on one command."""
    found = command(name)
    context = click.Context(found, info_name=f"lookup-{name}", **found.context_settings)
    usage = " ".join(found.collect_usage_pieces(context))
    text = " ".join((found.help or "").split())
    options = [each for each in found.get_params(context) if isinstance(each, click.Option)]
    lines = [
        f"`lookup-{name} {usage}`",
        "",
        text,
        "",
        "| option | what it does |",
        "|---|---|",
        *map(row, options),
        "",
        f"{(found.epilog or '').replace('Example: ', 'Example: `')}`",
    ]
    return "\n".join(lines)


def with_reference(page: str) -> str:
    """The page with every generated part as it should be."""
    for name in NAMES:
        begin, end = f"<!-- generated: lookup-{name} -->", f"<!-- end: lookup-{name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{PAGE.name}: found no {begin} ... {end}")
        page = f"{before}{begin}\n{reference(name)}\n{end}{after}"
    return page


def check_reference() -> Iterator[str]:
    page = PAGE.read_text(encoding="utf-8")
    if with_reference(page) != page:
        yield f"docs/{PAGE.name}: stale, run scripts/docs_check.py --write"


def write() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_reference(page), encoding="utf-8")
