"""Refreshing a live file: nothing lost, nothing half done, nobody disturbed."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    FORMATS,
    Counts,
    add,
    assert_one_line,
    contents,
    count_documents,
    create_from,
    names,
    prune,
    random_counts,
    random_stream,
    read_counts,
    run,
    spawn,
    write_counts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_merge import parts

from lookup_tools import Tokenizer, learn, open_cache, update_cache, verify_cache
from lookup_tools.building.merge import MergeOptions
from lookup_tools.building.merge_meta import KEPT_CORPORA
from lookup_tools.counting.counts import Prune
from lookup_tools.errors import LookupToolsError, ParameterError, TokenizerMismatchError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sidecar import sidecar_path
from lookup_tools.tokens import TokenInfo

ALL_ORDERS = (1, 2, 3, 4)
META = CacheMeta(kind="dynamic", fingerprint="1" * 32, tokenizer="qwen vocabulary", vocab_size=50)
THEIRS = CacheMeta(kind="dynamic", fingerprint="0" * 32, tokenizer="llama vocabulary", vocab_size=9)


def options(**given: Any) -> MergeOptions:
    return MergeOptions(**{"threads": 1, **given})


# ---- counts


@settings(max_examples=25)
@given(
    nights=st.lists(parts(orders=ALL_ORDERS), min_size=1, max_size=4),
    weight=st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(9, 10), Fraction(3)]),
    min_count=st.integers(1, 3),
    top_k=st.integers(0, 3),
)
def test_a_live_file_is_a_running_sum(
    tmp_path: Path, nights: list[list[Counts]], weight: Fraction, min_count: int, top_k: int
) -> None:
    """Night after night against a dict: decayed, added to, pruned; empty results are refused."""
    live = tmp_path / "live.lcd"
    for leftover in (live, Path(sidecar_path(live))):
        leftover.unlink(missing_ok=True)
    expected: Counts = {}
    for night in nights:
        new = [tmp_path / f"new-{k}" for k in range(len(night))]
        for path, counts in zip(new, night, strict=True):
            write_counts(path, counts, "legacy", META)
        weights = (weight, *[Fraction(1)] * len(new))
        given = options(weights=weights, prune=Prune(min_count, top_k))
        total = prune(add(expected, *night, weights=weights), min_count, top_k)
        before = live.read_bytes() if live.exists() else None
        if not total:
            with pytest.raises(ParameterError, match="nothing left after pruning"):
                update_cache(live, new, given)
            assert (live.read_bytes() if live.exists() else None) == before
            continue
        report = update_cache(live, new, given)
        assert report.updated == (before is not None)
        assert len(report.inputs) == len(new) + report.updated
        assert read_counts(live) == total
        expected = total


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_live_files_format_is_kept(tmp_path: Path, fmt: str) -> None:
    old, new = random_counts(random.Random(1), 200), random_counts(random.Random(2), 200)
    for name in "abc":
        write_counts(tmp_path / name, old, fmt, META)
    for k, other in enumerate(FORMATS):
        write_counts(tmp_path / "new", new, other, META)
        report = update_cache(tmp_path / "abc"[k], [tmp_path / "new"], options())
        assert report.format == fmt
        assert read_counts(tmp_path / "abc"[k]) == add(old, new)
    asked = update_cache(tmp_path / "a", [tmp_path / "new"], options(fmt="legacy"))
    assert asked.format == "legacy"
    assert names(tmp_path) >= {"a", "a.meta.json"}


def test_n_grams_a_constmap_cannot_hold(tmp_path: Path) -> None:
    write_counts(tmp_path / "live", {(1, 2): {3: 1}})
    write_counts(tmp_path / "new", {(1,): {2: 1}}, "legacy")
    before = contents(tmp_path)
    with pytest.raises(ParameterError, match="expected 2-grams only"):
        update_cache(tmp_path / "live", [tmp_path / "new"])
    assert contents(tmp_path) == before


def test_a_nightly_file_stays_bounded(tmp_path: Path) -> None:
    """By --max-size; and neither its sidecar nor its annex grows by corpora's names."""
    rng = random.Random(3)
    for fmt in ("legacy", "constmap"):
        live, limit = tmp_path / fmt, 12_000
        for night in range(2 * KEPT_CORPORA):
            info = TokenInfo(300, "1" * 32, "small", (f"night {night:02}",))
            create_from(tmp_path / "new", [random_stream(rng, 400, 300)], info, fmt=fmt)
            given = options(weights=(Fraction(9, 10), Fraction(10)), max_size=limit)
            update_cache(live, [tmp_path / "new"], given)
            assert live.stat().st_size <= limit
        with open_cache(live) as cache:
            assert cache.meta is not None
            last = range(KEPT_CORPORA, 2 * KEPT_CORPORA)
            assert cache.meta.corpora == tuple(f"night {night:02}" for night in last)
        assert live.stat().st_size > 0.5 * limit  # it is cut, not emptied


