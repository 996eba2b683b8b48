"""Any bytes as a GGUF file, or a good one with some keys changed: read, opened, encoded with."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

from fuzz.parts import EXPECTED, Input, write
from lookup_tools.tokenizers import open_tokenizer
from lookup_tools.tokenizers.bytelevel import BYTE_TO_CHAR
from lookup_tools.tokenizers.gguf_metadata import read_metadata

I32, F32, BOOL, STRING, ARRAY = 5, 6, 7, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
Value = tuple[int, bytes]  # GGUF type, encoded value

TEXTS = ("", "Hello  world's 123\r\n", "naïve \u2581 <|im_end|><0x41> 語\U0001f600", "a" * 40)
MERGES = ("t h", "th e", "Ġ the", "Ġ a", "a b", "1 2")
WORDS = ("<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581a", "\u2581ab", "<|im_end|>")


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def array(kind: int, count: int, elements: bytes) -> Value:
    return ARRAY, struct.pack("<IQ", kind, count) + elements


def strings(values: list[str]) -> Value:
    return array(STRING, len(values), b"".join(map(text, values)))


def good_keys(model: str) -> dict[str, Value]:
    """A small vocabulary: byte-level or SentencePiece-like."""
    if model == "gpt2":
        tokens = [*BYTE_TO_CHAR.values(), *(m.replace(" ", "") for m in MERGES), "<|im_end|>"]
    else:
        tokens = [*WORDS, *(f"<0x{byte:02X}>" for byte in range(256))]
    n = len(tokens)
    return {
        "general.architecture": (STRING, text("llama")),
        "general.name": (STRING, text("fuzzed")),
        "tokenizer.ggml.model": (STRING, text(model)),
        "tokenizer.ggml.pre": (STRING, text("gpt-2")),
        "tokenizer.ggml.tokens": strings(tokens),
        "tokenizer.ggml.token_type": array(I32, n, struct.pack(f"<{n}i", *[1] * (n - 1), 3)),
        "tokenizer.ggml.scores": array(F32, n, struct.pack(f"<{n}f", *range(n))),
        "tokenizer.ggml.merges": strings(list(MERGES)),
        "tokenizer.ggml.bos_token_id": (4, struct.pack("<I", 1)),
        "tokenizer.ggml.eos_token_id": (4, struct.pack("<I", 2)),
        "tokenizer.ggml.eot_token_id": (4, struct.pack("<I", n - 1)),
        "tokenizer.ggml.unknown_token_id": (4, struct.pack("<I", 0)),
        "tokenizer.ggml.add_space_prefix": (BOOL, b"\1"),
        "tokenizer.chat_template": (STRING, text("{{ messages }}")),
    }


def whole(keys: dict[str, Value], version: int = 3, count: int | None = None) -> bytes:
    """A file with these keys and no tensors; `count` is how many it claims."""
    head = b"GGUF" + struct.pack("<IQQ", version, 0, len(keys) if count is None else count)
    pairs = [text(key) + struct.pack("<I", kind) + data for key, (kind, data) in keys.items()]
    return head + b"".join(pairs)


PRES = ("default", "gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "none such")


def take_value(given: Input) -> Value:
    """A value of any type, good or not."""
    how = given.byte()
    if how < 64:
        return how % 16, given.bytes(how % 9)
    if how < 96:
        return STRING, text(given.bytes(how % 32).decode("utf-8", "surrogateescape"))
    if how < 128:
        return STRING, text(PRES[how % len(PRES)])
    count = given.byte()
    if how < 192:
        values = [given.bytes(given.byte() % 12) for _ in range(count % 32)]
        return strings([value.decode("utf-8", "surrogateescape") for value in values])
    kind = how % 13
    return array(kind, count * (how % 3), given.bytes(count * (1 + how % 8)))


def replace_part(given: Input, value: Value) -> Value:
    """One element of an array of numbers or a piece of a string changed, its size kept."""
    data = bytearray(value[1])
    at = given.number(2) % max(1, len(data))
    part = given.bytes(1 + given.byte() % 8)
    data[at : at + len(part)] = part[: len(data) - at]
    return value[0], bytes(data)


def long_array(given: Input) -> Value:
    """As many numbers as any vocabulary here has tokens, of any type, all the same."""
    kind = given.byte() % 13
    if kind in (STRING, ARRAY):
        kind = F32
    pattern = given.bytes(SIZES[kind])
    return array(kind, 300, 300 * pattern)


def assembled(given: Input) -> bytes:
    keys = good_keys("gpt2" if given.byte() & 1 else "llama")
    for _ in range(given.byte() % 6):
        name = list(keys)[given.byte() % len(keys)]
        what = given.byte() % 8
        if what == 0:
            del keys[name]
        elif what < 4:
            keys[name] = replace_part(given, keys[name])
        elif what == 4:
            keys[name] = long_array(given)
        else:
            keys[name] = take_value(given)
        if not keys:
            break
    missing = given.byte() == 255
    return whole(keys, 2 + given.byte() % 2, len(keys) + missing)


def use(path: Path, encode: bool) -> None:
    tokenizer = open_tokenizer(path)
    assert len(tokenizer.fingerprint) == 32
    assert tokenizer.name
    for token in range(tokenizer.vocab_size):
        tokenizer.token_bytes(token)
    if not encode:  # building an encoder takes a hundred times as long as reading the file
        return
    for parse_special in (False, True):
        ids, lengths = tokenizer.encode_batch(TEXTS, parse_special=parse_special)
        assert ids.size == lengths.sum()
        assert not ids.size or (ids.min() >= 0 and ids.max() < tokenizer.vocab_size)
        tokenizer.decode(ids)


def check(data: bytes, folder: Path) -> None:
    """Only errors of ours may come out."""
    given = Input(data)
    how = given.byte()
    path = write(folder, "model.gguf", assembled(given) if how & 1 else given.rest())
    try:
        read_metadata(path)
    except EXPECTED:
        return
    with contextlib.suppress(*EXPECTED):
        use(path, how % 8 >= 6)
