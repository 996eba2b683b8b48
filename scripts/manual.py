"""Man pages and shell completions, made from the commands themselves.

    python scripts/manual.py DIR    writes share/man/man1/ and the completions below DIR

The build runs this, so that an installed package has them below its prefix; only click is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from docs_reference import NAMES, command, notes_of, value_of  # noqa: E402

# Where each shell looks for the completion of NAME below a prefix such as /usr or a venv.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/{name}",
    "zsh": "share/zsh/site-functions/_{name}",
    "fish": "share/fish/vendor_completions.d/{name}.fish",
}

EXIT_STATUS = (
    ("0", "Done."),
    ("1", "An error, told in one line: what was found, what was expected, what to do."),
    ("2", "The command line is wrong."),
    ("130", "Interrupted; 128 and the signal's number for other signals."),
)


# ---- man pages


def roff(text: str) -> str:
    """Text of one paragraph in roff's spelling."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    text = text.replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha")
    return text.replace("~", "\\(ti")


def tagged(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Paragraphs with a tag that stands out. A page's lines must not begin with a dot of their
    own, and those of ours never do: `\\&` stands in front."""
    for tag, text in items:
        yield f".TP\n{tag}\n\\&{roff(text)}"


def option_items(found: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for option in found.get_params(context):
        if not isinstance(option, click.Option):
            continue
        names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option.opts + option.secondary_opts)
        value = value_of(option)
        notes = notes_of(option)
        text = f"{option.help or ''} {f'({notes})' if notes else ''}"
        yield f"{names} \\fI{roff(value)}\\fR" if value else names, text


def synopsis(name: str, found: click.Command, context: click.Context) -> str:
    pieces = " ".join(found.collect_usage_pieces(context))
    return f"\\fB{roff(name)}\\fR {roff(pieces)}"


def man_page(short: str, release: str) -> str:
    """The man page of lookup-SHORT, section 1. It holds no date: the same source, the same page."""
    name, found = f"lookup-{short}", command(short)
    context = click.Context(found, info_name=name, **found.context_settings)
    paragraphs = (found.help or "").split("\n\n")
    others = [f"lookup-{other}" for other in NAMES if other != short]
    example = (found.epilog or "").removeprefix("Example: ")
    lines = [
        f'.TH {name.upper()} 1 "" "lookup-tools {release}" "User Commands"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(paragraphs[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        synopsis(name, found, context),
        ".SH DESCRIPTION",
        "\n.PP\n".join(f"\\&{roff(paragraph)}" for paragraph in paragraphs),
        ".SH OPTIONS",
        *tagged(option_items(found, context)),
        ".SH EXIT STATUS",
        *tagged(EXIT_STATUS),
        *([".SH EXAMPLES", f".nf\n{roff(example)}\n.fi"] if example else []),
        ".SH SEE ALSO",
        ", ".join(f"\\fB{roff(other)}\\fR(1)" for other in others),
    ]
    return "\n".join(lines) + "\n"


# ---- shell completion


def completion(short: str, shell: str) -> str:
    """What the shell loads to complete lookup-SHORT; it asks the command itself each time."""
    name = f"lookup-{short}"
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    kind = get_completion_class(shell)
    assert kind is not None, shell
    # Not kind.source: that of bash wants to run the bash of the machine it is made on.
    return ShellComplete.source(kind(command(short), {}, name, variable)).strip() + "\n"


def files(release: str) -> Iterator[tuple[str, str]]:
    """Every file's path below a prefix, and its text."""
    for short in NAMES:
        yield f"share/man/man1/lookup-{short}.1", man_page(short, release)
        for shell, path in COMPLETIONS.items():
            yield path.format(name=f"lookup-{short}"), completion(short, shell)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", help="of the package [the installed one's]")
    arguments = parser.parse_args()
    for path, text in files(arguments.version or version("lookup-tools")):
        target = arguments.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