def test_scaled_counts_forget_what_does_not_come_back(tmp_path: Path) -> None:
    """Weights never take a count below 1, so what is new comes in larger: 10, 9, 8, 7, 6, gone."""
    live = tmp_path / "live"
    seen = []
    for night in range(6):
        write_counts(tmp_path / "new", {(1, 2): {3: 1}} if night == 0 else {(4, 5): {6: 1}})
        given = options(weights=(Fraction(9, 10), Fraction(10)), prune=Prune(6))
        update_cache(live, [tmp_path / "new"], given)
        seen.append(read_counts(live).get((1, 2), {}).get(3))
    assert seen == [10, 9, 8, 7, 6, None]
    assert read_counts(live) == {(4, 5): {6: 41}}


# ---- identity


@pytest.mark.parametrize("fmt", ["legacy", "constmap"])
def test_row_17_another_vocabulary_is_refused(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "live", {(1, 2): {3: 1}}, fmt, META)
    write_counts(tmp_path / "new", {(1, 2): {3: 1}}, "legacy", THEIRS)
    before = contents(tmp_path)
    said = run("merge", "--update", tmp_path / "live", tmp_path / "new", code=1).stderr
    assert "qwen vocabulary" in said
    assert "llama vocabulary" in said
    assert contents(tmp_path) == before
    run("merge", "--update", tmp_path / "live", tmp_path / "new", "--force", code=1)
    for times in (2, 3):  # an update of both vocabularies must not keep the next one out
        run("merge", "--update", tmp_path / "live", tmp_path / "new", "--ignore-vocabulary")
        with open_cache(tmp_path / "live") as cache:
            assert cache.meta is not None
            assert (cache.meta.fingerprint, cache.meta.tokenizer) == (None, None)
            verify_cache(cache)
        assert read_counts(tmp_path / "live") == {(1, 2): {3: times}}


def test_mode_and_owner_are_kept(tmp_path: Path) -> None:
    live, new = tmp_path / "live", tmp_path / "new"
    for path in (live, new):
        write_counts(path, {(1, 2): {3: 1}}, "legacy", annex=False)
    live.chmod(0o640)
    owner = (12345, 54321) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(live, *owner)
    previous = os.umask(0o077)
    try:
        update_cache(live, [new])
        update_cache(tmp_path / "made", [new])
    finally:
        os.umask(previous)
    for path in (live, Path(sidecar_path(live))):  # the sidecar is new, and as readable
        status = path.stat()
        assert (status.st_uid, status.st_gid) == owner
        assert stat.S_IMODE(status.st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o600


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    """With one sidecar, beside the file itself: by either name it is the same cache."""
    (tmp_path / "v1").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "v1" / "real")
    write_counts(tmp_path / "new", {(1, 2): {3: 1}}, "legacy", META)
    for path in (tmp_path / "link", tmp_path / "link", tmp_path / "v1" / "real"):
        update_cache(path, [tmp_path / "new"])
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "v1") == {"real", "real.meta.json"}
    assert names(tmp_path) == {"v1", "link", "new", "new.meta.json"}
    for path in (tmp_path / "link", tmp_path / "v1" / "real"):
        with open_cache(path) as cache:
            assert cache.meta is not None
            assert cache.meta.fingerprint == META.fingerprint
            assert cache.followers((1, 2)).tolist() == [(3, 3)]


# ---- what is refused


