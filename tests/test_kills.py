"""SIGKILL at random points of real commands: the old file or the new one, whole, and nothing lost.

LOOKUP_KILLS=200 for more of them (`make long-test`). tests/test_write_faults.py kills at every
single call that writes.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from helpers import create_from, legacy_bytes, names, spawn

from lookup_tools import open_cache, verify_cache
from lookup_tools.tokens import TokenInfo

KILLS = int(os.environ.get("LOOKUP_KILLS", "12"))
INFO = TokenInfo(2000, "f" * 32, "old", ("old corpus",))


class Job(NamedTuple):
    """A command, its output's format, and what makes the file that stands there before."""

    command: str
    fmt: str
    before: Callable[[Path, str], object] | None

    def __str__(self) -> str:
        over = f"-over-{self.before.__name__}" if self.before else ""
        return f"{self.command}-{self.fmt}{over}"


def old(path: Path, fmt: str) -> None:
    create_from(path, [[1, 2, 3, 4]], INFO, fmt=fmt)


def foreign(path: Path, fmt: str) -> None:
    """Another tool's legacy file, which has no sidecar."""
    path.write_bytes(legacy_bytes([((1, 2), [(3, 1)]), ((2, 3), [(4, 1)])]))


JOBS = [
    Job("create", "constmap", old),
    Job("create", "legacy", old),
    Job("create", "constmap", None),
    Job("merge", "constmap", old),
    Job("merge", "legacy", old),
    Job("merge", "legacy", foreign),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw ids, and two caches of some 200,000 pairs."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(1)
    rng.integers(0, 2000, 1_000_000).astype("<u2").tofile(folder / "ids.u16")
    for name, fmt in (("a", "constmap"), ("b", "legacy")):
        ids = rng.integers(0, 2000, 200_000).tolist()
        create_from(folder / name, [ids], INFO, fmt=fmt)
    return folder


def started(job: Job, inputs: Path, out: Path) -> subprocess.Popen[bytes]:
    given = ["--tokens", inputs / "ids.u16"]
    if job.command == "merge":
        given = [inputs / "a", inputs / "b"]
    return spawn(job.command, *given, "-o", out, "--format", job.fmt, "--force")


def is_writing(out: Path) -> bool:
    return any(name.startswith(f".{out.name}.") for name in names(out.parent))


def kill_at_random(
    process: subprocess.Popen[bytes], out: Path, seconds: tuple[float, float]
) -> None:
    """Half of the time at any moment, else while it writes."""
    whole, writing = seconds
    rng = random.Random()
    if rng.random() < 0.5:
        time.sleep(whole * rng.random())
    else:
        while process.poll() is None and not is_writing(out):
            time.sleep(0.001)
        time.sleep(writing * rng.random())
    process.kill()
    process.communicate()


def measured(job: Job, inputs: Path, out: Path) -> tuple[float, float]:
    """Seconds of a whole run, and those from its first output on."""
    begin = time.monotonic()
    process = started(job, inputs, out)
    while process.poll() is None and not is_writing(out):
        time.sleep(0.001)
    wrote = time.monotonic()
    _, said = process.communicate()
    assert process.returncode == 0, said
    return time.monotonic() - begin, time.monotonic() - wrote


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_kills_at_random_leave_the_old_file_or_the_new(
    tmp_path: Path, inputs: Path, job: Job
) -> None:
    out = tmp_path / "out"
    untouched = {name: (inputs / name).read_bytes() for name in names(inputs)}

    def begin_anew() -> None:
        for name in names(tmp_path):
            (tmp_path / name).unlink()
        if job.before:
            job.before(out, job.fmt)

    begin_anew()
    before = out.read_bytes() if job.before else None
    seconds = measured(job, inputs, out)
    new = out.read_bytes()
    found: Counter[str] = Counter()
    begin_anew()
    for _ in range(-(-KILLS // len(JOBS))):
        kill_at_random(started(job, inputs, out), out, seconds)
        after = out.read_bytes() if out.exists() else None
        assert after in (before, new)
        found["new" if after == new else "old"] += 1
        if after is not None:
            with open_cache(out) as cache:
                verify_cache(cache)
        left = names(tmp_path) - {"out", "out.meta.json"}
        assert all(name.startswith(".out.") and name.endswith(".tmp") for name in left), left
        found["temporary files left"] += len(left)
        for name in left:
            (tmp_path / name).unlink()
        if after == new:
            begin_anew()
    assert {name: (inputs / name).read_bytes() for name in names(inputs)} == untouched
    print(f"{found['old'] + found['new']} kills: {dict(found)}")
    # Kills that all come too late would show nothing; a few may, by chance.
    assert found["old"] or found["new"] < 10
