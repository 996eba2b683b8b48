"""The reference of one command for docs/commands.md, where cog inserts it: `make docs`."""

from __future__ import annotations

import importlib
import re

import click

NAMES = ("create", "stats", "merge", "inspect")


def command(name: str) -> click.Command:
    found: click.Command = importlib.import_module(f"lookup_tools.cli.{name}").main
    return found


def reference(name: str) -> str:
    """Usage, purpose, options and example as click knows them, in Markdown."""
    found = command(name)
    context = click.Context(found, info_name=f"lookup-{name}", **found.context_settings)
    lines = [
        f"`lookup-{name} {' '.join(found.collect_usage_pieces(context))}`",
        "",
        " ".join((found.help or "").split()),
        "",
        "| option | what it does |",
        "|---|---|",
    ]
    for each in found.get_params(context):
        if record := each.get_help_record(context):
            lines.append("| `{}` | {} |".format(*map(cell, record)))
    example = (found.epilog or "").removeprefix("Example: ")
    return "\n".join([*lines, "", f"Example: `{example}`"])


def cell(text: str) -> str:
    """An option's name or help as a cell of a table."""
    text = re.sub(r"(INTEGER|FLOAT) RANGE", "N", text).replace("<=x<=2147483647", " or more")
    return " ".join(text.replace("|", "\\|").split())
