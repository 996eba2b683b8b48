"""Corpora: whatever the user names is text, exactly, or one clear line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib.resources
import importlib.util
import io
import itertools
import json
import lzma
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lookup_tools.corpora import (
    Corpus,
    group_rows,
    hub,
    list_corpora,
    load_manifest,
    open_corpus,
)
from lookup_tools.corpora.manifests import parse_manifest
from lookup_tools.errors import CorpusError, ParameterError

in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def two_zstd_frames(data: bytes) -> bytes:
    half = len(data) // 2
    compress = zstandard.ZstdCompressor().compress
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    return skippable + compress(data[:half]) + skippable + compress(data[half:])


def long_window_zstd(data: bytes, log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=log, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(data) + compressor.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip, two members": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd, two frames": two_zstd_frames,
    "zstd, 2**27 window": lambda data: long_window_zstd(data, 27),
    "xz": lzma.compress,
    "xz, two streams": lambda data: lzma.compress(data[:9]) + lzma.compress(data[9:]),
}


def texts(corpus: Corpus) -> list[str]:
    return [document.text for document in corpus.documents()]


def message_of(corpus: Corpus) -> str:
    """The one line a broken corpus is refused with."""
    with pytest.raises(CorpusError) as caught:
        texts(corpus)
    message = str(caught.value)
    assert "\n" not in message
    return message


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def write_jsonl(path: Path, records: Iterable[Any]) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


# Files


@pytest.mark.parametrize("packer", PACKERS)
def test_compression_is_recognised_by_content(tmp_path: Path, packer: str) -> None:
    text = "Zwölf Boxkämpfer 🦊\r\n" * 3000
    path = write(tmp_path / "misnamed.txt", PACKERS[packer](text.encode()))
    corpus = open_corpus([path])
    assert texts(corpus) == [text]
    assert corpus.bytes_read == corpus.size_bytes == path.stat().st_size


@in_folder
@given(text=st.text(max_size=60), piece=st.integers(1, 9))
@example(text="\ufeffa\r\nb\rc\u2028d\x0b", piece=1)
def test_pieces_joined_are_the_text(tmp_path: Path, text: str, piece: int) -> None:
    text = text.replace("\0", "")
    path = write(tmp_path / "text", text)
    pieces = list(open_corpus([path]).pieces(piece))
    assert "".join(part.text for part in pieces) == text
    assert [part.ends_document for part in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(len(part.text.encode()) <= piece + 3 for part in pieces)


@in_folder
@given(data=st.binary(max_size=40), piece=st.integers(1, 9))
@example(data=b"\xe2\x82", piece=1)
def test_replacing_in_pieces_equals_replacing_at_once(
    tmp_path: Path, data: bytes, piece: int
) -> None:
    path = write(tmp_path / "text", b"." + data)
    corpus = open_corpus([path], errors="replace")
    joined = "".join(part.text for part in corpus.pieces(piece))
    assert joined == (b"." + data).decode(errors="replace")


@in_folder
@given(before=st.text(max_size=20), bad=st.sampled_from([b"\xff", b"\xc0\x80", b"\xed\xa0\x80"]))
def test_bytes_that_are_not_utf8_are_named_by_offset(
    tmp_path: Path, before: str, bad: bytes
) -> None:
    before = "." + before.replace("\0", "")
    path = write(tmp_path / "text", before.encode() + bad + b"after")
    for piece in (1, 3, 1000):
        with pytest.raises(CorpusError) as caught:
            list(open_corpus([path]).pieces(piece))
        message = str(caught.value)
        assert f"{path}: byte 0x{bad[0]:02x} at offset {len(before.encode())} " in message
        assert "--errors replace" in message


def test_a_character_cut_by_the_end_of_the_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "text", "abc🦊".encode()[:-1])
    assert "byte 0xf0 at offset 3 is not UTF-8" in message_of(open_corpus([path]))
    assert texts(open_corpus([path], errors="replace")) == ["abc\ufffd"]


def test_offsets_count_decompressed_bytes(tmp_path: Path) -> None:
    data = b"x" * 9_000_000 + b"\xff"
    path = write(tmp_path / "text.zst", zstandard.ZstdCompressor().compress(data))
    assert "at offset 9000000 is not UTF-8" in message_of(open_corpus([path]))


@pytest.mark.parametrize(
    "text",
    ["a\\nb", "<|endoftext|></s>", "\ufeffBOM", "tab\there\r\nand\rthere\n\n", "\u2028\x85", ""],
)
def test_row_15_text_is_not_rewritten(tmp_path: Path, text: str) -> None:
    assert texts(open_corpus([write(tmp_path / "text", text)])) == [text]


def test_row_16_several_files_are_several_documents(tmp_path: Path) -> None:
    files = [write(tmp_path / name, name * 2) for name in ("a", "b", "a")]
    empty = write(tmp_path / "empty", "")
    corpus = open_corpus([*files, empty])
    assert texts(corpus) == ["aa", "bb", "aa", ""]
    assert texts(corpus) == ["aa", "bb", "aa", ""]
    assert corpus.names == ("a", "b", "a", "empty")
    assert [source.size_bytes for source in corpus.sources] == [2, 2, 2, 0]
    assert next(document.source for document in corpus.documents()) == str(files[0])


def test_reading_is_lazy_and_progress_can_be_watched(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"x" * 3_000_000)
    corpus = open_corpus([path, path])
    assert (corpus.bytes_read, corpus.size_bytes) == (0, 6_000_000)
    pieces = corpus.pieces(1000)
    next(pieces)
    assert 0 < corpus.bytes_read < 1_000_000
    list(pieces)
    assert corpus.bytes_read == 6_000_000


class Dribble(io.RawIOBase):
    """A pipe that hands out one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 1))


