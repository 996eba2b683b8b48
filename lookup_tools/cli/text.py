"""Options that name a text and a vocabulary, shared by lookup-create and lookup-stats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from lookup_tools.cli.options import FILE, note
from lookup_tools.errors import ParameterError

if TYPE_CHECKING:
    from lookup_tools.corpora import Corpus
    from lookup_tools.tokenizers import Tokenizer
    from lookup_tools.tokens import TokenInfo
    from lookup_tools.tokens.stream import TokenBatch

F = TypeVar("F", bound=Callable[..., Any])


def text_options(function: F) -> F:
    """-m, -f, --dataset and friends, --tokens, --documents, --bos, --parse-special, --errors."""
    for option in (
        click.option(
            "--errors",
            type=click.Choice(["strict", "replace"]),
            default="strict",
            show_default=True,
            help="What to do with bytes that are not UTF-8.",
        ),
        click.option(
            "--parse-special",
            is_flag=True,
            help="Encode special-token texts in the corpus as special tokens, not as text "
            "(always for chats).",
        ),
        click.option("--bos", is_flag=True, help="Put the BOS token in front of every document."),
        click.option(
            "--documents",
            default="file",
            show_default=True,
            metavar="file|line|jsonl:FIELD|parquet:COLUMN|chat",
            help="What one document is.",
        ),
        click.option(
            "--tokens",
            "token_file",
            type=FILE,
            help="Read ids from a token file (--save-tokens, or raw .u16/.u32, also .zst) instead "
            "of text.",
        ),
        click.option(
            "--dataset-path",
            type=FILE,
            help="A local copy of the dataset, laid out like the hub's.",
        ),
        click.option("--dataset-config", help="The dataset's configuration [its manifest's]."),
        click.option("--split", help="The dataset's split [train]."),
        click.option(
            "--dataset",
            help="A named corpus (wikitext-103, wikitext-2, python-topics) or a hub dataset.",
        ),
        click.option(
            "-f",
            "--file",
            "files",
            multiple=True,
            type=FILE,
            help="Text, also .gz, .zst or .xz: a file, folder, pattern or URL (s3://, https://); "
            "- is stdin. May be repeated.",
        ),
        click.option(
            "-m",
            "--model",
            type=FILE,
            help="The vocabulary: a GGUF model or a tokenizer.json.",
        ),
    ):
        function = option(function)
    return function


@dataclass(slots=True)
class TextArguments:
    """The parsed values of `text_options`."""

    model: str | None
    files: tuple[str, ...]
    dataset: str | None
    split: str | None
    dataset_path: str | None
    dataset_config: str | None
    token_file: str | None
    documents: str
    bos: bool
    parse_special: bool
    errors: Literal["strict", "replace"]

    def __post_init__(self) -> None:
        text = bool(self.files) + bool(self.dataset or self.dataset_path)
        if text + bool(self.token_file) != 1:
            raise click.UsageError(
                "found no input or several, expected exactly one of -f, --dataset (or "
                "--dataset-path) and --tokens"
            )
        if text and not self.model:
            raise click.UsageError(
                "found no vocabulary, expected -m MODEL.gguf or -m tokenizer.json with text"
            )

    @classmethod
    def take(cls, values: dict[str, Any]) -> TextArguments:
        """Remove them from a command's keyword arguments."""
        return cls(**{name: values.pop(name) for name in cls.__dataclass_fields__})

    def open_tokenizer(self) -> Tokenizer | None:
        from lookup_tools.tokenizers import open_tokenizer

        tokenizer = open_tokenizer(self.model) if self.model else None
        if tokenizer is not None and tokenizer.note:
            note(f"{self.model}: {tokenizer.note}", quiet=False)
        return tokenizer

    def open_corpus(self, tokenizer: Tokenizer) -> Corpus:
        from lookup_tools.corpora import open_corpus

        render = None
        if self.documents == "chat":
            from lookup_tools.corpora.chat import chat_renderer

            render = chat_renderer(tokenizer)
        return open_corpus(
            files=self.files,
            dataset=self.dataset,
            split=self.split,
            dataset_path=self.dataset_path,
            dataset_config=self.dataset_config,
            documents=self.documents,
            errors=self.errors,
            render_chat=render,
        )

    def open_tokens(
        self, tokenizer: Tokenizer | None, *, concatenate: bool, ignore_vocabulary: bool = False
    ) -> tuple[TokenInfo, Iterator[TokenBatch]]:
        """The token file as batches, and whose ids it holds: its own word, else -m's."""
        from lookup_tools.tokens import read_token_info

        assert self.token_file is not None
        if self.bos or self.parse_special:
            raise ParameterError(
                "found --bos or --parse-special with --tokens, expected them with text: the ids "
                "are made already"
            )
        info = read_token_info(self.token_file)
        if tokenizer is not None:
            info = _owned_by(info, tokenizer, ignore_vocabulary)
        return info, _batches(self.token_file, info, concatenate)


def _owned_by(info: TokenInfo, tokenizer: Tokenizer, ignore_vocabulary: bool) -> TokenInfo:
    from dataclasses import replace

    if not ignore_vocabulary:
        info.require_tokenizer(tokenizer.fingerprint, tokenizer.name)
    return replace(
        info,
        vocab_size=tokenizer.vocab_size,
        fingerprint=tokenizer.fingerprint,
        text_fingerprint=tokenizer.text_fingerprint,
        tokenizer=tokenizer.name,
    )


def _batches(path: str, info: TokenInfo, concatenate: bool) -> Iterator[TokenBatch]:
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from lookup_tools.system.workers import ahead
    from lookup_tools.tokens import iter_token_blocks
    from lookup_tools.tokens.stream import TokenBatch

    with ThreadPoolExecutor(1, thread_name_prefix="read-tokens") as reader:
        blocks = ahead(iter_token_blocks(path, 1 << 20, vocab_size=info.vocab_size), reader)
        for ids, ends in blocks:
            yield TokenBatch(ids, np.empty(0, np.int64) if concatenate else ends)
