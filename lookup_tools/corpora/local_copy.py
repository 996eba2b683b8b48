"""Finding a split in a folder laid out like the Hub's, without opening any file."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lookup_tools.errors import CorpusError

Form = Literal["parquet", "arrow", "saved"]
_FORMS: tuple[Form, ...] = ("parquet", "arrow")
_SHARD = re.compile(r"-(\d+)-of-(\d+)$")


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """The files of one split; for `saved` (`save_to_disk`) the folder itself."""

    form: Form
    files: tuple[Path, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files if file.is_file())


def find_copy(folder: Path, config: str | None, split: str) -> LocalCopy:
    """The files of `split` under `folder`.

    Looked for in `folder/config`, `folder` and `folder/data`: a `save_to_disk` folder, files named
    `SPLIT.parquet`, `SPLIT-00000-of-00002.parquet`, `NAME-SPLIT.arrow` and the like, or any
    parquet or arrow files in a folder named SPLIT. `folder` may also be one such file.

    Raises:
        CorpusError: nothing found (the message says what is there), or a shard is missing.
        OSError: `folder` does not exist.
    """
    if not folder.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    if folder.is_file():
        return LocalCopy(_form_of(folder), (folder,))
    places = [folder / config] if config else []
    places += [folder, folder / "data"]
    for place in places:
        if found := _in_folder(place, split):
            return found
    raise CorpusError(
        f"{folder}: no split {split!r}: expected parquet or arrow files such as "
        f"{config + '/' if config else ''}{split}-00000-of-00001.parquet, or a save_to_disk "
        f"folder; found {_contents(folder)}"
    )


def _in_folder(place: Path, split: str) -> LocalCopy | None:
    if (place / "dataset_dict.json").is_file() and (place / split).is_dir():
        return LocalCopy("saved", (place,))
    if (place / "state.json").is_file():
        return LocalCopy("saved", (place,))
    named = re.compile(rf"(?:.*[-_.])?{re.escape(split)}(?:-\d+-of-\d+)?")
    for form in _FORMS:
        files = [file for file in place.glob(f"*.{form}") if named.fullmatch(file.stem)]
        files = files or list((place / split).glob(f"*.{form}"))
        if files:
            _require_all_shards(files)
            return LocalCopy(form, tuple(sorted(files)))
    return None


def _require_all_shards(files: list[Path]) -> None:
    """Refuse a copy that lacks a part: it would give fewer rows without a word."""
    shards = [match for file in files if (match := _SHARD.search(file.stem))]
    expected = max((int(match[2]) for match in shards), default=0)
    present = {int(match[1]) for match in shards}
    if missing := sorted(set(range(expected)) - present):
        raise CorpusError(
            f"{files[0].parent}: found {len(present)} of {expected} shards, number "
            f"{missing[0]:05d} is missing: copy the rest"
        )


def _form_of(file: Path) -> Form:
    if file.suffix == ".parquet":
        return "parquet"
    if file.suffix == ".arrow":
        return "arrow"
    raise CorpusError(f"{file}: expected a folder, a .parquet or an .arrow file; text goes to -f")


def _contents(folder: Path) -> str:
    names = sorted(item.name for item in folder.iterdir())
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "nothing"