@pytest.mark.parametrize("packer", PACKERS)
def test_standard_input(packer: str) -> None:
    corpus = open_corpus(["-"], stdin=Dribble(PACKERS[packer](b"some text, some more")))  # type: ignore[arg-type]
    assert corpus.names == ("stdin",)
    assert corpus.size_bytes is None
    assert texts(corpus) == ["some text, some more"]


def test_standard_input_is_read_once() -> None:
    corpus = open_corpus(["-"], stdin=io.BytesIO(b"once"))
    texts(corpus)
    assert "only once" in message_of(corpus)
    with pytest.raises(ParameterError, match="named twice"):
        open_corpus(["-", "-"])


def test_pipes_have_no_size(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    corpus = open_corpus([pipe])
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"through"))
    writer.start()
    assert texts(corpus) == ["through"]
    writer.join(10)
    assert corpus.size_bytes is None
    assert corpus.bytes_read == 7


@pytest.mark.parametrize("packer", [name for name in PACKERS if name != "plain"])
def test_cut_compressed_files_are_refused(tmp_path: Path, packer: str) -> None:
    data = PACKERS[packer](os.urandom(3000).hex().encode())
    for size in (len(data) - 1, len(data) - 9, len(data) // 3):
        message = message_of(open_corpus([write(tmp_path / "cut", data[:size])]))
        assert str(tmp_path / "cut") in message
        assert "ends early" in message


@pytest.mark.parametrize("packer", ["gzip", "zstd", "xz"])
def test_damaged_compressed_files_are_refused(tmp_path: Path, packer: str) -> None:
    data = bytearray(PACKERS[packer](b"some text " * 500))
    data[6:30] = b"\xa5" * 24
    message = message_of(open_corpus([write(tmp_path / "bad", bytes(data))]))
    assert f"{packer} data" in message


@in_folder
@given(
    packer=st.sampled_from(["gzip", "zstd, two frames", "xz"]),
    position=st.integers(0, 200),
    flip=st.integers(1, 255),
)
def test_any_changed_byte_gives_text_or_a_clear_error(
    tmp_path: Path, packer: str, position: int, flip: int
) -> None:
    data = bytearray(PACKERS[packer](b"some text, and some more of it " * 4))
    data[position % len(data)] ^= flip
    corpus = open_corpus([write(tmp_path / "changed", bytes(data))])
    with contextlib.suppress(CorpusError):
        texts(corpus)


def test_zstd_windows_above_128_mb_are_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "text.zst", long_window_zstd(b"text " * 100, 28))
    assert "--long=27" in message_of(open_corpus([path]))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"GGUF\3\0\0\0\0\0", "a GGUF model"),
        (b"PAR1\x15\4\x15\x90", "a parquet file"),
        (b"PK\3\4....", "a zip archive"),
        (bz2.compress(b"text"), "a bzip2 file"),
        (b"ggngcmap" + bytes(16), "a cache file"),
        (b"lttokens" + bytes(16), "a token file"),
        ("text".encode("utf-16"), "UTF-16 text"),
        (b"some\0bytes", "NUL byte at offset 4"),
        (gzip.compress(b"GGUF\3\0\0\0"), "a GGUF model"),
        (gzip.compress(gzip.compress(b"text")), "byte 0x8b at offset 1 is not UTF-8"),
    ],
)
@pytest.mark.parametrize("mode", ["file", "line"])
def test_row_03_binary_files_are_named_for_what_they_are(
    tmp_path: Path, data: bytes, found: str, mode: str
) -> None:
    path = write(tmp_path / "binary", data)
    message = message_of(open_corpus([path], documents=mode))
    assert found in message
    assert str(path) in message


