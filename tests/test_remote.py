"""Inputs from folders, patterns, stores and tables: the same text, or one clear line."""

from __future__ import annotations

import io
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers import run, write_tokenizer

from lookup_tools.corpora import columns, open_corpus, stores
from lookup_tools.errors import CorpusError, ParameterError

TEXTS = [f"the end of the road {k} is the house of the man é\n" * 3 for k in range(9)]


def texts(*files: Any, **options: Any) -> list[str]:
    return [document.text for document in open_corpus(files, **options).documents()]


@pytest.fixture
def memory() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    yield fs
    fs.store.clear()


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "RETRY_SECONDS", (0.0, 0.0))


def write_shards(folder: Path) -> list[Path]:
    paths = []
    for k, text in enumerate(TEXTS):
        path = folder / f"part-{k}.txt.zst"
        path.write_bytes(zstandard.compress(text.encode()))
        paths.append(path)
    return paths


def test_a_folder_is_its_files_by_name_without_hidden_ones(tmp_path: Path) -> None:
    inner = tmp_path / "shards" / "b"
    inner.mkdir(parents=True)
    for name, text in (("z.txt", "3"), ("a.txt", "1"), (".hidden", "x"), ("_SUCCESS", "x")):
        (tmp_path / "shards" / name).write_text(text)
    (inner / "c.txt").write_text("2")
    assert texts(tmp_path / "shards") == ["1", "2", "3"]
    assert texts(tmp_path / "shards" / "*.txt") == ["1", "3"]
    assert texts(tmp_path / "shards" / "**" / "c.txt") == ["2"]


def test_a_file_with_a_bracket_in_its_name_is_no_pattern(tmp_path: Path) -> None:
    path = tmp_path / "a[1].txt"
    path.write_text("text")
    assert texts(path) == ["text"]


@pytest.mark.parametrize("name", ["empty", "none-*.txt"])
def test_nothing_found_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="found no files"):
        open_corpus([tmp_path / name])


def test_urls_give_the_bytes_of_local_files(tmp_path: Path, memory: Any) -> None:
    local = tmp_path / "shards"
    local.mkdir()
    for path in write_shards(local):
        memory.pipe(f"/bucket/{path.name}", path.read_bytes())
    memory.pipe("/bucket/_SUCCESS", b"")
    write_tokenizer(tmp_path)
    model = tmp_path / "tokenizer.json"
    run("create", "-m", model, "-f", local, "-o", tmp_path / "local.lcs", "--quiet")
    for given in ("memory://bucket/", "memory://bucket", "memory://bucket/part-*.zst"):
        out = tmp_path / "remote.lcs"
        run("create", "-m", model, "-f", given, "-o", out, "--force", "--quiet")
        assert out.read_bytes() == (tmp_path / "local.lcs").read_bytes()
    corpus = open_corpus(["memory://bucket"])
    assert [document.text for document in corpus.documents()] == TEXTS
    assert corpus.bytes_read == corpus.size_bytes


def test_a_missing_object_is_named(memory: Any) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        open_corpus(["memory://bucket/none.txt"])
    assert caught.value.filename == "memory://bucket/none.txt"


def test_an_unknown_kind_of_store_is_one_line() -> None:
    with pytest.raises(ParameterError, match=r"nothing://a: .*expected a path or a URL"):
        open_corpus(["nothing://a"])


