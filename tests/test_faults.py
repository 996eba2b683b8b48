"""Full disks and signals: an output is whole or absent, and nothing else is left behind. (Kills are
in test_kills, but for those of updates.)"""

from __future__ import annotations

import fcntl
import os
import pty
import random
import resource
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import (
    assert_one_line,
    contents,
    create_from,
    legacy_bytes,
    merge_unprivileged,
    names,
    random_counts,
    read_counts,
    run,
    spawn,
    unprivileged_folder,
    wait_until_at_work,
    write_counts,
)

from lookup_tools import open_cache, verify_cache
from lookup_tools.cache.overview import all_blocks
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.tokens import TokenInfo

N_TOKENS = 1_500_000


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw ids, enough for a build of some tenths of a second."""
    path = tmp_path_factory.mktemp("tokens") / "ids.u16"
    np.random.default_rng(1).integers(0, 2000, N_TOKENS).astype("<u2").tofile(path)
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no right to mount a tmpfs here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Its exit code and what it said on stderr."""
    _, said = process.communicate(timeout=60)
    return process.returncode, said.decode()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    """Whether it came true while the process ran."""
    while process.poll() is None:
        if condition():
            return True
        time.sleep(0.001)
    return False


# ---- row 9: a full disk


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("fmt", ["constmap", "legacy", "constmap2"])
def test_dev_full(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "in", random_counts(random.Random(1), 500))
    result = run("merge", tmp_path / "in", "-o", "/dev/full", "--format", fmt, code=1)
    assert "/dev/full: No space left on device" in result.stderr
    assert not os.path.exists("/dev/full.meta.json")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_other_outputs_on_a_full_disk(tmp_path: Path, model: Path, text: Path) -> None:
    common = ["-m", model, "-f", text]
    for arguments in (
        ["create", *common, "-o", tmp_path / "o", "--save-tokens", "/dev/full"],
        ["create", *common, "-o", tmp_path / "p", "--json", "/dev/full"],
        ["stats", *common, "-c", 100, "--csv", "/dev/full"],
    ):
        result = run(*arguments, code=1)  # type: ignore[arg-type]
        assert "/dev/full: No space left on device" in result.stderr
    assert not (tmp_path / "o").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_standard_output_on_a_full_disk(tmp_path: Path) -> None:
    write_counts(tmp_path / "in", random_counts(random.Random(1), 500))
    with open("/dev/full", "wb") as full:
        code, said = finish(spawn("inspect", tmp_path / "in", "--dump", stdout=full))
    assert code == 1
    assert "No space left on device" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("fmt", ["constmap", "legacy"])
def test_a_small_disk(small_disk: Path, tokens: Path, fmt: str) -> None:
    before = names(small_disk)
    out = small_disk / "out"
    result = run("create", "--tokens", tokens, "-o", out, "--format", fmt, code=1)
    assert f"{out}: No space left on device" in result.stderr
    assert names(small_disk) == before
    create_from(out, [[1, 2, 3, 4]], fmt=fmt)
    kept = names(small_disk)
    run("create", "--tokens", tokens, "-o", out, "--format", fmt, "--force", code=1)
    assert names(small_disk) == kept
    assert read_counts(out) == {(1, 2): {3: 1}, (2, 3): {4: 1}}


# ---- row 25: temporary files


def test_a_small_tmpdir_is_noticed_up_front(tmp_path: Path, small_disk: Path, tokens: Path) -> None:
    result = run(
        "create",
        "--tokens",
        tokens,
        "-o",
        tmp_path / "out",
        "--memory",
        "4M",
        "--tmpdir",
        small_disk,
        code=1,
    )
    assert str(small_disk) in result.stderr
    assert "MiB free, expected at least" in result.stderr
    assert names(small_disk) == set()
    assert not (tmp_path / "out").exists()


def test_a_small_tmpdir_in_merging(tmp_path: Path, small_disk: Path) -> None:
    rng = random.Random(2)
    made = random_counts(rng, 30_000, vocab=2000, followers=6)
    records = [(ngram, sorted(made[ngram].items())) for ngram in made]
    rng.shuffle(records)
    (tmp_path / "in").write_bytes(legacy_bytes(records))
    filler = small_disk / "filler"
    filler.write_bytes(bytes(900_000))
    result = run(
        "merge",
        tmp_path / "in",
        "-o",
        tmp_path / "out",
        "--memory",
        "2M",
        "--tmpdir",
        small_disk,
        code=1,
    )
    assert str(small_disk) in result.stderr
    assert names(small_disk) == {"filler"}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["create", "merge"])