def damaged(data: bytes, how: str) -> bytes:
    if how == "cut":
        return data[:-3]
    if how == "empty":
        return b""
    if how == "foreign":
        return b"GGUF" + data[4:]
    at = {"count": data.index(b"\x07\x00\x00\x00\x11") + 4, "tail": len(data) - 12}[how]
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("how", ["cut", "empty", "foreign", "count", "tail"])
@pytest.mark.parametrize("which", ["live", "new"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_damage_is_refused_and_nothing_touched(
    tmp_path: Path, fmt: str, which: str, how: str
) -> None:
    """Also a changed count that a merge alone would not notice, and then sign."""
    for name in ("live", "new"):
        write_counts(tmp_path / name, {(1, 2): {3: 1, 7: 0x11}, (2, 3): {4: 5}}, fmt, META)
    (tmp_path / which).write_bytes(damaged((tmp_path / which).read_bytes(), how))
    before = contents(tmp_path)
    said = run("merge", "--update", tmp_path / "live", tmp_path / "new", code=1).stderr
    assert str(tmp_path / which) in said
    assert contents(tmp_path) == before


@pytest.mark.parametrize("which", ["live", "new"])
def test_what_is_no_file(tmp_path: Path, which: str) -> None:
    write_counts(tmp_path / ("new" if which == "live" else "live"), {(1, 2): {3: 1}}, "legacy")
    (tmp_path / which).mkdir()
    before = contents(tmp_path)
    said = run("merge", "--update", tmp_path / "live", tmp_path / "new", code=1).stderr
    assert str(tmp_path / which) in said
    os.rmdir(tmp_path / which)
    os.mkfifo(tmp_path / which)
    if which == "live":  # a pipe would be waited for
        said = run("merge", "--update", tmp_path / "live", tmp_path / "new", code=1).stderr
        assert "found no regular file" in said
    assert contents(tmp_path) == before


def test_a_missing_input_makes_no_file(tmp_path: Path) -> None:
    said = run("merge", "--update", tmp_path / "live", tmp_path / "new", code=1).stderr
    assert f"{tmp_path / 'new'}: No such file" in said
    said = run("merge", "--update", tmp_path / "no" / "live", tmp_path / "new", code=1).stderr
    assert f"{tmp_path / 'no'}: No such file" in said
    assert names(tmp_path) == set()
    with pytest.raises(ParameterError, match="found no inputs"):
        update_cache(tmp_path / "live", [])


def test_the_live_file_is_no_input(tmp_path: Path) -> None:
    """As `--update live.lcd *.lcd` would have it: all counts would double every night."""
    write_counts(tmp_path / "live.lcd", {(1, 2): {3: 1}}, "legacy")
    (tmp_path / "same").symlink_to("live.lcd")
    for name in ("live.lcd", "same"):
        said = run("merge", "--update", tmp_path / "live.lcd", tmp_path / name, code=1).stderr
        assert "found the live file among the inputs" in said
    assert read_counts(tmp_path / "live.lcd") == {(1, 2): {3: 1}}


@pytest.mark.parametrize("exists", [True, False])
def test_a_weight_for_the_live_file_and_each_input(tmp_path: Path, exists: bool) -> None:
    write_counts(tmp_path / "new", {(1, 2): {3: 1}}, "legacy")
    if exists:
        write_counts(tmp_path / "live", {(1, 2): {3: 10}}, "legacy")
    command = ["--update", tmp_path / "live", tmp_path / "new", "--weight", "1/2"]
    assert "found 1 weights, expected 2" in run("merge", *command, code=1).stderr
    run("merge", *command, "--weight", 3)
    assert read_counts(tmp_path / "live") == {(1, 2): {3: 8 if exists else 3}}


# ---- the command


def test_the_command(tmp_path: Path) -> None:
    write_counts(tmp_path / "new", {(1, 2): {3: 1}}, "legacy", META)
    command = ["--update", tmp_path / "live", tmp_path / "new", "--json", "-"]
    first = run("merge", *command)
    assert f"note: {tmp_path / 'live'} was not there: made from the inputs" in first.stderr
    second = run("merge", *command)
    assert second.stderr == ""
    for result, updated in ((first, False), (second, True)):
        body = json.loads(result.stdout)
        assert (body["updated"], body["output"]) == (updated, str(tmp_path / "live"))
        paths = [str(tmp_path / "live")] * updated + [str(tmp_path / "new")]
        assert [each["path"] for each in body["inputs"]] == paths
    other = run("merge", tmp_path / "new", "-o", tmp_path / "out", "--json", "-")
    assert json.loads(other.stdout)["updated"] is False


def test_usage(tmp_path: Path) -> None:
    for arguments in (["x"], ["x", "-o", "y", "--update", "z"], ["--update", "z"]):
        run("merge", *arguments, code=2)


# ---- learning


def test_learning_is_counting(tmp_path: Path, tokenizer: Tokenizer) -> None:
    rng = random.Random(4)
    live = tmp_path / "live.lcd"
    told: Counts = {}
    for _ in range(3):
        streams = [random_stream(rng, n, 30) for n in (0, 1, 2, 3, 60)]
        arrays = [np.array(ids, np.int32) for ids in streams]
        report = learn(live, arrays, tokenizer=tokenizer, options=options(), name="chat")
        told = add(told, count_documents(streams, ALL_ORDERS))
        assert read_counts(live) == told
        assert report.inputs[-1].path == "chat"
    with open_cache(live) as cache:
        assert (cache.format, cache.meta and cache.meta.kind) == ("legacy", "dynamic")
        assert cache.meta is not None
        assert (cache.meta.fingerprint, cache.meta.corpora) == (tokenizer.fingerprint, ("chat",))
        assert cache.meta.n_tokens == 3 * 66
    assert names(tmp_path) == {"live.lcd", "live.lcd.meta.json"}


def test_learning_some_orders_and_decaying(tmp_path: Path) -> None:
    live = tmp_path / "live.lcd"
    learn(live, [[1, 2, 3, 1, 2, 3]], n_min=2, n_max=2)
    assert read_counts(live) == count_documents([[1, 2, 3, 1, 2, 3]])
    learn(live, [[1, 2, 3]], n_min=2, options=options(weights=(Fraction(2), Fraction(5))))
    assert read_counts(live) == {(1, 2): {3: 9}, (2, 3): {1: 2}, (3, 1): {2: 2}}


@pytest.mark.parametrize(("streams", "n_min"), [([], 1), ([[]], 1), ([[5], [6]], 1), ([[5, 6]], 2)])
def test_nothing_to_learn(tmp_path: Path, streams: list[list[int]], n_min: int) -> None:
    with pytest.raises(ParameterError, match="there is nothing to count"):
        learn(tmp_path / "live", streams, n_min=n_min)
    assert names(tmp_path) == set()


def test_learning_with_another_vocabulary(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write_counts(tmp_path / "live", {(1, 2): {3: 1}}, "legacy", THEIRS)
    with pytest.raises(TokenizerMismatchError, match="llama vocabulary"):
        learn(tmp_path / "live", [[1, 2, 3]], tokenizer=tokenizer)
    with pytest.raises(LookupToolsError, match=r"token id 300|id 300"):
        learn(tmp_path / "fresh", [[1, 300]], tokenizer=tokenizer)
    assert names(tmp_path) == {"live", "live.meta.json"}


# ---- at the same time


UPDATER = """
import sys
from lookup_tools import update_cache
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    update_cache(sys.argv[1], [sys.argv[2]])
"""


@pytest.mark.parametrize("fmt", ["legacy", "constmap"])
def test_updates_at_the_same_time_are_all_counted(tmp_path: Path, fmt: str) -> None:
    """The first of them makes the file."""
    made = [random_counts(random.Random(k), 200) for k in range(4)]
    times = 4
    with ExitStack() as stack:
        workers = []
        for k, counts in enumerate(made):
            write_counts(tmp_path / f"new-{k}", counts, fmt, META)
            arguments = [str(tmp_path / "live"), str(tmp_path / f"new-{k}"), str(times)]
            command = [sys.executable, "-c", UPDATER, *arguments]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            workers.append(stack.enter_context(subprocess.Popen(command, **pipes)))
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
    assert [worker.returncode for worker in workers] == [0] * len(made)
    assert read_counts(tmp_path / "live") == add(*made, weights=[Fraction(times)] * len(made))
    assert not [name for name in names(tmp_path) if name.endswith(".tmp")]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Somebody else has the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def has_opened(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Whether a process has come to where it asks for a folder."""
    descriptors = Path(f"/proc/{process.pid}/fd")
    return any(os.path.realpath(each) == str(folder) for each in descriptors.iterdir())


@pytest.fixture
def live(tmp_path: Path) -> Path:
    for name in ("live", "new"):
        write_counts(tmp_path / name, {(1, 2): {3: 1}}, "legacy")
    return tmp_path / "live"


def test_an_update_waits_for_another(tmp_path: Path, live: Path) -> None:
    waiting = threading.Event()

    def progress(phase: str, done: int, total: int | None) -> None:
        if phase == "wait for another update":
            waiting.set()

    arguments = (live, [tmp_path / "new"], options(), progress)
    thread = threading.Thread(target=update_cache, args=arguments)
    with held(tmp_path):
        thread.start()
        assert waiting.wait(60)
        thread.join(0.2)
        assert thread.is_alive()
        assert read_counts(live) == {(1, 2): {3: 1}}
    thread.join(60)
    assert read_counts(live) == {(1, 2): {3: 2}}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
@pytest.mark.parametrize("outcome", ["goes on", "is interrupted"])
def test_a_command_waits_and_can_be_interrupted(tmp_path: Path, live: Path, outcome: str) -> None:
    process = spawn("merge", "--update", live, tmp_path / "new")
    with held(tmp_path):
        wait_until(lambda: has_opened(process, tmp_path))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        if outcome == "is interrupted":
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
    _, said = process.communicate(timeout=60)
    assert b"Traceback" not in said
    assert read_counts(live) == {(1, 2): {3: 1 if outcome == "is interrupted" else 2}}


def test_a_folder_that_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network file systems."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(9, "Bad file descriptor")

    write_counts(tmp_path / "new", {(1, 2): {3: 1}}, "legacy")
    before = contents(tmp_path)
    monkeypatch.setattr(fcntl, "flock", refuse)
    said = run("merge", "--update", tmp_path / "live", tmp_path / "new", code=1).stderr
    assert f"{tmp_path}: cannot be locked against other updates (Bad file descriptor)" in said
    assert contents(tmp_path) == before


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_reader_keeps_what_it_opened(tmp_path: Path, fmt: str) -> None:
    made = random_counts(random.Random(5), 2000, vocab=200)
    write_counts(tmp_path / "live", made, fmt)
    write_counts(tmp_path / "new", random_counts(random.Random(6), 2000, vocab=200), "legacy")
    with open_cache(tmp_path / "live") as cache:
        update_cache(tmp_path / "live", [tmp_path / "new"])
        assert all(dict(cache.followers(ngram).tolist()) == made[ngram] for ngram in made)
    assert read_counts(tmp_path / "live") != made


def test_opening_while_updates_go_on(tmp_path: Path) -> None:
    """Whoever reads file and sidecar apart may meet those of two different updates."""
    rng = random.Random(7)
    live = tmp_path / "live"
    write_counts(live, random_counts(rng, 20_000, vocab=500), "legacy", META)
    small = [random_counts(rng, size, vocab=500) for size in (10, 11, 12)]
    stop, failures = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                open_cache(live).close()
            except LookupToolsError as error:
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    end = time.monotonic() + 2
    while time.monotonic() < end and not failures:
        for counts in small:
            write_counts(live, counts, "legacy", META)
    stop.set()
    for reader in readers:
        reader.join(10)
    assert failures == []


# ---- kills (interrupted and killed processes: test_faults)


def test_killed_twice_between_the_renames(tmp_path: Path) -> None:
    """The sidecar goes first: after a kill it also knows a file that never came. The next one must
    keep the record of the file that is there, not the latest."""
    live = tmp_path / "live"
    sizes = {}
    for k, counts in enumerate(({(1, 2): {3: 1}}, {(1, 2): {3: 2}}, {(1, 2): {3: 1, 4: 1}})):
        write_counts(tmp_path / f"v{k}", counts, "legacy", META)
        sizes[k] = (tmp_path / f"v{k}").read_bytes()
    write_counts(live, {(1, 2): {3: 1}}, "legacy", META)
    for k in (1, 2, 1):  # of the old one's size and of another
        write_counts(live, read_counts(tmp_path / f"v{k}"), "legacy", META)
        live.write_bytes(sizes[0])  # as if the rename had not happened
        with open_cache(live) as cache:
            assert cache.meta is not None
            assert cache.meta.fingerprint == META.fingerprint
    run("merge", "--update", live, tmp_path / "v2")
    assert read_counts(live) == {(1, 2): {3: 2, 4: 1}}


def test_a_process_of_its_own_says_one_line(tmp_path: Path) -> None:
    process = spawn("merge", "--update", tmp_path / "live", tmp_path / "missing")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert_one_line(said.decode())
