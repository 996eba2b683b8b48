"""`open_corpus`: whatever the user names, as one lazy stream of documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from lookup_tools.corpora.corpus import Corpus
from lookup_tools.corpora.files import FileCorpus
from lookup_tools.corpora.manifests import Manifest, adhoc_manifest, load_manifest
from lookup_tools.corpora.named import DatasetCorpus
from lookup_tools.corpora.text import ChatRenderer, Errors
from lookup_tools.errors import CorpusError, ParameterError


def open_corpus(
    files: Sequence[str | os.PathLike[str]] = (),
    *,
    dataset: str | None = None,
    split: str | None = None,
    dataset_path: str | os.PathLike[str] | None = None,
    dataset_config: str | None = None,
    documents: str = "file",
    field: str | None = None,
    errors: Errors = "strict",
    stdin: BinaryIO | None = None,
    render_chat: ChatRenderer | None = None,
) -> Corpus:
    """Name a corpus; nothing is read yet, but missing files and wrong names are found now.

    Either `files` or a dataset. Files are paths, folders, patterns (`*.txt`) and URLs that fsspec
    knows (`s3://`, `https://`); `-` is standard input; gzip, zstd and xz are recognised by content.
    A dataset is the name of a manifest, `OWNER/NAME` on the Hub, or `dataset_path` alone.
    `documents` is `file`, `line`, `jsonl` (with `field`), `jsonl:FIELD`, `parquet:COLUMN` (arrow
    files, too; a row is a document) or `chat` (with `render_chat`). For datasets the manifest says
    what a document is, and `jsonl:FIELD` chooses the column.

    Raises:
        ParameterError: arguments that do not go together.
        CorpusError: no such corpus or split.
        OSError: a file is missing.
    """
    mode, field = _parse_mode(documents, field, render_chat)
    if errors not in ("strict", "replace"):
        raise ParameterError(f"errors is {errors!r}, expected strict or replace")
    from_dataset = dataset is not None or dataset_path is not None
    if from_dataset == bool(files):
        raise ParameterError("expected either text files or a dataset: give one of the two")
    if not from_dataset:
        return FileCorpus(
            [os.fspath(file) for file in files], mode, field, errors, stdin, render_chat
        )
    if mode not in ("file", "jsonl"):
        raise ParameterError(f"documents {mode!r} is for files: a dataset's manifest defines its")
    manifest = _dataset_manifest(dataset, dataset_path, dataset_config, field)
    copy = None if dataset_path is None else Path(dataset_path)
    return DatasetCorpus(manifest, _checked_split(manifest, split), copy)


def _parse_mode(documents: str, field: str | None, render: ChatRenderer | None) -> tuple[str, str]:
    mode, colon, given = documents.partition(":")
    named = ("jsonl", "parquet")
    if mode not in ("file", "line", "chat", *named) or (colon and mode not in named):
        raise ParameterError(
            f"documents is {documents!r}, expected file, line, jsonl:FIELD, parquet:COLUMN or chat"
        )
    if mode in named and not (given or field):
        what = "field: jsonl:FIELD" if mode == "jsonl" else "column: parquet:COLUMN"
        raise ParameterError(f"documents {mode} needs a {what}")
    if mode == "chat" and render is None:
        raise ParameterError("documents chat needs a chat template: give a model that has one")
    return mode, given or field or ""


def _dataset_manifest(
    dataset: str | None,
    path: str | os.PathLike[str] | None,
    config: str | None,
    field: str,
) -> Manifest:
    if dataset is None:
        assert path is not None, "checked by open_corpus"
        manifest = adhoc_manifest(Path(path).resolve().name, config)
    elif "/" in dataset:
        manifest = adhoc_manifest(dataset, config)
    else:
        manifest = load_manifest(dataset)
    if config is not None:
        known = manifest.splits if config == manifest.config else {}
        manifest = replace(manifest, config=config, splits=known)
    return replace(manifest, text_field=field) if field else manifest


def _checked_split(manifest: Manifest, split: str | None) -> str:
    if split is None:
        return manifest.default_split
    if manifest.splits and split not in manifest.splits:
        raise CorpusError(
            f"{manifest.name} has no split {split!r}: known are {', '.join(manifest.splits)}"
        )
    return split