def test_nul_bytes_are_kept_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"a\0b")
    assert texts(open_corpus([path], errors="replace")) == ["a\0b"]


def test_missing_files_and_empty_folders_are_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        open_corpus([tmp_path / "absent"])
    assert caught.value.filename == str(tmp_path / "absent")
    with pytest.raises(CorpusError, match="found no files"):
        open_corpus([tmp_path])


# Lines, records, chats


def test_lines_lose_their_ends_only(tmp_path: Path) -> None:
    path = write(tmp_path / "text", "\ufeffone\r\n\n two \u2028\x0b\n\r\nth\rree\n \nfour\r")
    expected = ["\ufeffone", " two \u2028\x0b", "th\rree", " ", "four\r"]
    assert texts(open_corpus([path], documents="line")) == expected


def test_offsets_in_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"one\ntwo\n\xfe\n")
    assert "byte 0xfe at offset 8 " in message_of(open_corpus([path], documents="line"))


@in_folder
@given(records=st.lists(st.text(max_size=20), max_size=6))
def test_row_16_json_records_are_documents(tmp_path: Path, records: list[str]) -> None:
    path = write_jsonl(tmp_path / "records", [{"text": text, "other": 1} for text in records])
    for arguments in ({"documents": "jsonl:text"}, {"documents": "jsonl", "field": "text"}):
        assert texts(open_corpus([path], **arguments)) == records  # type: ignore[arg-type]
    ends = [piece.ends_document for piece in open_corpus([path], documents="jsonl:text").pieces()]
    assert ends == [True] * len(records)


def test_a_byte_order_mark_and_blank_lines_are_no_records(tmp_path: Path) -> None:
    path = write(tmp_path / "records", '\ufeff{"t": "a"}\r\n\r\n  \n{"t": "b"}')
    assert texts(open_corpus([path], documents="jsonl:t")) == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "JSON list"),
        ('"text"', "JSON str"),
        ('{"other": 1, "more": 2}', "no field 'text': the record has more, other"),
        ('{"text": 5}', "field 'text' is int"),
        ('{"text": null}', "field 'text' is NoneType"),
        ('{"text": "\\ud800"}', "unpaired surrogate"),
    ],
)
def test_bad_records_are_named_by_file_and_line(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "records", '{"text": "good"}\n\n' + line + "\n")
    message = message_of(open_corpus([path], documents="jsonl:text"))
    assert message.startswith(f"{path}:3: ")
    assert reason in message


