"""Refreshing a live cache file: old and new merged, swapped in by one rename, one update at a time.

What a reader or a crash may see: the old file or the new one, never anything between. A legacy
file's sidecar is replaced first and speaks of both (see formats.sidecar), so that either fits it.
Whoever has the old file mapped or open keeps it as it was.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lookup_tools.building.create import create_from_tokens
from lookup_tools.building.create_options import CreateOptions
from lookup_tools.building.merge import MergeOptions, MergeReport, join
from lookup_tools.errors import ParameterError
from lookup_tools.formats.sniff import sniff
from lookup_tools.system.locking import folder_lock
from lookup_tools.system.progress import Progress
from lookup_tools.system.signals import temporary_folder
from lookup_tools.tokenizers import Tokenizer
from lookup_tools.tokens import TokenInfo, TokenStream
from lookup_tools.tokens.stream import TokenBatch, as_tokens

Path = str | os.PathLike[str]


def update_cache(
    live: Path,
    inputs: Sequence[Path],
    options: MergeOptions | None = None,
    progress: Progress | None = None,
) -> MergeReport:
    """Merge cache files into a live one, which is replaced as a whole; it is made where it is not
    there yet.

    The live file keeps its format, mode, owner (where permitted) and vocabulary. Updates of files
    in one folder wait for each other, so that none is lost; after a failure or an interruption the
    live file is what it was. `options.weights` has the live file's weight first, also where there
    is no such file yet; with `options.ignore_vocabulary` inputs may be of
    another vocabulary, and the file names none afterwards.

    Raises:
        TokenizerMismatchError: an input was made with another vocabulary.
        FormatError: the live file or an input is damaged or no cache.
        ParameterError: no inputs, the live file is one of them, or nothing is left after pruning.
        OSError: a file cannot be read or written, or the folder cannot be locked.
    """
    options = options or MergeOptions()
    if not inputs:
        raise ParameterError("found no inputs, expected at least one cache file")
    if options.weights and len(options.weights) != len(inputs) + 1:
        raise ParameterError(
            f"found {len(options.weights)} weights, expected {len(inputs) + 1}: the live file's, "
            "then one for each input"
        )
    # A link keeps pointing where it does, so the folder of the file itself is the one to hold.
    waiting = partial(progress, "wait for another update", 0, None) if progress else None
    with folder_lock(os.path.dirname(os.path.realpath(live)), waiting):
        if not _exists(live):
            options = replace(options, weights=options.weights[1:])
            report = join(inputs, live, options, progress, replace_output=False, refresh=True)
            note = f"{os.fspath(live)} was not there: made from the inputs"
            return replace(report, notes=(*report.notes, note))
        _refuse_itself(live, inputs)
        options = replace(options, fmt=options.fmt or sniff(live))
        return join([live, *inputs], live, options, progress, replace_output=True, refresh=True)


def learn(
    live: Path,
    streams: Sequence[Any],
    *,
    tokenizer: Tokenizer | None = None,
    n_min: int = 1,
    n_max: int = 4,
    name: str = "learned tokens",
    options: MergeOptions | None = None,
    progress: Progress | None = None,
) -> MergeReport:
    """Count token streams as a dynamic cache and `update_cache` a live file with it.

    Args:
        streams: arrays of int32 ids (or lists), each a stream of its own; at least one has to be
            longer than `n_min`.
        tokenizer: whose ids they are; without it the new counts fit any vocabulary.
        n_min, n_max: the n-grams counted, 1 to 4.
        name: what the file's metadata calls the streams.

    Raises:
        ParameterError: there is nothing to count. See `update_cache` for the rest.
    """
    options = options or MergeOptions()
    stream = TokenStream.from_documents([as_tokens(ids) for ids in streams])
    create = CreateOptions(
        kind="dynamic",
        ngram_min=n_min,
        ngram_max=n_max,
        memory=options.memory,
        tmpdir=options.tmpdir,
        threads=options.threads,
    )
    longest = max((len(document) for document in stream.documents()), default=0)
    if longest <= min(create.orders):
        raise ParameterError(
            f"found no stream of more than {longest} tokens, expected one of at least "
            f"{min(create.orders) + 1}; there is nothing to count"
        )
    info = TokenInfo(corpora=(name,))
    if tokenizer is not None:
        info = TokenInfo(
            tokenizer.vocab_size,
            tokenizer.fingerprint,
            tokenizer.name,
            (name,),
            tokenizer.text_fingerprint,
        )
    with temporary_folder(options.tmpdir) as folder:
        new = os.path.join(folder, "new.lcd")
        create_from_tokens([TokenBatch(stream.ids, stream.doc_ends)], info, new, create)
        report = update_cache(live, [new], options, progress)
    *known, learned = report.inputs
    return replace(report, inputs=(*known, replace(learned, path=name)))


def _exists(path: Path) -> bool:
    """Whether a regular file is there.

    Raises:
        ParameterError: it is something else. OSError: one cannot even look.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise ParameterError(
            f"{os.fspath(path)}: found no regular file, expected a cache file to update"
        )
    return True


def _refuse_itself(live: Path, inputs: Sequence[Path]) -> None:
    for path in inputs:
        if os.path.exists(path) and os.path.samefile(path, live):
            raise ParameterError(
                f"{os.fspath(path)}: found the live file among the inputs, expected other files; "
                "its counts would be added to themselves"
            )
