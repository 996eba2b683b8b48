"""Tokenizers: one ``open_tokenizer(path)`` for GGUF files and for ``tokenizer.json``."""

from __future__ import annotations

import os

from lookup_tools.errors import TokenizerError
from lookup_tools.tokenizers.gguf_vocabulary import load_gguf
from lookup_tools.tokenizers.json_vocabulary import load_json
from lookup_tools.tokenizers.tokenizer import Tokenizer

__all__ = ["Tokenizer", "open_tokenizer"]

# First bytes of files that people give by mistake.
_OTHERS = (
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"PK\x03\x04", "a zip file"),
    (b"ggngcmap", "an n-gram cache (constmap)"),
    (b"ggngcmp2", "an n-gram cache (constmap2)"),
    (b"VMAP0001", "a bare constmap"),
    (b"VCMP0002", "a bare constmap"),
)


def open_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Open the vocabulary of a model: a GGUF file or a Hugging Face ``tokenizer.json``.

    Only metadata is read, never weights. Cost: some 0.2 us a token; the encoder is built when it
    is first used.

    Raises:
        OSError: the file cannot be opened.
        FormatError: a GGUF file that breaks its format (``TruncatedError``: that ends too early).
        TokenizerError: another kind of file, no vocabulary in it, or one that is not supported.
    """
    with open(path, "rb") as file:
        head = file.read(64)
    if head[:4] == b"GGUF":
        return Tokenizer(load_gguf(path))
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return Tokenizer(*load_json(path))
    raise TokenizerError(
        f"{os.fspath(path)}: found {_describe(head)}, expected a GGUF file or a tokenizer.json; "
        "give the model's vocabulary with -m"
    )


def _describe(head: bytes) -> str:
    if not head:
        return "an empty file"
    for magic, name in _OTHERS:
        if head.startswith(magic):
            return name
    return "a file that is neither"
