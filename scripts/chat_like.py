"""A text that repeats itself the way editing chats do, for measuring draft sources.

Each turn quotes a piece of a source file and repeats it with one name changed: what an assistant
says that was asked to rename something. The same files and seed give the same text.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click


def turns(source: str, rng: random.Random, lines: int) -> Iterator[str]:
    """One turn for every `lines` lines of a file that hold a name to change."""
    rows = source.splitlines()
    for start in range(0, len(rows) - lines + 1, lines):
        piece = "\n".join(rows[start : start + lines])
        names = sorted(set(re.findall(r"\b[a-z_][a-z_0-9]{3,}\b", piece)))
        if names:
            old = rng.choice(names)
            new = f"{old}_{rng.choice(('new', 'value', 'item', 'x'))}"
            edited = re.sub(rf"\b{old}\b", new, piece)
            yield (
                f"User: Rename {old} to {new} in this code.\n\n{piece}\n\n"
                f"Assistant: Here it is, with {old} renamed to {new}.\n\n{edited}\n\n"
            )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--lines", type=click.IntRange(1), default=30, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(files: tuple[Path, ...], lines: int, seed: int) -> None:
    """Write the text to standard output."""
    rng = random.Random(seed)
    for file in files:
        for turn in turns(file.read_text(encoding="utf-8", errors="replace"), rng, lines):
            sys.stdout.write(turn)


if __name__ == "__main__":
    main()
