"""Token files: what is written comes back, and nothing else is accepted."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lookup_tools.errors import (
    ChecksumError,
    FormatError,
    ParameterError,
    TokenizerMismatchError,
    TruncatedError,
)
from lookup_tools.tokens import (
    TokenInfo,
    TokenStream,
    TokenWriter,
    iter_token_blocks,
    layout,
    load_tokens,
    read_token_info,
    save_tokens,
)

documents_of_ids = st.lists(
    hnp.arrays(np.int32, st.integers(0, 12), elements=st.integers(0, 999)), max_size=8
)
small_blocks = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(params=["tokens.u16", "tokens.u16.zst"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored blocks of 4 tokens, so that small examples have many seams."""
    monkeypatch.setattr(layout, "BLOCK_TOKENS", 4)


def stream_of(*documents: list[int], vocab_size: int = 1000) -> TokenStream:
    arrays = [np.array(document, np.int32) for document in documents]
    info = TokenInfo(vocab_size, "f" * 64, "tiny", ("a.txt", "b.txt"))
    return TokenStream.from_documents(arrays, info)


def as_lists(stream: TokenStream) -> list[list[int]]:
    return [document.tolist() for document in stream.documents()]


@small_blocks
@given(documents=documents_of_ids)
def test_documents_come_back(
    tmp_path: Path, tiny_blocks: None, name: str, documents: list[np.ndarray]
) -> None:
    stream = TokenStream.from_documents(documents, TokenInfo(1000, "abc", "tiny", ("x",)))
    save_tokens(tmp_path / name, stream, force=True)
    read = load_tokens(tmp_path / name)
    assert as_lists(read) == [document.tolist() for document in documents]
    assert read.info == stream.info
    assert read.ids.dtype == np.int32
    assert read.ids.flags.c_contiguous


@small_blocks
@given(documents=documents_of_ids, block=st.integers(1, 9))
def test_blocks_joined_are_the_stream(
    tmp_path: Path, tiny_blocks: None, documents: list[np.ndarray], block: int
) -> None:
    stream = TokenStream.from_documents(documents, TokenInfo(1000))
    path = tmp_path / "tokens.u16"
    save_tokens(path, stream, force=True)
    start, ids, ends = 0, [], []
    blocks = list(iter_token_blocks(path, block))
    for part, part_ends in blocks:
        ids += part.tolist()
        ends += (part_ends + start).tolist()
        start += part.size
    assert ids == stream.ids.tolist()
    assert ends == stream.doc_ends.tolist()
    assert all(part.size == block for part, _ in blocks[:-1])


@small_blocks
@given(documents=documents_of_ids, data=st.data())
def test_the_bytes_do_not_depend_on_how_tokens_were_appended(
    tmp_path: Path, tiny_blocks: None, documents: list[np.ndarray], data: st.DataObject
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    save_tokens(whole, TokenStream.from_documents(documents, TokenInfo(1000)), force=True)
    with TokenWriter(parts, 1000, None, force=True) as writer:
        for document in documents:
            cut = data.draw(st.integers(0, len(document)))
            writer.append(document[:cut])
            writer.append(document[cut:].tolist())
            writer.end_document()
    assert parts.read_bytes() == whole.read_bytes()


def test_a_last_document_without_an_end_is_ended(tmp_path: Path) -> None:
    with TokenWriter(tmp_path / "t", 10, None) as writer:
        writer.append([1, 2])
        writer.append([3, 4, 5], doc_ends=[1])
    assert (writer.n_tokens, writer.n_documents) == (5, 2)
    assert as_lists(load_tokens(tmp_path / "t")) == [[1, 2, 3], [4, 5]]


def test_no_tokens_at_all(tmp_path: Path, name: str) -> None:
    with TokenWriter(tmp_path / name, 10, None):
        pass
    assert as_lists(load_tokens(tmp_path / name)) == []
    assert list(iter_token_blocks(tmp_path / name)) == []


def test_row_16_short_documents_stay_apart(tmp_path: Path) -> None:
    stream = stream_of([], [1], [2, 3], [])
    save_tokens(tmp_path / "t", stream)
    read = load_tokens(tmp_path / "t")
    assert as_lists(read) == [[], [1], [2, 3], []]
    assert as_lists(read.concatenated()) == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("vocab_size", "width"), [(1, 2), (65_535, 2), (65_536, 2), (65_537, 4), (1 << 31, 4)]
)
def test_the_width_follows_the_vocabulary(tmp_path: Path, vocab_size: int, width: int) -> None:
    path = tmp_path / f"t.u{8 * width}"
    with TokenWriter(path, vocab_size, None) as writer:
        writer.append([0, vocab_size - 1])
    assert layout.HEAD.unpack(path.read_bytes()[: layout.HEAD.size])[2] == width
    assert load_tokens(path).ids.tolist() == [0, vocab_size - 1]


def test_a_name_that_says_another_width_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"name it \.u32"):
        TokenWriter(tmp_path / "t.u16.zst", 128_256, None)


