"""The bytes of a token file, one function a part; docs/format.md has the table.

head   "lttokens" | u32 version | u32 id width | u64 m | m bytes of JSON
block  u32 n | u32 e | n ids | e x u32 document ends inside the block
...
foot   u32 0xffffffff | u32 0 | u64 tokens | u64 documents | SHA-256 of the ids
       | SHA-256 of all bytes before it | "lttokend"
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from lookup_tools.errors import FormatError
from lookup_tools.tokens.stream import Ends, Ids, TokenInfo

MAGIC = b"lttokens"
END_MAGIC = b"lttokend"
VERSION = 1
# A block is what a reader holds at least; the number is part of the format, so that the same
# tokens are the same bytes however they were appended.
BLOCK_TOKENS = 1 << 20
MAX_META_BYTES = 1 << 20
END_MARK = 0xFFFFFFFF

HEAD = struct.Struct("<8sIIQ")
BLOCK = struct.Struct("<II")
FOOT = struct.Struct("<QQ32s")
DIGEST_BYTES = 32


def width_for(vocab_size: int) -> int:
    """Bytes of an id: 2 when every id fits, else 4."""
    return 2 if vocab_size <= 1 << 16 else 4


def dtype_of(width: int) -> np.dtype[Any]:
    return np.dtype("<u2" if width == 2 else "<u4")


def encode_head(info: TokenInfo, width: int) -> bytes:
    meta = {
        "corpora": list(info.corpora),
        "fingerprint": info.fingerprint,
        "tokenizer": info.tokenizer,
        "vocab_size": info.vocab_size,
    }
    if info.text_fingerprint is not None:
        meta["text_fingerprint"] = info.text_fingerprint
    text = json.dumps(meta, ensure_ascii=False, sort_keys=True).encode()
    return HEAD.pack(MAGIC, VERSION, width, len(text)) + text


def decode_meta(text: bytes, name: str) -> TokenInfo:
    """The JSON of the head; every field is checked, unknown ones are left for later versions."""
    try:
        meta = json.loads(text)
        size, corpora = meta["vocab_size"], meta["corpora"]
        fingerprint, tokenizer = meta["fingerprint"], meta["tokenizer"]
        by_text = meta.get("text_fingerprint")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(
            f"{name}: the description in the head is not readable: {error}"
        ) from error
    texts = [each for each in (fingerprint, tokenizer, by_text) if each is not None]
    texts += corpora if isinstance(corpora, list) else [None]
    if type(size) is not int or not 0 < size <= 1 << 31 or not all(map(_is_text, texts)):
        raise FormatError(f"{name}: the description in the head has a field of the wrong kind")
    return TokenInfo(size, fingerprint, tokenizer, tuple(corpora), by_text)


def _is_text(value: object) -> bool:
    """A string that can be shown: JSON may spell halves of characters."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def encode_block(ids: bytes, n_tokens: int, ends: Ends) -> bytes:
    return BLOCK.pack(n_tokens, len(ends)) + ids + ends.astype("<u4").tobytes()


def encode_foot(n_tokens: int, n_documents: int, ids_digest: bytes) -> bytes:
    """Everything of the foot that the file's own digest covers."""
    return BLOCK.pack(END_MARK, 0) + FOOT.pack(n_tokens, n_documents, ids_digest)


def check_ids(stored: Any, vocab_size: int | None, name: str, first: int) -> Ids:
    """Stored ids as int32; `first` is the position of the first one, for the message.

    Raises:
        FormatError: an id outside the vocabulary, or not below 2**31.
    """
    limit = vocab_size if vocab_size is not None else 1 << 31
    if stored.size and int(stored.max()) >= limit:
        position = int(np.argmax(stored >= limit))
        raise FormatError(
            f"{name}: id {int(stored[position])} at position {first + position}, expected ids "
            f"below {limit}: another vocabulary's tokens, or another id width?"
        )
    return np.ascontiguousarray(stored, np.int32)


def check_ends(stored: Any, n_tokens: int, name: str) -> Ends:
    ends = stored.astype(np.int64)
    if ends.size and (ends[-1] > n_tokens or np.any(ends[1:] < ends[:-1])):
        raise FormatError(f"{name}: document ends do not rise inside their block: damaged file")
    return np.asarray(ends, np.int64)