def test_surrogates_are_replaced_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "records", '{"text": "a\\ud800b\\ud83e\\udd8a"}\n')
    corpus = open_corpus([path], documents="jsonl:text", errors="replace")
    assert texts(corpus) == ["a\ufffdb🦊"]


def render(messages: list[dict[str, Any]], tools: Any) -> str:
    said = "".join(f"<{message['role']}>{message.get('content')}" for message in messages)
    return f"{tools}{said}" if tools else said


def test_chats_are_rendered_by_the_caller(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    path = write_jsonl(
        tmp_path / "chats",
        [
            {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]},
            {"messages": [{"role": "user", "content": parts}, call], "id": 7},
            {"messages": [{"role": "user", "content": "u"}], "tools": [{"name": "t"}]},
            {"messages": [{"role": "user", "content": "u"}], "tools": None},
        ],
    )
    corpus = open_corpus([path], documents="chat", render_chat=render)
    assert texts(corpus) == [
        "<user>hi<assistant>",
        f"<user>{parts}<assistant>None",
        "[{'name': 't'}]<user>u",
        "<user>u",
    ]
    assert corpus.control_tokens


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, "expected {"),
        ({"messages": []}, "at least one"),
        ({"messages": "hi"}, "expected {"),
        ({"messages": ["hi"]}, 'message 1: expected an object with a "role"'),
        ({"messages": [{"role": "user", "content": "a"}, {"content": "b"}]}, "message 2"),
        ({"messages": [{"role": "user"}]}, 'found no "content"'),
        ({"messages": [{"role": "user", "content": 3}]}, "int, expected a string"),
        ({"messages": [{"role": "user", "content": "a"}], "tools": {}}, '"tools" is no list'),
        ({"messages": [{"role": "user", "content": "a"}], "tools": ["a"]}, '"tools" is no list'),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "'image_url'"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "'str'"),
    ],
)
def test_bad_chats_are_named_by_file_and_line(tmp_path: Path, record: Any, reason: str) -> None:
    path = write_jsonl(tmp_path / "chats", [record])
    message = message_of(open_corpus([path], documents="chat", render_chat=render))
    assert message.startswith(f"{path}:1: ")
    assert reason in message


