"""Rows of Hugging Face datasets: streamed from the Hub, or read from a copy laid out like it.

Owns everything that touches the `datasets` library, which is imported late because it takes a
second. All of its failures become one line that says how to get the corpus.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lookup_tools.corpora.local_copy import LocalCopy, find_copy
from lookup_tools.corpora.manifests import Manifest
from lookup_tools.errors import CorpusError, LookupToolsError

# The Hub client tries again for 25 s and `datasets` for minutes; a network that is not there is
# found out by one request before either starts.
_PROBE_SECONDS = 5.0
_READ_RETRIES = 3
_ROWS_PER_BATCH = 1000


def iter_rows(manifest: Manifest, split: str, copy: Path | None) -> Iterator[str]:
    """The text of every row of a split, in order.

    From `copy` if given, else from the Hub client's own cache if it holds the split whole, else
    streamed.

    Raises:
        CorpusError: no such copy, split or column; the Hub cannot be reached; `datasets` is not
            installed.
    """
    datasets = _import_datasets(manifest)
    found = _copy_in_use(manifest, split, copy)
    with _one_line(manifest, split):
        if found is None:
            _probe(manifest, split)
            rows = datasets.load_dataset(
                manifest.path, manifest.config, split=split, streaming=True
            )
        else:
            rows = _open_copy(datasets, found, split)
        batches = rows.iter(batch_size=_ROWS_PER_BATCH)
    yield from _checked_rows(batches, manifest, split)


def _checked_rows(batches: Any, manifest: Manifest, split: str) -> Iterator[str]:
    number = 0
    iterator = iter(batches)
    while True:
        with _one_line(manifest, split):
            batch = next(iterator, None)
        if batch is None:
            return
        if manifest.text_field not in batch:
            raise CorpusError(
                f"{manifest.name}: no column {manifest.text_field!r}, expected one of "
                f"{', '.join(sorted(batch))}: choose with --documents jsonl:COLUMN"
            )
        for text in batch[manifest.text_field]:
            number += 1
            if not isinstance(text, str):
                raise CorpusError(
                    f"{manifest.name} {split}: row {number} is {type(text).__name__}, "
                    "expected a string"
                )
            yield text


def _open_copy(datasets: Any, copy: LocalCopy, split: str) -> Any:
    if copy.form == "saved":
        saved = datasets.load_from_disk(str(copy.files[0]))
        return saved[split] if isinstance(saved, dict) else saved
    files = [str(file) for file in copy.files]
    return datasets.load_dataset(copy.form, data_files={split: files}, split=split, streaming=True)


def _copy_in_use(manifest: Manifest, split: str, copy: Path | None) -> LocalCopy | None:
    if copy is not None:
        return find_copy(copy, manifest.config, split)
    cached = _cached_snapshot(manifest)
    if cached is None:
        return None
    try:
        return find_copy(cached, manifest.config, split)
    except CorpusError:
        return None  # the cache holds other splits only, or a part of this one


def _cached_snapshot(manifest: Manifest) -> Path | None:
    """Where `hf download` without `--local-dir` left the dataset, if it did; no network."""
    try:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(str(manifest.path), repo_type="dataset", local_files_only=True)
    except (ImportError, OSError, ValueError):
        return None
    return Path(folder)


def _probe(manifest: Manifest, split: str) -> None:
    """One request to the Hub; raises CorpusError within a few seconds when it is out of reach."""
    from huggingface_hub import constants, get_session, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        raise _unreachable(manifest, split, "HF_HUB_OFFLINE is set")
    url = hf_hub_url(str(manifest.path), "README.md", repo_type="dataset")
    try:
        answer = get_session().head(url, timeout=_PROBE_SECONDS)
    except Exception as error:  # the client library behind the session has changed before
        raise _unreachable(manifest, split, f"{constants.ENDPOINT} cannot be reached") from error
    if answer.status_code >= 500:
        reason = f"{constants.ENDPOINT} answers {answer.status_code}"
        raise _unreachable(manifest, split, reason)


def _unreachable(manifest: Manifest, split: str, reason: str) -> CorpusError:
    include = f" --include '{manifest.config}/*'" if manifest.config else ""
    return CorpusError(
        f"{manifest.name} {split}: {reason} and no local copy was given: where there is a "
        f"network, run: hf download {manifest.path} --repo-type dataset{include} "
        "--local-dir DIR; then pass --dataset-path DIR"
    )


def _import_datasets(manifest: Manifest) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise CorpusError(
            f"{manifest.name}: needs the package `datasets`: pip install datasets"
        ) from error
    datasets.disable_progress_bars()
    datasets.config.STREAMING_READ_MAX_RETRIES = _READ_RETRIES
    datasets.config.STREAMING_OPEN_MAX_RETRIES = _READ_RETRIES
    return datasets


@contextmanager
def _one_line(manifest: Manifest, split: str) -> Iterator[None]:
    """Whatever the libraries raise or log becomes one CorpusError."""
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "datasets")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    except LookupToolsError:
        raise
    except Exception as error:  # dozens of classes from five libraries
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise CorpusError(f"{manifest.name} {split}: cannot be read: {reason}") from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