@pytest.mark.parametrize("ids", [[-1], [10], [1.5], [[1, 2]]])
def test_ids_that_are_none_are_refused_and_leave_no_file(tmp_path: Path, ids: list[int]) -> None:
    with pytest.raises(ParameterError), TokenWriter(tmp_path / "t.zst", 10, None) as writer:
        writer.append(ids)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ends", [[3], [-1], [2, 1]])
def test_document_ends_must_rise_inside_the_batch(tmp_path: Path, ends: list[int]) -> None:
    with pytest.raises(ParameterError), TokenWriter(tmp_path / "t", 10, None) as writer:
        writer.append([1, 2], doc_ends=ends)


def test_existing_files_need_force(tmp_path: Path) -> None:
    path = tmp_path / "t"
    save_tokens(path, stream_of([1]))
    with pytest.raises(ParameterError, match="--force"):
        save_tokens(path, stream_of([2]))
    save_tokens(path, stream_of([2]), force=True)
    assert load_tokens(path).ids.tolist() == [2]


def test_row_09_a_full_disk_is_noticed() -> None:
    with (
        pytest.raises(OSError, match="No space left") as caught,
        TokenWriter("/dev/full", 10, None) as writer,
    ):
        writer.append(np.ones(4_000_000, np.int32))
    assert caught.value.filename == "/dev/full"


def test_row_17_tokens_of_another_tokenizer_are_refused_with_both_names(tmp_path: Path) -> None:
    save_tokens(tmp_path / "t", stream_of([1]))
    info = read_token_info(tmp_path / "t")
    info.require_tokenizer("f" * 64, "tiny")
    with pytest.raises(TokenizerMismatchError, match=r"tiny.*other"):
        info.require_tokenizer("0" * 64, "other")
    TokenInfo().require_tokenizer("0" * 64, "other")


# Raw files


@pytest.mark.parametrize(("suffix", "dtype"), [(".u16", "<u2"), (".u32", "<u4")])
@pytest.mark.parametrize("packed", ["", ".zst", ".gz"])
def test_raw_files_are_one_document(tmp_path: Path, suffix: str, dtype: str, packed: str) -> None:
    data = np.arange(5000).astype(dtype).tobytes()
    path = tmp_path / f"raw{suffix}{packed}"
    pack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".zst": zstandard.ZstdCompressor().compress,
        ".gz": gzip.compress,
    }
    path.write_bytes(pack[packed](data))
    stream = load_tokens(path)
    assert stream.ids.tolist() == list(range(5000))
    assert stream.doc_ends.tolist() == [5000]
    assert stream.info == TokenInfo()
    assert [ids.size for ids, _ in iter_token_blocks(path, 2000)] == [2000, 2000, 1000]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9])
def test_raw_files_at_block_seams(tmp_path: Path, tiny_blocks: None, count: int) -> None:
    path = tmp_path / "raw.u16"
    path.write_bytes(np.arange(count, dtype="<u2").tobytes())
    assert as_lists(load_tokens(path)) == [list(range(count))]


