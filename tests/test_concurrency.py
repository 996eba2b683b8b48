"""Many at once: writers of one output, readers of a file that is replaced, threads on one view."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Counts,
    add,
    cache_drafter,
    count_documents,
    names,
    random_counts,
    random_stream,
    read_counts,
    write_counts,
)

from lookup_tools import Drafter, DynamicTable, open_cache, recover_keys, verify_cache
from lookup_tools.cache import Cache, ConstmapCache
from lookup_tools.errors import ClosedError, ParameterError
from lookup_tools.tokens import TokenInfo, TokenStream, load_tokens, save_tokens

WRITERS = 4
FORK = multiprocessing.get_context("fork" if sys.platform == "linux" else None)


def made_by(writer: int) -> Counts:
    """What one writer writes: other sizes, so that no two files could be taken for each other."""
    return random_counts(random.Random(writer), 50 + 30 * writer, vocab=100)


def in_processes(work: Callable[..., None], *arguments: Any) -> list[int]:
    """Run `work(start, writer, ...)` in several processes that begin together; exit codes."""
    start = FORK.Barrier(WRITERS)
    workers = [
        FORK.Process(target=work, args=(start, writer, *arguments)) for writer in range(WRITERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    return [worker.exitcode for worker in workers]


# ---- writers


def write_often(start: Any, writer: int, path: Path, fmt: str, times: int) -> None:
    for _ in range(times):
        start.wait(60)
        write_counts(path, made_by(writer), fmt)


@pytest.mark.parametrize("fmt", ["legacy", "constmap"])
def test_writers_of_one_output_leave_the_file_of_one_of_them(tmp_path: Path, fmt: str) -> None:
    """After every round the file is whole, and a sidecar is of the same run as its file."""
    path = tmp_path / "out"
    times, failures = 15, []
    checked = threading.Event()

    def check() -> None:
        while not checked.is_set():
            try:
                with open_cache(path) as cache:
                    verify_cache(cache)
            except FileNotFoundError:
                pass
            except Exception as error:
                failures.append(error)
                return

    reader = threading.Thread(target=check)
    reader.start()
    codes = in_processes(write_often, path, fmt, times)
    checked.set()
    reader.join(30)
    assert codes == [0] * WRITERS
    assert failures == []
    assert read_counts(path) in [made_by(writer) for writer in range(WRITERS)]
    assert names(tmp_path) == ({"out"} if fmt == "constmap" else {"out", "out.meta.json"})


def write_once(start: Any, writer: int, path: Path, fmt: str) -> None:
    """Exit code 3: somebody else was faster."""
    start.wait(60)
    try:
        if fmt == "tokens":
            ids = np.arange(100 + writer, dtype=np.int32)
            save_tokens(path, TokenStream(ids, np.array([len(ids)]), TokenInfo(1000)))
        else:
            write_counts(path, made_by(writer), fmt, force=False)
    except ParameterError as error:
        sys.exit(3 if "exists" in str(error) else 4)


@pytest.mark.parametrize("fmt", ["legacy", "constmap", "tokens"])
def test_without_force_the_first_one_wins_and_nobody_overwrites_it(
    tmp_path: Path, fmt: str
) -> None:
    for turn in range(4):
        path = tmp_path / f"out-{turn}"
        codes = in_processes(write_once, path, fmt)
        assert sorted(codes) == [0, *[3] * (WRITERS - 1)]
        winner = codes.index(0)
        if fmt == "tokens":
            assert len(load_tokens(path).ids) == 100 + winner
        else:
            assert read_counts(path) == made_by(winner)
    expected = {f"out-{turn}" for turn in range(4)}
    if fmt == "legacy":
        expected |= {f"{name}.meta.json" for name in expected}
    assert names(tmp_path) == expected


@pytest.mark.parametrize("fmt", ["legacy", "constmap"])
def test_a_folder_that_cannot_be_locked_takes_files_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str
) -> None:
    """As on some network file systems."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    for writer in (1, 2):
        write_counts(tmp_path / "out", made_by(writer), fmt)
        assert read_counts(tmp_path / "out") == made_by(writer)


# ---- readers of a file that changes


@pytest.mark.parametrize("load", ["mmap", "read"])
@pytest.mark.parametrize("fmt", ["legacy", "constmap"])
def test_readers_keep_what_they_opened(tmp_path: Path, fmt: str, load: str) -> None:
    """While another process replaces the file again and again."""
    path = tmp_path / "out"
    known = [made_by(writer) for writer in range(WRITERS)]
    write_counts(path, known[0], fmt)
    writer = FORK.Process(target=replace_until, args=(path, fmt, time.monotonic() + 0.5))
    writer.start()
    n_seen = 0
    while writer.is_alive():
        with open_cache(path, load=load) as cache:  # type: ignore[arg-type]
            found = next(each for each in known if counts_match(cache, each))
            time.sleep(0.01)
            assert counts_match(cache, found)
            verify_cache(cache)
            n_seen += 1
    writer.join(30)
    assert writer.exitcode == 0
    assert n_seen > 1


def replace_until(path: Path, fmt: str, end: float) -> None:
    k = 0
    while time.monotonic() < end:
        write_counts(path, made_by(k := (k + 1) % WRITERS), fmt)


def counts_match(cache: Cache, counts: Counts) -> bool:
    return all(dict(cache.followers(ngram).tolist()) == counts[ngram] for ngram in counts)


# What happens to a reader whose file another process cuts, which nothing of ours does.
CUT = """
import os, sys
from lookup_tools import open_cache
cache = open_cache(sys.argv[1], load=sys.argv[2])
os.truncate(sys.argv[1], 0)
print(sum(len(cache.followers([a, b])) for a in range(100) for b in range(100)))
"""