def test_a_template_that_refuses_is_named_by_file_and_line(tmp_path: Path) -> None:
    def refuse(messages: list[dict[str, Any]], tools: Any) -> str:
        raise ValueError("roles must alternate")

    path = write_jsonl(tmp_path / "chats", [{"messages": [{"role": "user", "content": "a"}]}])
    message = message_of(open_corpus([path], documents="chat", render_chat=refuse))
    assert f"{path}:1: the chat template refuses this transcript: roles must alternate" in message


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "either text files or a dataset"),
        ({"files": ["-"], "dataset": "python-topics"}, "either text files or a dataset"),
        ({"files": ["-"], "documents": "paragraph"}, "expected file, line, jsonl:FIELD, parquet"),
        ({"files": ["-"], "documents": "line:x"}, "expected file, line, jsonl:FIELD, parquet"),
        ({"files": ["-"], "documents": "jsonl"}, "needs a field"),
        ({"files": ["-"], "documents": "jsonl:"}, "needs a field"),
        ({"files": ["-"], "documents": "chat"}, "needs a chat template"),
        ({"files": ["-"], "errors": "ignore"}, "expected strict or replace"),
        ({"dataset": "python-topics", "documents": "line"}, "is for files"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        open_corpus(**arguments)


def test_pieces_have_at_least_one_byte(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="piece_bytes is 0"):
        list(open_corpus([write(tmp_path / "text", "a")]).pieces(0))


# Manifests and named corpora


def test_every_manifest_is_valid() -> None:
    assert {"python-topics", "wikitext-103", "wikitext-2"} <= set(list_corpora())
    for name in list_corpora():
        manifest = load_manifest(name)
        assert manifest.title
        assert manifest.licence != "unknown"
        assert manifest.homepage.startswith("https://")


def test_wikitext_103_is_the_hub_s() -> None:
    manifest = load_manifest("wikitext-103")
    assert (manifest.path, manifest.config) == ("Salesforce/wikitext", "wikitext-103-raw-v1")
    assert manifest.splits["train"].rows == 1_801_350
    assert list(manifest.splits) == ["train", "validation", "test"]


@pytest.mark.parametrize("name", ["wikitext-104", "../corpora/wikitext-2", ""])
def test_unknown_corpora_list_the_known_ones(name: str) -> None:
    with pytest.raises(CorpusError, match=r"unknown corpus .* python-topics, wikitext-103"):
        load_manifest(name)


def test_unknown_splits_list_the_known_ones() -> None:
    with pytest.raises(CorpusError, match="no split 'dev': known are train, validation, test"):
        open_corpus(dataset="wikitext-103", split="dev")


GOOD_MANIFEST = """
name = "x"
title = "X"
source = "hub"
default_split = "train"
[hub]
path = "a/x"
[splits.train]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[splits.train]", ""),
        ('name = "x"', 'name = "y"'),
        ('name = "x"', ""),
        ('"hub"', '"ftp"'),
        ('default_split = "train"', 'default_split = "dev"'),
        ('path = "a/x"', ""),
        ('title = "X"', 'title = "X"\nrows = "odd"'),
        ('title = "X"', 'title = "X"\nunheard_of = 1'),
        ("[splits.train]", "[splits.train]\nlines = 4"),
        ("[hub]", "[hub"),
    ],
)
def test_manifests_are_checked(old: str, new: str) -> None:
    parse_manifest(GOOD_MANIFEST, "x")
    with pytest.raises(CorpusError, match=r"manifest x: .*docs/corpora.md"):
        parse_manifest(GOOD_MANIFEST.replace(old, new, 1), "x")


def test_manifests_inside_the_package_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_corpora").mkdir()
    write(tmp_path / "_corpora" / "x.toml", GOOD_MANIFEST)
    monkeypatch.setattr(importlib.resources, "files", lambda package: tmp_path)
    assert list_corpora() == ["x"]
    assert load_manifest("x").path == "a/x"


def test_python_topics_are_split_for_good() -> None:
    splits = {
        name: texts(open_corpus(dataset="python-topics", split=name))
        for name in ("all", "train", "test")
    }
    assert splits["test"] == splits["all"][7::8]
    assert [text for text in splits["all"] if text not in set(splits["test"])] == splits["train"]
    assert texts(open_corpus(dataset="python-topics")) == splits["train"]
    corpus = open_corpus(dataset="python-topics", split="all")
    assert corpus.names == ("python-topics:all",)
    assert sum(len(document.text.encode()) for document in corpus.documents()) == corpus.bytes_read
    assert corpus.bytes_read > 300_000


def test_python_topics_need_no_copy_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ParameterError, match="comes with Python"):
        texts(open_corpus(dataset="python-topics", dataset_path=tmp_path))
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert "no pydoc_data.topics" in message_of(open_corpus(dataset="python-topics"))


# Rows to documents

ROWS = [
    "", " = One = \n", "", " First . \n", " = x = \n", "", " = = Section = = \n", "", " More . \n",
    "", "", " = Two = \n", "", " = 5 = 5 = \n", "",
]  # fmt: skip
ARTICLES = ["".join(ROWS[:11]), "".join(ROWS[11:13]), "".join(ROWS[13:])]


def test_articles_begin_at_headings_after_blank_rows() -> None:
    assert list(group_rows(ROWS, "articles")) == ARTICLES
    assert list(group_rows([" = One = ", " a"], "articles")) == [" = One =  a"]


@given(rows=st.lists(st.sampled_from(["", " \n", " = A = \n", " = = B = = \n", " text \n"])))
def test_grouping_neither_adds_nor_drops(rows: list[str]) -> None:
    for how in ("articles", "joined", "each"):
        assert "".join(group_rows(rows, how)) == "".join(rows)
    assert len(list(group_rows(rows, "joined"))) == bool(rows)


# Local copies


def write_parquet(folder: Path, name: str, rows: Sequence[Any], column: str = "text") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: rows}), folder / name, row_group_size=4)


def write_arrow(folder: Path, name: str, rows: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": rows})
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)


def hub_layout(folder: Path) -> None:
    config = folder / "wikitext-103-raw-v1"
    write_parquet(config, "train-00000-of-00002.parquet", ROWS[:5])
    write_parquet(config, "train-00001-of-00002.parquet", ROWS[5:])
    write_parquet(config, "test-00000-of-00001.parquet", ["wrong"])


def converted_layout(folder: Path) -> None:
    write_parquet(folder / "wikitext-103-raw-v1" / "train", "0000.parquet", ROWS)


def cached_layout(folder: Path) -> None:
    write_arrow(folder, "wikitext-train.arrow", ROWS)
    write_arrow(folder, "wikitext-test.arrow", ["wrong"])


def saved_split(folder: Path) -> None:
    datasets.Dataset.from_dict({"text": ROWS}).save_to_disk(str(folder))


def saved_splits(folder: Path) -> None:
    train = datasets.Dataset.from_dict({"text": ROWS})
    datasets.DatasetDict({"train": train, "test": train.select([0])}).save_to_disk(str(folder))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing may ask the network, and the machine's own Hub cache is out of sight."""
    monkeypatch.setattr(hub, "_cached_snapshot", lambda manifest: None)

    def refuse(*arguments: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(hub, "_probe", refuse)


@pytest.fixture
def no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hub that answers, and no cache of it."""
    monkeypatch.setattr(hub, "_cached_snapshot", lambda manifest: None)
    monkeypatch.setattr(hub, "_probe", lambda manifest, split: None)


LAYOUTS = [hub_layout, converted_layout, cached_layout, saved_split, saved_splits]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("offline")
def test_local_copies(tmp_path: Path, layout: Callable[[Path], None]) -> None:
    layout(tmp_path)
    corpus = open_corpus(dataset="wikitext-103", dataset_path=tmp_path)
    assert texts(corpus) == ARTICLES
    assert corpus.bytes_read == len("".join(ROWS))
    assert corpus.notes == ["wikitext-103:train: read 15 rows, expected 1,801,350"]


@pytest.mark.usefixtures("offline")
def test_copies_without_a_manifest(tmp_path: Path) -> None:
    write_parquet(tmp_path / "mine" / "data", "train.parquet", ["a", "b"], column="body")
    write_parquet(tmp_path / "mine" / "small", "train.parquet", ["c"], column="body")
    mine = tmp_path / "mine"
    corpus = open_corpus(dataset_path=mine, documents="jsonl:body")
    assert corpus.names == ("mine:train",)
    assert texts(corpus) == ["a", "b"]
    assert texts(open_corpus(dataset_path=mine, dataset_config="small", field="body")) == ["c"]
    single = open_corpus(dataset_path=mine / "data" / "train.parquet", field="body")
    assert texts(single) == ["a", "b"]


@pytest.mark.usefixtures("offline")
def test_broken_copies_are_one_line(tmp_path: Path) -> None:
    def refused(split: str) -> str:
        return message_of(open_corpus(dataset_path=tmp_path, split=split))

    write_parquet(tmp_path, "short-00001-of-00003.parquet", ["a"])
    assert "found 1 of 3 shards, number 00000 is missing" in refused("short")
    write_parquet(tmp_path, "null.parquet", ["a", None])
    assert "row 2 is NoneType" in refused("null")
    write_parquet(tmp_path, "other.parquet", ["a"], column="body")
    assert "no column 'text', expected one of body" in refused("other")
    write(tmp_path / "bad.parquet", b"PAR1 nothing PAR1")
    assert "cannot be read" in refused("bad")
    assert "no split 'dev'" in refused("dev")
    assert "found bad.parquet, null.parquet" in refused("dev")
    with pytest.raises(CorpusError, match="text goes to -f"):
        texts(open_corpus(dataset_path=write(tmp_path / "text.txt", "a")))
    with pytest.raises(FileNotFoundError):
        texts(open_corpus(dataset_path=tmp_path / "absent"))


def test_the_hub_client_s_cache_is_used_before_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_layout(tmp_path)
    monkeypatch.setattr(hub, "_cached_snapshot", lambda manifest: tmp_path)
    assert texts(open_corpus(dataset="wikitext-103")) == ARTICLES


@pytest.mark.usefixtures("no_copy")
def test_the_hub_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_dataset(*arguments: Any, **options: Any) -> Any:
        asked.append((arguments, options))
        return datasets.Dataset.from_dict({"text": ROWS}).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert texts(open_corpus(dataset="wikitext-103", split="validation")) == ARTICLES
    expected = ("Salesforce/wikitext", "wikitext-103-raw-v1")
    assert asked == [(expected, {"split": "validation", "streaming": True})]


@pytest.mark.usefixtures("no_copy")
def test_a_network_that_fails_later_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> Iterable[dict[str, str]]:
        yield {"text": "a"}
        raise ConnectionError("reset\nby peer")

    broken = datasets.IterableDataset.from_generator(rows)
    monkeypatch.setattr(datasets, "load_dataset", lambda *arguments, **options: broken)
    message = message_of(open_corpus(dataset="owner/name"))
    assert message.startswith("owner/name train: cannot be read: reset by peer")


def test_row_03_without_network_and_copy_there_is_one_line_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}")
    started = time.monotonic()
    message = message_of(open_corpus(dataset="wikitext-103"))
    assert time.monotonic() - started < 10
    assert "cannot be reached" in message
    assert "hf download Salesforce/wikitext --repo-type dataset" in message
    assert "--dataset-path DIR" in message
    assert capfd.readouterr() == ("", "")


def test_row_03_the_offline_switch_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(hub, "_cached_snapshot", lambda manifest: None)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in message_of(open_corpus(dataset="owner/name"))


def test_without_the_datasets_package_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install datasets" in message_of(open_corpus(dataset="wikitext-2"))


# Synthetic text


@pytest.fixture(scope="module")
def synth() -> ModuleType:
    path = Path(__file__).parents[1] / "scripts" / "synth_corpus.py"
    spec = importlib.util.spec_from_file_location("synth_corpus", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["synth_corpus"] = module
    spec.loader.exec_module(module)
    return module


def test_synthetic_text_has_the_followers_of_the_sample(synth: ModuleType) -> None:
    bigrams = synth.measure("a b a b a c é\n")
    size = 3_000_000
    text = b"".join(synth.sample(bigrams, size, seed=1)).decode()
    assert size - 3 <= len(text.encode()) <= size
    words = text.split()
    # Where two chains meet, once in 4096 words, any two words may.
    counts = dict.fromkeys(("ab", "ac", "cé", "éa", "ba"), 0)
    others = 0
    for first, second in itertools.pairwise(words):
        if first + second in counts:
            counts[first + second] += 1
        else:
            others += 1
    assert others < len(words) / 1000
    assert 1.9 < counts["ab"] / counts["ac"] < 2.1


def test_synthetic_text_depends_on_the_seed_alone(synth: ModuleType) -> None:
    bigrams = synth.measure("one two one three one")
    first, again, other = (b"".join(synth.sample(bigrams, 5000, seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("text", "size"), [("12", 12), ("1.5k", 1500), ("2M", 2_000_000), ("1GB", 10**9)]
)
def test_sizes(synth: ModuleType, text: str, size: int) -> None:
    assert synth.parse_size(text) == size
    for wrong in ("", "M", "-1", "1X", "1e3"):
        with pytest.raises(ParameterError):
            synth.parse_size(wrong)