def test_a_missing_tmpdir_is_noticed_up_front(
    tmp_path: Path, model: Path, text: Path, command: str
) -> None:
    """Not hours later, at the first spill."""
    write_counts(tmp_path / "in", {(1, 2): {3: 1}}, "legacy")
    arguments = [tmp_path / "in"] if command == "merge" else ["-m", model, "-f", text]
    missing = tmp_path / "missing"
    result = run(
        command, *arguments, "-o", tmp_path / "out", "--memory", "1M", "--tmpdir", missing, code=1
    )
    assert str(missing) in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_spilled_runs_go_on_a_signal(tmp_path: Path, tokens: Path, number: int) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    process = spawn(
        "create", "--tokens", tokens, "-o", tmp_path / "out", "--memory", "4M", "--tmpdir", spill
    )
    assert wait_for(lambda: any(spill.glob("*/*")), process)
    process.send_signal(number)
    code, said = finish(process)
    assert code == 128 + number
    assert "Traceback" not in said
    assert names(spill) == set()
    assert names(tmp_path) == {"spill"}


# ---- too little memory


@pytest.mark.parametrize("megabytes", [175, 200, 225, 250])
def test_too_little_memory(tmp_path: Path, tokens: Path, megabytes: int) -> None:
    """Wherever it runs out: one line, and no output."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    out = tmp_path / "out"
    process = spawn("create", "--tokens", tokens, "-o", out, preexec_fn=limit)
    code, said = finish(process)
    assert code in (0, 1)
    assert names(tmp_path) == ({"out"} if code == 0 else set())
    if "ImportError" in said or "OpenBLAS" in said:
        pytest.skip("not even the libraries can be loaded")
    if code:
        assert_one_line(said)
        assert "out of memory: pass a smaller --memory" in said


# ---- signals while writing


@pytest.mark.parametrize("fmt", ["constmap", "legacy"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_writing_leaves_nothing(
    tmp_path: Path, tokens: Path, number: int, fmt: str
) -> None:
    process = spawn("create", "--tokens", tokens, "-o", tmp_path / "out", "--format", fmt)
    assert wait_for(lambda: any(tmp_path.iterdir()), process)
    process.send_signal(number)
    code, said = finish(process)
    if code:  # it may have been done already
        assert code == 128 + number
        assert names(tmp_path) == set()
        assert "Traceback" not in said
    else:
        assert names(tmp_path) <= {"out", "out.meta.json"}
    if number == signal.SIGINT and code:
        assert said.startswith("interrupted")


def test_ctrl_c_at_any_time_leaves_nothing_half_done(tmp_path: Path, tokens: Path) -> None:
    rng = random.Random(3)
    out = tmp_path / "out"
    for _ in range(6):
        process = spawn("create", "--tokens", tokens, "-o", out)
        wait_until_at_work(process)
        time.sleep(0.7 * rng.random())
        process.send_signal(signal.SIGINT)
        code, said = finish(process)
        assert code in (0, 128 + signal.SIGINT, -signal.SIGINT), said
        assert "Traceback" not in said
        assert names(tmp_path) <= {"out"}
        if out.exists():  # it came after the rename
            assert "nothing was written" not in said
            with open_cache(out) as cache:
                verify_cache(cache)
            out.unlink()
        else:
            assert code


# ---- updates of a live file


@pytest.fixture
def large(tmp_path: Path) -> tuple[Path, Path]:
    """A live file and a new one that take a moment to merge."""
    rng = np.random.default_rng(1)
    for name in ("live", "new"):
        info = TokenInfo(2000, "f" * 32, "small", (name,))
        batch = rng.integers(0, 2000, 150_000).tolist()
        create_from(tmp_path / name, [batch], info, kind="dynamic")
    return tmp_path / "live", tmp_path / "new"


def started_update(live: Path, new: Path) -> subprocess.Popen[bytes]:
    """One that has begun to write: its temporary file is there."""
    listing = names(live.parent)
    process = spawn("merge", "--update", live, new)
    while process.poll() is None and names(live.parent) == listing:
        time.sleep(0.001)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_update_changes_nothing(
    tmp_path: Path, large: tuple[Path, Path], number: signal.Signals
) -> None:
    before = contents(tmp_path)
    process = started_update(*large)
    process.send_signal(number)
    code, said = finish(process)
    assert "Traceback" not in said
    if code:  # it may have been done already
        assert code == 128 + number
        assert contents(tmp_path) == before


def total_count(path: Path) -> int:
    with open_cache(path) as cache:  # the sidecar is compared on the way
        assert cache.meta is not None
        assert cache.meta.fingerprint == "f" * 32
        return sum(int(block.entries[:, 1].sum()) for block in all_blocks(cache))


def test_a_killed_update_leaves_the_old_file_or_the_new(
    tmp_path: Path, large: tuple[Path, Path]
) -> None:
    """With a sidecar that fits, however many are killed in a row."""
    live, new = large
    rng = random.Random(8)
    total, step = total_count(live), total_count(new)
    process, start = started_update(live, new), time.monotonic()
    process.communicate()
    writing = time.monotonic() - start
    total += step
    assert total_count(live) == total
    outcomes = []
    for _ in range(6):
        process = started_update(live, new)
        time.sleep(writing * rng.random())
        process.kill()
        process.communicate()
        outcomes.append(total_count(live) - total)
        total += outcomes[-1]
    assert set(outcomes) <= {0, step}
    assert 0 in outcomes


# ---- row 2: unreadable inputs


def test_row_02_an_unreadable_file_is_left_alone() -> None:
    """Refreshing a dynamic cache that may not be read."""
    with unprivileged_folder() as folder:
        old, new = folder / "old.lcd", folder / "new"
        for path in (old, new):
            write_counts(path, {(1, 2): {3: 1}}, "legacy", CacheMeta())
            path.chmod(0o644)
        before, inode, listing = old.read_bytes(), old.stat().st_ino, names(folder)
        old.chmod(0)
        done = merge_unprivileged(folder, old, new, "-o", old, "--force")
        assert done.returncode == 1
        assert_one_line(done.stderr)
        assert f"{old}: Permission denied" in done.stderr
        old.chmod(0o600)
        assert (old.read_bytes(), old.stat().st_ino) == (before, inode)
        assert names(folder) == listing


def test_row_02_a_refresh_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """For users who may read everything: the other input is a folder."""
    old = tmp_path / "old.lcd"
    write_counts(old, {(1, 2): {3: 1}}, "legacy")
    before, listing = old.read_bytes(), names(tmp_path)
    (tmp_path / "folder").mkdir()
    result = run("merge", old, tmp_path / "folder", "-o", old, "--force", code=1)
    assert str(tmp_path / "folder") in result.stderr
    assert old.read_bytes() == before
    assert names(tmp_path) == listing | {"folder"}


def test_a_folder_that_refuses(tmp_path: Path) -> None:
    write_counts(tmp_path / "in", {(1, 2): {3: 1}})
    result = run("merge", tmp_path / "in", "-o", tmp_path / "missing" / "out", code=1)
    assert str(tmp_path / "missing" / "out") in result.stderr
    result = run("merge", tmp_path / "in", "-o", tmp_path, code=1)
    assert str(tmp_path) in result.stderr


def test_one_line_for_a_process_too(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"GGUF" + bytes(50))
    code, said = finish(spawn("merge", tmp_path / "x", "-o", tmp_path / "o"))
    assert code == 1
    assert_one_line(said)


# ---- row 24: progress


def seconds_to_progress(tmp_path: Path, model: Path, text: Path) -> float:
    """From start to the first progress on a terminal."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    start = time.monotonic()
    process = spawn(
        "create", "-m", model, "-f", text, "-o", tmp_path / "out", "--force", stderr=follower
    )
    os.close(follower)
    first = float("inf")
    seen = b""
    while time.monotonic() - start < 60:
        ready, _, _ = select.select([leader], [], [], 0.2)
        if ready:
            try:
                data = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            first = min(first, time.monotonic() - start)
            seen += data
        elif process.poll() is not None:
            break
    os.close(leader)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"tokenize and count" in seen
    return first


def test_progress_within_two_seconds(tmp_path: Path, model: Path) -> None:
    text = tmp_path / "text"
    sentence = "the man of the house said {} times that the end of the road is near.\n"
    with open(text, "w", encoding="utf-8") as file:
        for start in range(0, 400_000, 1000):
            file.write(
                "".join(sentence.format(k * 7919 % 10_007) for k in range(start, start + 1000))
            )
    # the best of three, since the machine may be busy
    for _ in range(3):
        if seconds_to_progress(tmp_path, model, text) < 2:
            return
    pytest.fail("no progress within two seconds, three times")


def test_no_progress_where_nobody_looks(tmp_path: Path, model: Path, text: Path) -> None:
    code, said = finish(spawn("create", "-m", model, "-f", text, "-o", tmp_path / "out"))
    assert (code, said) == (0, "")