@pytest.mark.parametrize(("load", "code"), [("read", 0), ("mmap", -7)])
def test_a_file_cut_under_its_reader(tmp_path: Path, load: str, code: int) -> None:
    """docs/format.md, "Not promised": a mapping of a file that is cut ends its reader (SIGBUS);
    `--load read` does not."""
    if load == "mmap" and not sys.platform.startswith("linux"):
        pytest.skip("the number of the signal is Linux's")
    made = random_counts(random.Random(1), 5000, vocab=100)
    write_counts(tmp_path / "cache", made)
    command = [sys.executable, "-c", CUT, str(tmp_path / "cache"), load]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    if load == "read":
        assert int(done.stdout) == sum(map(len, made.values()))


# ---- threads


@contextmanager
def stressed(work: Callable[[int], object], threads: int) -> Iterator[list[BaseException]]:
    """Have threads call `work(number)` again and again while the block runs; what they raised."""
    stop, raised = threading.Event(), []

    def loop(number: int) -> None:
        try:
            while not stop.is_set():
                work(number)
        except BaseException as error:
            raised.append(error)

    running = [threading.Thread(target=loop, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield raised
    finally:
        stop.set()
        for thread in running:
            thread.join(60)
        assert not any(thread.is_alive() for thread in running)


def drafts_of(drafter: Drafter, text: list[int]) -> list[list[int]]:
    """Everything drafted along a text, with some of it taken back on the way."""
    drafter.begin(text[:5])
    found = []
    for at in range(5, len(text)):
        found.append(drafter.draft().tolist())
        if at % 17 == 0:
            drafter.follow(text[: at - 4])
            found.append(drafter.draft(limit=3).tolist())
        drafter.follow(text[: at + 1])
    return found


def test_free_running_drafters_on_one_view(tmp_path: Path) -> None:
    """Two seconds of many drafters on one static view and one dynamic table, while others look up,
    verify, and try to close what is in use: every answer is that of a drafter alone."""
    rng = random.Random(1)
    made = count_documents([random_stream(rng, 4000, 40)])
    learned = count_documents([random_stream(rng, 2000, 40)], (1, 2, 3, 4))
    write_counts(tmp_path / "static", made)
    write_counts(tmp_path / "dynamic", learned, "legacy")
    texts = [random_stream(rng, 120, 40) for _ in range(6)]
    done = [0] * 6
    with open_cache(tmp_path / "static") as static, open_cache(tmp_path / "dynamic") as dynamic:
        table = DynamicTable(dynamic)
        alone = []
        for text in texts:
            with cache_drafter(static, table) as drafter:
                alone.append(drafts_of(drafter, text))
        assert any(draft for drafts in alone for draft in drafts)

        def work(number: int) -> None:
            if number < 4:
                with cache_drafter(static, table) as drafter:
                    assert drafts_of(drafter, texts[number]) == alone[number]
            elif number == 4:
                verify_cache(static)
                assert counts_match(static, dict(list(made.items())[:50]))
            else:
                with pytest.raises(ClosedError, match="still using"):
                    static.close()
                time.sleep(0.001)
            done[number] += 1

        with cache_drafter(static, table), stressed(work, 6) as raised:
            time.sleep(2)
        assert raised == []
    assert all(done), done
    print(f"{sum(done[:4])} texts drafted by 4 threads, {done[5]} closings refused")


def lookups(cache: Cache) -> None:
    cache.followers((1, 2))


def enumeration(cache: Cache) -> None:
    for block in cache.blocks(2):
        assert block.n_pairs


def recovery(cache: Cache) -> None:
    assert isinstance(cache, ConstmapCache)
    recover_keys(cache)


@pytest.mark.parametrize("use", [lookups, enumeration, verify_cache, recovery])
@pytest.mark.parametrize("fmt", ["constmap", "legacy"])
def test_closing_under_a_reader_is_refused_or_seen(
    tmp_path: Path, fmt: str, use: Callable[[Cache], object]
) -> None:
    """Whoever closes a cache that another thread is reading is refused, or that thread is told: the
    memory does not go away under anybody."""
    if use is recovery and fmt == "legacy":
        pytest.skip("legacy files have their keys")
    write_counts(tmp_path / "cache", random_counts(random.Random(2), 8000, vocab=200), fmt)
    refused, seen, rounds = 0, 0, 0
    while rounds < 8 or (rounds < 200 and not (refused or seen)):  # threads may start late
        rounds += 1
        cache = open_cache(tmp_path / "cache")
        with stressed(lambda number, cache=cache: use(cache), 2) as raised:
            time.sleep(0.002)
            end = time.monotonic() + 0.02
            while not cache.closed and time.monotonic() < end:
                try:
                    cache.close()
                except ClosedError:
                    refused += 1
        cache.close()
        assert all(isinstance(error, ClosedError) for error in raised), raised
        seen += bool(raised)
    assert refused or seen


def test_sums_of_threads_that_write_and_read(tmp_path: Path) -> None:
    """Threads that merge into files of their own out of shared inputs."""
    from lookup_tools import MergeOptions, merge_caches

    shared = [made_by(1), made_by(2)]
    for k, counts in enumerate(shared):
        write_counts(tmp_path / f"in-{k}", counts, "legacy" if k else "constmap")

    def work(number: int) -> None:
        out = tmp_path / f"out-{number}"
        options = MergeOptions(threads=1, force=True)
        merge_caches([tmp_path / "in-0", tmp_path / "in-1"], out, options)
        assert read_counts(out) == add(*shared)

    with stressed(work, 3) as raised:
        time.sleep(0.5)
    assert raised == []