@pytest.mark.parametrize(
    ("file", "data", "error", "message"),
    [
        ("a.u16", b"", TruncatedError, "no bytes"),
        ("a.u16", b"abc", TruncatedError, "multiple of 2"),
        ("a.u32", b"\0" * 4_194_310, TruncatedError, "multiple of 4"),
        ("a.u32", struct.pack("<I", 1 << 31), FormatError, "2147483648 at position 0"),
        ("a.bin", b"abcdefgh", FormatError, r"\.u16 or \.u32"),
        ("a.gguf", b"GGUF\3\0\0\0", FormatError, r"\.u16 or \.u32"),
        ("a.u16", zstandard.ZstdCompressor().compress(b"ab" * 99)[:-3], TruncatedError, "early"),
        ("a.u16", gzip.compress(b"ab" * 99)[:-9], TruncatedError, "early"),
        ("a.u16", b"\x28\xb5\x2f\xfdnothing", FormatError, "damaged"),
    ],
)
def test_row_03_what_is_no_raw_file_is_named(
    tmp_path: Path, file: str, data: bytes, error: type[FormatError], message: str
) -> None:
    path = tmp_path / file
    path.write_bytes(data)
    with pytest.raises(error, match=message) as caught:
        load_tokens(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_row_17_ids_beyond_the_vocabulary_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "raw.u16"
    path.write_bytes(np.array([1, 2, 700, 3], "<u2").tobytes())
    with pytest.raises(FormatError, match="id 700 at position 2"):
        load_tokens(path, vocab_size=700)
    assert load_tokens(path, vocab_size=701).ids.size == 4


# Hostile token files


@pytest.fixture
def whole_file(tmp_path: Path, tiny_blocks: None) -> bytes:
    path = tmp_path / "whole"
    save_tokens(path, stream_of([1, 2, 3], [], [4, 5, 6]))
    return path.read_bytes()


def test_row_08_every_prefix_is_refused(tmp_path: Path, whole_file: bytes) -> None:
    path = tmp_path / "cut.u16"
    for size in range(len(whole_file)):
        path.write_bytes(whole_file[:size])
        with pytest.raises(TruncatedError, match=r"bytes are missing|bytes, expected token ids"):
            load_tokens(path)


def test_bytes_after_the_end_are_refused(tmp_path: Path, whole_file: bytes) -> None:
    path = tmp_path / "longer"
    path.write_bytes(whole_file + b"\0")
    with pytest.raises(FormatError, match="does not end where"):
        load_tokens(path)


def sealed(body: bytes, n_tokens: int, n_documents: int, ids: bytes) -> bytes:
    """A file with right digests around whatever body."""
    body += layout.encode_foot(n_tokens, n_documents, hashlib.sha256(ids).digest())
    return body + hashlib.sha256(body).digest() + layout.END_MAGIC


def forged(
    *, head: bytes = b"", ids: tuple[int, ...] = (1,), ends: tuple[int, ...] = (1,), width: int = 2,
    vocab_size: int = 9, counts: tuple[int, int] = (1, 1),
) -> bytes:  # fmt: skip
    stored = np.array(ids).astype(layout.dtype_of(width)).tobytes()
    head = head or layout.encode_head(TokenInfo(vocab_size, None), width)
    block = layout.encode_block(stored, len(ids), np.array(ends, np.int64))
    return sealed(head + block, *counts, stored)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (forged(ids=(9,)), FormatError, "id 9 at position 0, expected ids below 9"),
        (forged(ends=(2,)), FormatError, "do not rise"),
        (forged(ids=(1, 1), ends=(2, 1), counts=(2, 2)), FormatError, "do not rise"),
        (forged(ends=(), counts=(1, 0)), FormatError, "the foot says 1 tokens in 0 documents"),
        (forged(counts=(7, 1)), FormatError, "the foot says 7 tokens"),
        (forged(counts=(1, 2)), FormatError, "the foot says 1 tokens in 2 documents"),
        (forged(width=4), FormatError, "contradicts the vocabulary size"),
        (forged(head=layout.HEAD.pack(b"lttokens", 2, 2, 0)), FormatError, "version 2, expected 1"),
        (forged(head=layout.HEAD.pack(b"lttokens", 1, 3, 0)), FormatError, "id width 3"),
        (forged(head=layout.HEAD.pack(b"lttokens", 1, 2, 1 << 40)), FormatError, "impossible head"),
        (forged(head=layout.HEAD.pack(b"lttokens", 1, 2, 2) + b"{}"), FormatError, "not readable"),
        (forged(vocab_size=0), FormatError, "wrong kind"),
        (forged().replace(b"null", b"1234", 1), FormatError, "wrong kind"),
        (forged()[:-40] + bytes(32) + b"lttokend", ChecksumError, "digest"),
        (
            layout.encode_head(TokenInfo(9, None), 2) + struct.pack("<II", 0xFFFFFFF0, 1),
            FormatError,
            "claims 4294967280 tokens",
        ),
        (
            layout.encode_head(TokenInfo(9, None), 2) + struct.pack("<II", 0xFFFFFFFF, 1),
            FormatError,
            "claims 4294967295 tokens",
        ),
        (
            layout.encode_head(TokenInfo(9, None), 2) + struct.pack("<II", 0, 0xFFFFFFFF),
            TruncatedError,
            "bytes are missing",
        ),
    ],
)
def test_row_10_forged_files_are_refused(
    tmp_path: Path, data: bytes, error: type[FormatError], message: str
) -> None:
    path = tmp_path / "forged"
    path.write_bytes(data)
    with pytest.raises(error, match=message) as caught:
        list(iter_token_blocks(path))
    assert "\n" not in str(caught.value)


def test_the_forging_itself_makes_good_files(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(forged())
    assert as_lists(load_tokens(tmp_path / "good")) == [[1]]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=st.binary(max_size=200))
def test_arbitrary_bytes_never_crash(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "any.u16"
    path.write_bytes(layout.MAGIC + body)
    with pytest.raises(FormatError):
        load_tokens(path)


# Streams in memory


@pytest.mark.parametrize(
    ("ids", "ends"),
    [
        (np.zeros(2, np.int64), [2]),
        (np.zeros((2, 1), np.int32), [2]),
        (np.zeros(4, np.int32)[::2], [2]),
        (np.zeros(2, np.int32), [1]),
        (np.zeros(2, np.int32), [2, 1, 2]),
        (np.zeros(2, np.int32), []),
    ],
)
def test_streams_check_their_arrays(ids: np.ndarray, ends: list[int]) -> None:
    with pytest.raises(ParameterError):
        TokenStream(ids, np.array(ends, np.int64))


def test_a_raw_stream_needs_its_vocabulary_size_to_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="vocabulary size"):
        save_tokens(tmp_path / "t", TokenStream.from_documents([]))


def test_a_large_stream_in_several_real_blocks(tmp_path: Path, name: str) -> None:
    ids = (np.arange(2_500_000) % 50_021).astype(np.int32)
    ends = np.arange(1, 26, dtype=np.int64) * 100_000
    save_tokens(tmp_path / name, TokenStream(ids, ends, TokenInfo(50_021)))
    read = load_tokens(tmp_path / name)
    assert np.array_equal(read.ids, ids)
    assert np.array_equal(read.doc_ends, ends)