class Failing(io.BytesIO):
    """Every third read breaks."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        Failing.reads += 1
        if Failing.reads % 3 == 0:
            raise ConnectionResetError("503 Slow Down")
        return super().read(size)


def test_reading_goes_on_where_a_store_failed(
    memory: Any, monkeypatch: pytest.MonkeyPatch, no_waiting: None
) -> None:
    text = "".join(TEXTS) * 40_000
    memory.pipe("/bucket/a.txt", text.encode())

    def opened(self: Any, path: str, mode: str = "rb", **options: Any) -> Any:
        file = Failing(self.store["/bucket/a.txt"].getvalue())
        file.size = len(text.encode())  # type: ignore[attr-defined]
        return file

    monkeypatch.setattr(type(memory), "open", opened)
    assert texts("memory://bucket/a.txt") == [text]
    assert Failing.reads > 9


def test_a_store_that_never_answers_is_one_line(
    memory: Any, monkeypatch: pytest.MonkeyPatch, no_waiting: None
) -> None:
    memory.pipe("/bucket/a.txt", b"text")
    calls = []

    def broken(self: Any, path: str, mode: str, **options: Any) -> Any:
        calls.append(path)
        raise TimeoutError("timed out")

    monkeypatch.setattr(type(memory), "open", broken)
    with pytest.raises(CorpusError, match=r"memory://bucket/a.txt: cannot be read: timed out"):
        texts("memory://bucket/a.txt")
    assert len(calls) == 3


def table() -> pa.Table:
    chats = [
        [{"role": "user", "content": text}, {"role": "bot", "content": "of"}] for text in TEXTS
    ]
    outer = [{"title": "t", "body": text} for text in TEXTS]
    return pa.table({"text": TEXTS, "chats": chats, "outer": outer, "n": range(9)})


def write_table(path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table(), path, row_group_size=4)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table(), path, chunksize=4)
    else:
        with pa.ipc.new_stream(path, table().schema) as writer:
            writer.write_table(table(), max_chunksize=4)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_columns_nested_ones_and_several(tmp_path: Path, suffix: str) -> None:
    path = write_table(tmp_path / f"rows{suffix}")
    assert texts(path, documents="parquet:text") == TEXTS
    assert texts(tmp_path, documents="parquet:outer.body") == TEXTS
    joined = [f"{text}\nof" for text in TEXTS]
    assert texts(path, documents="parquet:chats.content") == joined
    assert texts(path, documents="parquet:outer.title,text") == [f"t\n{text}" for text in TEXTS]
    corpus = open_corpus([path], documents="parquet:text")
    assert len(list(corpus.documents())) == 9
    assert corpus.bytes_read == corpus.size_bytes == path.stat().st_size


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_an_unknown_column_lists_the_known(tmp_path: Path, suffix: str) -> None:
    path = write_table(tmp_path / f"rows{suffix}")
    with pytest.raises(CorpusError, match=r"found no text column 'body', expected one of text, "):
        texts(path, documents="parquet:body")


def test_only_the_asked_column_is_read(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = [random.Random(k).randbytes(100_000) for k in range(9)]
    sink = io.BytesIO()
    pq.write_table(table().append_column("noise", [noise]), sink, row_group_size=4)
    memory.pipe("/bucket/a.parquet", sink.getvalue())
    read = []
    original = stores.StoredFile.readinto

    def counted(self: Any, buffer: Any) -> int:
        n = original(self, buffer)
        read.append(n)
        return n

    monkeypatch.setattr(stores.StoredFile, "readinto", counted)
    assert texts("memory://bucket/a.parquet", documents="parquet:text") == TEXTS
    assert sum(read) < 100_000 < len(sink.getvalue())


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "rows.parquet")
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=r"rows.parquet: row group 1: cannot be read"):
        texts(path, documents="parquet:text")


@pytest.mark.parametrize("cut", [0, 5, 60])
def test_what_is_no_table_is_refused(tmp_path: Path, cut: int) -> None:
    path = write_table(tmp_path / "rows.parquet")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorpusError):
        texts(path, documents="parquet:text")


def test_a_null_is_named_by_row_group_and_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c", None]}), path, row_group_size=2)
    with pytest.raises(CorpusError, match=r"row group 1, row 1: column 'text' is null"):
        texts(path, documents="parquet:text")


@pytest.mark.parametrize("given", ["parquet", "parquet:", "parquet:a,,b"])
def test_columns_have_to_be_named(tmp_path: Path, given: str) -> None:
    with pytest.raises(ParameterError):
        open_corpus([write_table(tmp_path / "rows.parquet")], documents=given)


def test_row_groups_can_be_counted_and_read_apart(tmp_path: Path) -> None:
    path = write_table(tmp_path / "rows.parquet")
    with stores.open_stored(str(path), random=True) as file:
        assert columns.row_groups(file, str(path)) == 3
        rows = columns.iter_rows(file, str(path), ["text"], groups=(1, 2))
        assert [row.text for row in rows] == TEXTS[4:8]


# A real S3 endpoint on the loopback


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """Options of s3fs for a server of our own."""
    server_module = pytest.importorskip("moto.server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = server_module.ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    try:
        yield {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{port}"}
    finally:
        server.stop()


@pytest.mark.filterwarnings("ignore")  # botocore's own
def test_s3_gives_the_bytes_of_local_files(
    s3: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", s3)
    fs = fsspec.filesystem("s3", **s3)
    fs.mkdir("corpus")
    records = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    fs.pipe("corpus/a/rows.jsonl.zst", zstandard.compress(records.encode()))
    fs.pipe("corpus/b/rows.parquet", write_table(tmp_path / "rows.parquet").read_bytes())
    assert texts("s3://corpus/a/*.zst", documents="jsonl:text") == TEXTS
    assert texts("s3://corpus/b/", documents="parquet:text") == TEXTS
    with pytest.raises(FileNotFoundError):
        open_corpus(["s3://corpus/none.txt"])
