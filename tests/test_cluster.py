"""Builds on a Dask cluster: the bytes of a local build, or one clear line."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers import SENTENCES, names, run, write_tokenizer

from lookup_tools.cluster import splits
from lookup_tools.cluster.connection import register
from lookup_tools.corpora import open_corpus
from lookup_tools.corpora.files import FileCorpus

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and what it uses


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as started:
        yield started


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "MIN_TASK_BYTES", 2000)


def documents(n: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(" ".join(SENTENCES).split(), k=60)) + " é" for _ in range(n)]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """Files and their --documents."""
    folder = tmp_path_factory.mktemp("corpora")
    rows = documents(120)
    records = "".join(json.dumps({"text": row}) + "\n" for row in rows)
    (folder / "files").mkdir()
    for k in range(12):
        (folder / "files" / f"{k:02}.txt").write_text("\n".join(rows[10 * k : 10 * k + 10]))
    (folder / "rows.jsonl").write_text(records)
    (folder / "lines.txt").write_text("\r\n".join(rows))
    (folder / "packed").mkdir()
    for k in range(3):
        (folder / "packed" / f"{k}.zst").write_bytes(zstandard.compress(records.encode()))
    pq.write_table(pa.table({"t": rows, "n": range(120)}), folder / "a.parquet", row_group_size=9)
    return {
        "files": (folder / "files", "file"),
        "jsonl": (folder / "rows.jsonl", "jsonl:text"),
        "lines": (folder / "lines.txt", "line"),
        "packed": (folder / "packed", "jsonl:text"),
        "parquet": (folder / "a.parquet", "parquet:t"),
    }


OPTIONS: dict[str, tuple[str, ...]] = {
    "static": (),
    "legacy": ("--format", "legacy"),
    "constmap2": ("--format", "constmap2", "--map-hash", "xxh3"),
    "dynamic": ("--kind", "dynamic"),
    "pruned": ("--min-count", "3", "--top-k", "2"),
    "sized": ("--kind", "context", "--max-size", "30000"),
    "spilled": ("--kind", "dynamic", "--memory", "400M"),
}


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize(
    ("corpus", "options"),
    [*((corpus, "static") for corpus in ("files", "jsonl", "lines", "packed", "parquet")),
     *(("jsonl", options) for options in list(OPTIONS)[1:])],
)  # fmt: skip
def test_the_bytes_are_those_of_a_local_build(
    tmp_path: Path, cluster: Any, corpora: dict[str, tuple[Path, str]], corpus: str, options: str
) -> None:
    model = write_tokenizer(tmp_path)
    path, kind = corpora[corpus]
    given = ["-m", model, "-f", path, "--documents", kind, *OPTIONS[options]]
    for folder in ("local", "remote"):
        (tmp_path / folder).mkdir()
    run("create", *given, "-o", tmp_path / "local" / "c.lcs")
    run("create", *given, "-o", tmp_path / "remote" / "c.lcs",
        "--cluster", cluster.scheduler_address)  # fmt: skip
    assert names(tmp_path / "remote") == names(tmp_path / "local")
    for name in names(tmp_path / "local"):
        assert (tmp_path / "remote" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("corpus", ["jsonl", "lines", "parquet"])
def test_parts_of_one_file_give_its_documents(
    corpora: dict[str, tuple[Path, str]], corpus: str
) -> None:
    path, kind = corpora[corpus]
    whole = open_corpus([path], documents=kind)
    assert isinstance(whole, FileCorpus)
    tasks = splits.plan_tasks(whole, 5)
    assert len(tasks) > 2
    texts = [piece.text for parts in tasks for piece in whole.of_parts(parts).pieces()]
    assert texts == [piece.text for piece in whole.pieces()]


def test_every_range_of_lines_begins_and_ends_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"a\n\nbb\r\nccc\nd")
    whole = open_corpus([path], documents="line")
    assert isinstance(whole, FileCorpus)
    size = path.stat().st_size
    for first in range(size + 1):
        for second in range(first, size + 1):
            edges = ((0, first), (first, second), (second, size))
            parts = [splits.Part(whole.sources[0], range=edge) for edge in edges]
            texts = [piece.text for piece in whole.of_parts(parts).pieces()]
            assert texts == ["a", "bb", "ccc", "d"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--concatenate",), "found --concatenate with --cluster"),
        (("--max-tokens", "5"), "found --max-tokens with --cluster"),
        (("--cluster", "somewhere"), "found cluster 'somewhere'"),
        (("--cluster", "tcp://127.0.0.1:{port}"), "the scheduler"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path,
    cluster: Any,
    corpora: dict[str, tuple[Path, str]],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr("lookup_tools.cluster.connection.CONNECT_SECONDS", 1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = tuple(option.format(port=port) for option in options)
    model = write_tokenizer(tmp_path)
    result = run("create", "-m", model, "-f", corpora["files"][0], "-o", tmp_path / "c.lcs",
                 "--cluster", cluster.scheduler_address, *options, code=1)  # fmt: skip
    assert message in result.stderr
    assert not (tmp_path / "c.lcs").exists()


def test_a_damaged_shard_is_named(tmp_path: Path, cluster: Any) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    packed = zstandard.compress("\n".join(documents(200)).encode())
    for k in range(6):
        (shards / f"{k}.zst").write_bytes(packed[:-9] if k == 4 else packed)
    result = run("create", "-m", write_tokenizer(tmp_path), "-f", shards, "-o", tmp_path / "c.lcs",
                 "--cluster", cluster.scheduler_address, code=1)  # fmt: skip
    assert "4.zst: the zstd data ends early" in result.stderr
    assert names(tmp_path) == {"shards", "tokenizer.json", "tokenizer_config.json"}


@pytest.mark.usefixtures("small_tasks")
def test_killed_workers_do_not_change_a_byte(
    tmp_path: Path, corpora: dict[str, tuple[Path, str]]
) -> None:
    """LOOKUP_CLUSTER_KILLS says how many builds lose a worker."""
    model, rng = write_tokenizer(tmp_path), random.Random(7)
    given = ["-m", model, "-f", corpora["jsonl"][0], "--documents", "jsonl:text", "--kind",
             "dynamic"]  # fmt: skip
    run("create", *given, "-o", tmp_path / "local.lcs")
    wanted = (tmp_path / "local.lcs").read_bytes()
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as cluster:  # fmt: skip
        for _ in range(int(os.environ.get("LOOKUP_CLUSTER_KILLS", "2"))):
            with distributed.Client(cluster, set_as_default=False) as client:
                client.wait_for_workers(3, timeout=60)  # that the last build lost one is over
            delay = rng.random() * 1.5
            killer = threading.Thread(target=_kill_one, args=(cluster, delay, rng.randrange(3)))
            killer.start()
            run("create", *given, "-o", tmp_path / "c.lcs", "--force",
                "--cluster", cluster.scheduler_address)  # fmt: skip
            killer.join()
            assert (tmp_path / "c.lcs").read_bytes() == wanted


@pytest.mark.parametrize(
    ("failures", "gone", "calls"), [(1, False, 2), (9, False, 5), (1, True, 1)]
)
def test_a_worker_that_dies_while_the_vocabulary_is_sent(
    failures: int, gone: bool, calls: int
) -> None:
    """The others are sent it again, unless it is the scheduler that went away."""
    told: list[bool] = []

    def register_plugin(plugin: Any, name: str) -> None:
        told.append(plugin.idempotent)
        if len(told) <= failures:
            raise OSError("Stream is closed")

    def nthreads() -> None:
        if gone:
            raise OSError("no scheduler")

    client = SimpleNamespace(register_plugin=register_plugin, nthreads=nthreads)
    plugin = SimpleNamespace(name="vocabulary", idempotent=True)
    if gone or failures >= calls:
        with pytest.raises(OSError, match="no scheduler" if gone else "Stream is closed"):
            register(client, plugin)
    else:
        register(client, plugin)
    assert told == [True, *[False] * (calls - 1)]


def _kill_one(cluster: Any, delay: float, which: int) -> None:
    time.sleep(delay)
    pids = [nanny.pid for nanny in cluster.workers.values() if nanny.pid]
    if pids:
        os.kill(pids[which % len(pids)], signal.SIGKILL)
