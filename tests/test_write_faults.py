"""Every system call that writes fails once, or is the last one the process makes: outputs are whole
or what they were before, and nothing else stays behind."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import names, run

PRELOAD = Path(__file__).parent / "preload"
JOBS = 13
EXHAUSTIVE = bool(os.environ.get("LOOKUP_EXHAUSTIVE"))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes calls fail."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and LD_PRELOAD")
    library = tmp_path_factory.mktemp("preload") / "faulty.so"
    options = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC"]
    command = [compiler, *options, str(PRELOAD / "faulty.c"), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: hundreds of files are written and flushed."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="lookup-faults-", dir=memory) as name:
        yield Path(name)


@pytest.mark.parametrize("how", ["EIO", "kill", *(["ENOSPC"] if EXHAUSTIVE else [])])
def test_every_call_that_writes_fails_once(faulty: Path, folder: Path, how: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PRELOAD / "worker.py"), str(folder), how],
        env=os.environ | {"LD_PRELOAD": str(faulty)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\S+): (\d+) calls, (\d+) not needed$", done.stdout, re.MULTILINE)
    print(f"{sum(int(calls) for _, calls, _ in rows)} calls, {how} at each of them")
    assert len(rows) == JOBS
    for name, calls, spare in rows:
        assert int(calls) >= 5, name
        # What a job can do without is telling the disk to keep the folder's new names, and links
        # where there are none.
        assert int(spare) <= (0 if how == "kill" else 3), name


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("option", ["--csv", "--json", "--html", "--plot"])
def test_every_report_on_a_full_disk(tmp_path: Path, option: str) -> None:
    if option in ("--html", "--plot"):
        pytest.importorskip("matplotlib")
    ids = tmp_path / "ids.u16"
    ids.write_bytes(bytes(range(200)) * 2)
    target = tmp_path / "full.svg"
    target.symlink_to("/dev/full")
    result = run("stats", "--tokens", ids, "-c", 100, option, target, code=1)
    assert f"{target}: {os.strerror(errno.ENOSPC)}" in result.stderr
    assert names(tmp_path) == {"ids.u16", "full.svg"}
    assert target.is_symlink()
