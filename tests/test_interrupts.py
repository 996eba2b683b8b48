"""Ctrl-C and its kin: a command ends within a second, whatever it is doing, and leaves nothing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import (
    command_line,
    legacy_bytes,
    names,
    random_counts,
    wait_until_at_work,
    write_counts,
)

WITHIN = 1.0

# Ends by itself after many seconds only: one call into C, or a lock that is never released, which
# is what an exception in the middle of the standard library's own locks leaves behind.
STUCK = """
import sys, threading, time
import numpy as np
from lookup_tools._native import ffi, lib
from lookup_tools.system.atomic import atomic_output
from lookup_tools.system.signals import terminate_cleanly
from lookup_tools.counting.runs import SpillDirectory

def long_call():
    zeros = ffi.from_buffer(np.zeros(1 << 33, np.uint8))
    lib.lookup_fnv1a_serial(0, zeros, len(zeros))

def lost_lock():
    lock = threading.Lock()
    try:
        time.sleep(30)
    except BaseException:
        lock.acquire()
        lock.acquire()

where, out, how = sys.argv[1:]
with terminate_cleanly(), SpillDirectory(where) as spill, atomic_output(out, force=True) as file:
    spill.new_run(1).write_bytes(b"run")
    file.write(b"x" * 2_000_000)
    print("ready", flush=True)
    {"long": long_call, "lost": lost_lock}[how]()
"""


def seconds_to_end(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> float:
    """From a signal to the end of a process."""
    start = time.monotonic()
    process.send_signal(number)
    process.wait(60)
    return time.monotonic() - start


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("long", signal.SIGINT),
        ("long", signal.SIGTERM),
        ("lost", signal.SIGINT),
        ("lost", signal.SIGHUP),
    ],
)
def test_a_program_that_cannot_end_is_ended(tmp_path: Path, how: str, number: int) -> None:
    out, spill = tmp_path / "out", tmp_path / "spill"
    out.write_bytes(b"old")
    spill.mkdir()
    command = [sys.executable, "-c", STUCK, str(spill), str(out), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        took = seconds_to_end(process, number)
        said = process.stderr.read().decode()
    if "MemoryError" in said:
        pytest.skip("no room for 8 GB of zeros, which take none where memory is overcommitted")
    assert process.returncode == 128 + number
    assert took < 5
    assert said == ("interrupted; outputs are whole or absent\n" if number == signal.SIGINT else "")
    assert names(tmp_path) == {"out", "spill"}
    assert names(spill) == set()
    assert out.read_bytes() == b"old"


def test_other_signals_end_nothing() -> None:
    script = """
import signal, sys, time
from lookup_tools.system.signals import terminate_cleanly
with terminate_cleanly():
    signal.signal(signal.SIGUSR1, lambda *_: None)
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(0.7)
print("done")
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for number in (signal.SIGUSR1, signal.SIGWINCH, signal.SIGCHLD):
            process.send_signal(number)
        said, _ = process.communicate(b"\n", timeout=60)
    assert (process.returncode, said) == (0, b"done\n")


def test_the_watch_ends_with_the_block() -> None:
    """A signal that was survived does not end the program later."""
    script = """
import os, signal, threading, time
from lookup_tools.system.signals import terminate_cleanly
before = threading.active_count()
try:
    with terminate_cleanly():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
except SystemExit:
    pass
assert threading.active_count() == before
assert signal.set_wakeup_fd(-1) == -1
time.sleep(0.8)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# ---- the commands


def start_create(folder: Path) -> list[str]:
    path = folder / "ids.u16"
    np.random.default_rng(1).integers(0, 30_000, 8_000_000).astype("<u2").tofile(path)
    return command_line("create", "--tokens", path, "-o", folder / "out", "--threads", 1)


def start_merge(folder: Path) -> list[str]:
    made = random_counts(random.Random(1), 30_000, vocab=3000)
    records = [(ngram, sorted(made[ngram].items())) for ngram in made]
    (folder / "in").write_bytes(legacy_bytes(records))
    inputs = [folder / "in"] * 300
    return command_line("merge", *inputs, "-o", folder / "out", "--threads", 1)


def start_stats(folder: Path) -> list[str]:
    """One chunk of all tokens is one call into C."""
    path = folder / "ids.u16"
    np.random.default_rng(1).integers(0, 3000, 6_000_000).astype("<u2").tofile(path)
    return command_line("stats", "--tokens", path, "-c", 6_000_000, "--csv", folder / "out")


def start_recover(folder: Path) -> list[str]:
    """A key that no walk reaches, among 60,000 ids: all pairs are tried."""
    made = {(1, 2): {3: 1}, (50_000, 50_001): {60_000: 1}}
    write_counts(folder / "in", made, annex=False)  # type: ignore[arg-type]
    return command_line("inspect", folder / "in", "--recover-keys", "--threads", 1)


@pytest.mark.parametrize("start", [start_create, start_merge, start_stats, start_recover])
def test_ctrl_c_ends_a_command_within_a_second(
    tmp_path: Path, start: Callable[[Path], list[str]]
) -> None:
    command = start(tmp_path)
    before = names(tmp_path)
    took = []
    for wait in (0.7, 0.5, 1.0):  # the best counts: the machine may be busy
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_until_at_work(process)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(wait)
            took.append(seconds_to_end(process))
            assert process.stderr is not None
            said = process.stderr.read().decode()
        # Python ends by the signal itself where it interrupted code made from a string.
        assert process.returncode in (130, -signal.SIGINT)
        assert said == "interrupted; outputs are whole or absent\n"
        assert names(tmp_path) == before
        if took[-1] < WITHIN:
            break
    print("seconds from the signal to the end:", *(f"{each:.2f}" for each in took))
    assert min(took) < WITHIN, took
