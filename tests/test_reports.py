"""Faults that others reported of programs like this one, a test or more for each kind."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from helpers import TEXT, run

from lookup_tools.corpora import open_corpus
from lookup_tools.errors import CorpusError, TokenizerError
from lookup_tools.tokenizers import open_tokenizer

ONE, TWO = b"the first half, ", b"the second half"


def read(path: Path) -> bytes:
    corpus = open_corpus([path])
    return "".join(piece.text for piece in corpus.pieces(7)).encode()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "corpus"
    path.write_bytes(data)
    return path


# ---- silent loss in compressed files


@pytest.mark.parametrize("between", [0, 4, 8, 4096, 4100])
@pytest.mark.parametrize("behind", [0, 4, 12, 8192])
def test_row_01_all_xz_streams_are_read_padding_or_not(
    tmp_path: Path, between: int, behind: int
) -> None:
    data = lzma.compress(ONE) + bytes(between) + lzma.compress(TWO) + bytes(behind)
    assert read(written(tmp_path, data)) == ONE + TWO


@pytest.mark.parametrize("check", [lzma.CHECK_NONE, lzma.CHECK_CRC32, lzma.CHECK_SHA256])
def test_row_01_xz_streams_of_any_check_empty_ones_too(tmp_path: Path, check: int) -> None:
    parts = [ONE, b"", TWO * 100_000]
    data = b"".join(lzma.compress(part, check=check) for part in parts)
    assert read(written(tmp_path, data)) == b"".join(parts)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "xz": lzma.compress,
    "gzip": gzip.compress,
    "zstd": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize("junk", [b"junk", b"j", b"junk" * 3000, b"\0\0\0\0junk"])
def test_row_01_junk_behind_a_stream_is_an_error(tmp_path: Path, name: str, junk: bytes) -> None:
    path = written(tmp_path, COMPRESSIONS[name](ONE) + junk)
    with pytest.raises(CorpusError, match=f"{name} data"):
        read(path)


@pytest.mark.parametrize("padding", [1, 2, 3, 5, 4097])
def test_row_01_xz_padding_that_is_no_multiple_of_four(tmp_path: Path, padding: int) -> None:
    for rest in (b"", lzma.compress(TWO)):
        with pytest.raises(CorpusError, match="no multiple of 4"):
            read(written(tmp_path, lzma.compress(ONE) + bytes(padding) + rest))


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_row_01_damage_in_the_second_stream_is_an_error(tmp_path: Path, name: str) -> None:
    compress = COMPRESSIONS[name]
    first, second = compress(ONE), compress(TWO)
    for size in range(1, len(second)):
        with pytest.raises(CorpusError):
            read(written(tmp_path, first + second[:size]))
    for at in (0, len(second) // 2, len(second) - 5):
        changed = bytearray(second)
        changed[at] ^= 0x55
        with pytest.raises(CorpusError):
            read(written(tmp_path, first + changed))


def test_row_01_no_output_from_half_a_corpus(tmp_path: Path, model: Path) -> None:
    path = written(tmp_path, lzma.compress(TEXT.encode()) + b"junk")
    out = tmp_path / "out"
    result = run("create", "-m", model, "-f", path, "-o", out, code=1)
    assert str(path) in result.stderr
    assert not out.exists()


def test_row_16_a_zstd_file_made_with_a_dictionary(tmp_path: Path) -> None:
    trained = zstandard.train_dictionary(2000, [f"{TEXT}{n}".encode() for n in range(200)])
    data = zstandard.ZstdCompressor(dict_data=trained).compress(TEXT.encode())
    with pytest.raises(CorpusError, match="compress again without one"):
        read(written(tmp_path, data))


# ---- plain text taken for a binary


@pytest.mark.parametrize(
    "text",
    [
        "GGUF is a file format for models. GGUF is new.\n",
        "BZhang wrote this text.",
        "PAR1 and PAR2 files repair archives.\n",
        "ARROW1 begins every arrow file",
        "%PDF-1.7 is how a PDF document begins",
        "lttokens is a magic\n",
        "ggngcmap",
        "GGUF",
        "PAR1 und \u00fcberhaupt\tein Text\x0c\n",
        "BZh91AY&SY " + "\u20ac" * 3000,
    ],
)
@pytest.mark.parametrize("documents", ["file", "line"])
def test_row_08_words_at_the_start_of_a_text_are_text(
    tmp_path: Path, text: str, documents: str
) -> None:
    corpus = open_corpus([written(tmp_path, text.encode())], documents=documents)
    assert "".join(piece.text for piece in corpus.pieces()).rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"GGUF\x03\0\0\0", "a GGUF model"),
        (b"PAR1\x15\x04\x15\x80", "a parquet file"),
        (b"ARROW1\0\0\xff\xff", "an arrow file"),
        (bz2.compress(b"some text"), "a bzip2 file"),
        (b"%PDF-1.4\n1 0 obj\n", "a PDF document"),
        (b"ggngcmap\x01\0\0\0\0\0\0\0", "a cache file"),
        (b"lttokens\x01\0\0\0", "a token file"),
    ],
)
def test_row_08_binaries_are_still_named(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(CorpusError, match=what):
        read(written(tmp_path, data))


# ---- chat_template.jinja beside the tokenizer

SPEAKERS = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}"


def beside(model: Path, folder: Path, template: bytes | None, config: str | None) -> Path:
    path = folder / "tokenizer.json"
    shutil.copy(model, path)
    if template is not None:
        (folder / "chat_template.jinja").write_bytes(template)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": config}))
    return path


@pytest.mark.parametrize("config", [None, "of the configuration"])
@pytest.mark.parametrize("template", [SPEAKERS, "{# \u00fc #}" + SPEAKERS + "\n"])
def test_row_11_chat_template_jinja_is_found_and_goes_first(
    tmp_path: Path, model: Path, template: str, config: str | None
) -> None:
    path = beside(model, tmp_path, template.encode(), config)
    assert open_tokenizer(path).chat_template == template


def test_row_11_without_it_the_configuration_has_the_word(tmp_path: Path, model: Path) -> None:
    path = beside(model, tmp_path, None, SPEAKERS)
    assert open_tokenizer(path).chat_template == SPEAKERS


def test_row_11_a_template_that_is_not_utf8_is_named(tmp_path: Path, model: Path) -> None:
    path = beside(model, tmp_path, b"caf\xe9", None)
    with pytest.raises(TokenizerError, match=r"chat_template\.jinja.*not UTF-8"):
        open_tokenizer(path)


def test_row_11_transcripts_become_a_cache(tmp_path: Path, model: Path) -> None:
    path = beside(model, tmp_path, SPEAKERS.encode(), None)
    messages = [
        {"role": "user", "content": "the house"},
        {"role": "assistant", "content": "the end of the road"},
    ]
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"messages": messages}) + "\n")
    out = tmp_path / "out"
    run(
        "create", "-m", path, "-f", chat, "--documents", "chat", "--kind", "dynamic", "-o", out
    )  # fmt: skip
    assert out.stat().st_size
