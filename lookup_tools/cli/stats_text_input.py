"""The test text of lookup-stats: one stream of ids, whose ids they are, and its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookup_tools.errors import ParameterError
from lookup_tools.replaying.replay import Part

if TYPE_CHECKING:
    from lookup_tools.cache import Cache
    from lookup_tools.cli.options import ProgressBars
    from lookup_tools.cli.text import TextArguments
    from lookup_tools.tokenizers import Tokenizer
    from lookup_tools.tokens.stream import TokenBatch


@dataclass(frozen=True, slots=True)
class TestText:
    """Ids, and the parts that `--by-file` or `--by-document` asked for."""

    ids: Any
    parts: list[Part]
    fingerprint: str | None
    name: str

    def require(self, cache: Cache, ignore_vocabulary: bool) -> None:
        """Refuse a cache of another vocabulary unless that is to be ignored."""
        from lookup_tools.cache.load_cost import require_vocabulary

        require_vocabulary(cache, self.fingerprint, self.name, ignore=ignore_vocabulary)


def read_text(
    arguments: TextArguments,
    progress: ProgressBars,
    *,
    by_file: bool = False,
    by_document: bool = False,
    ignore_vocabulary: bool = False,
) -> TestText:
    """Tokenize, or read the ids."""
    if by_file and by_document:
        raise ParameterError("found --by-file and --by-document, expected one of them")
    if by_file and not arguments.files:
        raise ParameterError("found --by-file without -f, expected files; or use --by-document")
    tokenizer = arguments.open_tokenizer()
    if arguments.token_file:
        info, batches = arguments.open_tokens(
            tokenizer, concatenate=False, ignore_vocabulary=ignore_vocabulary
        )
        fingerprint = info.fingerprint
        name = info.tokenizer or info.fingerprint or "an unnamed vocabulary"
        streams = [(arguments.token_file, batches)]
    else:
        assert tokenizer is not None
        fingerprint, name = tokenizer.fingerprint, tokenizer.name
        streams = list(_text_streams(arguments, tokenizer, by_file))
    return _collect(streams, by_file, by_document, progress, (fingerprint, name))


def _text_streams(
    arguments: TextArguments, tokenizer: Tokenizer, by_file: bool
) -> Iterator[tuple[str, Iterator[TokenBatch]]]:
    from lookup_tools.tokens.from_corpus import tokenize

    several = by_file and len(arguments.files) > 1
    for given in [(file,) for file in arguments.files] if several else [arguments.files]:
        corpus = replace(arguments, files=given).open_corpus(tokenizer)
        batches = tokenize(
            corpus, tokenizer, parse_special=arguments.parse_special, bos=arguments.bos
        )
        yield (given[0] if given else "text"), batches


def _collect(
    streams: list[tuple[str, Iterator[TokenBatch]]],
    by_file: bool,
    by_document: bool,
    progress: ProgressBars,
    identity: tuple[str | None, str],
) -> TestText:
    ids = [np.empty(0, np.int32)]
    parts: list[Part] = []
    n = document = start = 0
    for name, batches in streams:
        file_start = n
        for batch in batches:
            for end in batch.ends.tolist() if by_document else ():
                document += 1
                parts.append(Part(f"document {document}", start, n + end))
                start = n + end
            ids.append(batch.ids)
            n += len(batch.ids)
            progress("tokenize", n, None)
        if by_file:
            parts.append(Part(name, file_start, n))
    if by_document and start < n:
        parts.append(Part(f"document {document + 1}", start, n))
    return TestText(np.concatenate(ids), parts, *identity)


def elsewhere(arguments: TextArguments, path: str) -> TextArguments:
    """The same arguments for another text, which is a token file if its name or first bytes say
    so."""
    from lookup_tools.tokens.layout import MAGIC

    stem = path.removesuffix(".zst").removesuffix(".gz").removesuffix(".xz")
    raw = stem.endswith((".u16", ".u32"))
    with Path(path).open("rb") as file:
        is_tokens = raw or file.read(len(MAGIC)) == MAGIC
    return replace(
        arguments,
        dataset=None,
        dataset_path=None,
        split=None,
        files=() if is_tokens else (path,),
        token_file=path if is_tokens else None,
    )
