"""Sample a text of any size that has the 2-gram statistics of a given one.

    python scripts/synth_corpus.py wiki.txt.zst --size 1G -o big.txt

Every word is drawn from the words that follow the previous one in the sample, each as often as it
does there, so that n-gram followers stay as skewed as in real text. The same sample, size and seed
give the same bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO

import click
import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from lookup_tools.corpora import open_corpus
from lookup_tools.errors import LookupToolsError, ParameterError
from lookup_tools.system.atomic import atomic_output
from lookup_tools.system.signals import terminate_cleanly

# A word is what stands between blanks, with the blanks behind it: joined words are text again.
_WORD = re.compile(r"\S+\s*|\s+")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
# Chains advance side by side, so that a step is a few numpy calls for all of them; where one
# chain's words end and the next one's begin there is one false 2-gram in 4096.
_LANES = 512
_STEPS = 4096


@dataclass(frozen=True, slots=True)
class Bigrams:
    """Word w is followed by `followers[starts[w] : starts[w] + counts[w]]`, repeats included."""

    words: list[bytes]
    followers: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def measure(text: str) -> Bigrams:
    """Count the 2-grams of a text; its last word is followed by its first.

    Keeping each occurrence makes drawing a follower one random index: no alias table is needed.
    """
    ids_of: dict[str, int] = {}
    found = (match[0] for match in _WORD.finditer(text))
    ids = np.fromiter((ids_of.setdefault(word, len(ids_of)) for word in found), np.int32)
    if ids.size < 2:
        raise ParameterError("the sample has fewer than two words: give a longer text")
    order = np.argsort(ids, kind="stable")
    followers = np.roll(ids, -1)[order]
    counts = np.bincount(ids, minlength=len(ids_of))
    starts = np.cumsum(counts) - counts
    return Bigrams([word.encode() for word in ids_of], followers, starts, counts)


def sample(bigrams: Bigrams, size: int, seed: int) -> Iterator[bytes]:
    """Blocks of text, `size` bytes in all (up to 3 fewer, so that no character is cut)."""
    random = np.random.Generator(np.random.PCG64(seed))
    current = bigrams.followers[random.integers(bigrams.followers.size, size=_LANES)]
    left = size
    while left > 0:
        block = np.empty((_STEPS, _LANES), np.int32)
        for step in range(_STEPS):
            drawn = random.random(_LANES) * bigrams.counts[current]
            current = bigrams.followers[bigrams.starts[current] + drawn.astype(np.int64)]
            block[step] = current
        words = bigrams.words
        text = b"".join([words[index] for index in block.T.ravel().tolist()])
        yield text if len(text) <= left else _cut(text, left)
        left -= len(text)


def _cut(text: bytes, size: int) -> bytes:
    return text[:size].decode(errors="ignore").encode()


def read_sample(files: tuple[str, ...], limit: int) -> str:
    """The first `limit` characters of the files together."""
    parts: list[str] = []
    left = limit
    for piece in open_corpus(files).pieces():
        parts.append(piece.text[:left])
        left -= len(parts[-1])
        if left <= 0:
            break
    return "".join(parts)


def parse_size(text: str) -> int:
    """`1G`, `250M`, `1.5G` or plain bytes; units are decimal."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.strip().upper())
    if not match:
        raise ParameterError(f"size is {text!r}, expected a number with K, M, G or T behind it")
    return int(float(match[1]) * _UNITS[match[2]])


def write_sample(bigrams: Bigrams, size: int, seed: int, output: BinaryIO, quiet: bool) -> None:
    """Write while a progress bar runs on stderr."""
    disable = quiet or not sys.stderr.isatty()
    with tqdm(total=size, unit="B", unit_scale=True, disable=disable) as progress:
        for block in sample(bigrams, size, seed):
            output.write(block)
            progress.update(len(block))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True)
@click.option("--size", required=True, help="Bytes to write, such as 250M or 1G.")
@click.option("-o", "--output", default="-", help="File to write; - is standard output.")
@click.option("--seed", default=1, show_default=True, help="Another seed is another text.")
@click.option("--sample", "limit", default="64M", show_default=True, help="Characters to measure.")
@click.option("--force", is_flag=True, help="Overwrite the output.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def main(
    files: tuple[str, ...], size: str, output: str, seed: int, limit: str, force: bool, quiet: bool
) -> None:
    """Sample a text of any size with the 2-gram statistics of FILES."""
    opened: AbstractContextManager[Any] = (
        nullcontext(sys.stdout.buffer) if output == "-" else atomic_output(output, force=force)
    )
    try:
        wanted, measured = parse_size(size), parse_size(limit)
        with terminate_cleanly(), opened as file:
            bigrams = measure(read_sample(files, measured))
            write_sample(bigrams, wanted, seed, file, quiet)
    except (LookupToolsError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
