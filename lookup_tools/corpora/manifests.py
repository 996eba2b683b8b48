"""The named corpora: one small TOML manifest each, read from the package or the repository."""

from __future__ import annotations

import importlib.resources
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from lookup_tools.errors import CorpusError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Rows = Literal["articles", "each", "joined"]
Source = Literal["hub", "python-topics"]


@dataclass(frozen=True, slots=True)
class Split:
    """What a split is expected to hold; None where it is not known."""

    rows: int | None = None
    text_bytes: int | None = None
    documents: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where a named corpus comes from and how its rows become documents.

    `rows` says how: `articles` (a document begins at a WikiText level-1 heading), `each` (every
    row is a document) or `joined` (the split is one document). Rows are joined without anything
    in between.
    """

    name: str
    title: str
    source: Source
    default_split: str
    splits: Mapping[str, Split]
    rows: Rows = "each"
    text_field: str = "text"
    path: str | None = None
    config: str | None = None
    licence: str = "unknown"
    homepage: str = ""


def list_corpora() -> list[str]:
    """Names of all corpora with a manifest, sorted."""
    return sorted(
        item.name.removesuffix(".toml")
        for item in _manifest_folder().iterdir()
        if item.name.endswith(".toml")
    )


def load_manifest(name: str) -> Manifest:
    """The manifest of a named corpus.

    Raises:
        CorpusError: no corpus has that name (the message lists those that exist), or the
            manifest breaks the schema of docs/corpora.md.
    """
    known = list_corpora()
    if name not in known:
        raise CorpusError(
            f"unknown corpus {name!r}: known are {', '.join(known)}; a Hub dataset is given as "
            "OWNER/NAME"
        )
    text = (_manifest_folder() / f"{name}.toml").read_text(encoding="utf-8")
    return parse_manifest(text, name)


def parse_manifest(text: str, name: str) -> Manifest:
    """Check a manifest's text against the schema.

    Raises:
        CorpusError: a key is missing, unknown or of the wrong kind.
    """
    try:
        table = tomllib.loads(text)
        hub = table.pop("hub", {})
        splits = {key: Split(**value) for key, value in table.pop("splits").items()}
        manifest = Manifest(splits=splits, **table, **hub)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"manifest {name}: {error!s}: see docs/corpora.md") from error
    _check(manifest, name)
    return manifest


def adhoc_manifest(path: str, config: str | None) -> Manifest:
    """A manifest for a dataset that has none: every row a document, nothing known."""
    return Manifest(
        name=path, title=path, source="hub", default_split="train", splits={}, path=path,
        config=config,
    )  # fmt: skip


def _check(manifest: Manifest, name: str) -> None:
    def require(condition: bool, rule: str) -> None:
        if not condition:
            raise CorpusError(f"manifest {name}: {rule}: see docs/corpora.md")

    require(manifest.name == name, f"name is {manifest.name!r}, expected the file's own")
    require(manifest.source in get_args(Source), f"source is {manifest.source!r}")
    require(manifest.rows in get_args(Rows), f"rows is {manifest.rows!r}")
    require(manifest.default_split in manifest.splits, "default_split is none of the splits")
    require(manifest.source != "hub" or bool(manifest.path), "a hub corpus needs hub.path")


def _manifest_folder() -> Traversable:
    """Inside an installed package, else at the top of the source tree."""
    installed = importlib.resources.files("lookup_tools").joinpath("_corpora")
    if installed.is_dir():
        return installed
    return Path(__file__).resolve().parents[2] / "corpora"
