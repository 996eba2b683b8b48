"""Runs jobs again and again, each time with another of their system calls failing (see faulty.c).

    LD_PRELOAD=faulty.so python worker.py FOLDER EIO|ENOSPC|kill [JOB...]

Prints for every job how many calls were made to fail, and how many failures it could do without; an
assertion that does not hold ends it with a traceback.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from click.testing import CliRunner
from helpers import COMMANDS, Counts, legacy_bytes, names, read_counts, write_counts

from lookup_tools import CreateOptions, MergeOptions, merge_caches, open_cache, verify_cache
from lookup_tools.building.create import create_from_tokens
from lookup_tools.tokens import TokenInfo, TokenStream, load_tokens, save_tokens
from lookup_tools.tokens.stream import TokenBatch

OLD: Counts = {(1, 2): {3: 4, 5: 1}}
NEW: Counts = {(1, 2): {3: 8}, (7, 8): {9: 1}}
_faulty = ctypes.CDLL(None).faulty_arm
_faulty.argtypes, _faulty.restype = [ctypes.c_long, ctypes.c_int], ctypes.c_long


class Job(NamedTuple):
    """What stands there before, what is done, and what reads the output."""

    prepare: Callable[[Path], object]
    work: Callable[[Path], object]
    read: Callable[[Path], object]


def read_cache(path: Path) -> Counts:
    with open_cache(path) as cache:
        verify_cache(cache)
    return read_counts(path)


def cache_job(fmt: str, before: Callable[[Path], object] | None = None, **options: Any) -> Job:
    """A cache written where another one stands, or where none does."""

    def work(path: Path) -> None:
        write_counts(path, NEW, fmt, force=before is not None, **options)

    return Job(before or nothing, work, read_cache)


def nothing(path: Path) -> None:
    pass


def old(fmt: str) -> Callable[[Path], object]:
    return lambda path: write_counts(path, OLD, fmt)


def foreign(path: Path) -> None:
    """Another tool's file, which has no sidecar."""
    path.write_bytes(legacy_bytes([(ngram, list(OLD[ngram].items())) for ngram in OLD]))


def tokens(path: Path) -> None:
    ids = np.arange(1_200_000, dtype=np.int32) % 1000
    save_tokens(path, TokenStream(ids, np.array([len(ids)]), TokenInfo(1000)), force=True)


def few_tokens(path: Path) -> None:
    save_tokens(path, TokenStream.from_documents([], TokenInfo(1000)), force=True)


def spilling(path: Path) -> None:
    """A build that spills several runs."""
    ids = np.random.default_rng(1).integers(0, 300, 70_000).astype(np.int32)
    batches = [TokenBatch(ids, np.array([len(ids)]))] * 5
    options = CreateOptions(threads=1, memory=1 << 20, tmpdir=str(path.parent))
    create_from_tokens(batches, TokenInfo(), path, options)


def merging(path: Path) -> None:
    inputs = [path.parent / "a", path.parent / "b"]
    merge_caches(inputs, path, MergeOptions(threads=1, force=True, fmt="legacy"))


def to_merge(path: Path) -> None:
    write_counts(path, OLD, "legacy")
    write_counts(path.parent / "a", NEW, "legacy")
    write_counts(path.parent / "b", OLD)


def reporting(path: Path) -> None:
    """Two outputs at once; the second one is JSON."""
    beside = path.with_suffix(".json")
    arguments = ["--tokens", path.parent / "ids.u16", "-c", 100, "--csv", path, "--json", beside]
    result = CliRunner().invoke(COMMANDS["stats"], [*map(str, arguments), "--force"])
    if result.exit_code:
        assert result.exit_code == 1, result.exception
        name, _, reason = result.stderr.removeprefix("Error: ").strip().rpartition(": ")
        number = next(n for n in (errno.EIO, errno.ENOSPC) if os.strerror(n) == reason)
        raise OSError(number, reason, name)


def to_report(path: Path) -> None:
    (np.arange(300) % 7).astype("<u2").tofile(path.parent / "ids.u16")
    path.write_bytes(b"old")
    path.with_suffix(".json").write_bytes(b"old")


JOBS = {
    "legacy": cache_job("legacy"),
    "legacy-over-legacy": cache_job("legacy", old("legacy")),
    "legacy-over-constmap": cache_job("legacy", old("constmap")),
    "legacy-over-foreign": cache_job("legacy", foreign),
    "bare-legacy-over-legacy": cache_job("legacy", old("legacy"), annex=False),
    "constmap": cache_job("constmap"),
    "constmap-over-legacy": cache_job("constmap", old("legacy")),
    "constmap2-over-constmap": cache_job("constmap2", old("constmap")),
    "create": Job(nothing, spilling, read_cache),
    "merge": Job(to_merge, merging, read_cache),
    "tokens.u16": Job(few_tokens, tokens, lambda path: load_tokens(path).ids.tolist()),
    "tokens.u16.zst": Job(nothing, tokens, lambda path: load_tokens(path).ids.tolist()),
    "report.csv": Job(to_report, reporting, lambda path: len(path.read_bytes()) > 3),
}


def files_in(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


def restore(folder: Path, before: dict[str, bytes]) -> None:
    for name in names(folder):
        place = folder / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    for name, data in before.items():
        (folder / name).write_bytes(data)


def answer(job: Job, path: Path) -> object:
    return job.read(path) if path.exists() else None


def fail_once(job: Job, path: Path, k: int, number: int) -> str:
    """The k-th call fails: what became of the job."""
    folder = path.parent
    before, good = files_in(folder), answer(job, path)
    _faulty(k, number)
    try:
        job.work(path)
        failure = None
    except OSError as error:
        failure = error
    if _faulty(0, 0):
        return "untouched"
    if failure is None:
        return "not needed"
    assert failure.errno == number, failure
    assert failure.filename is not None, (k, failure)
    assert str(failure.filename).startswith(str(folder)), (k, failure)
    assert ".tmp" not in str(failure.filename), (k, failure)
    if path.suffix != ".csv":  # one of two outputs may be done
        assert names(folder) == set(before), (k, names(folder))
        assert answer(job, path) == good, k
    restore(folder, before)
    return "failed"


def kill_once(job: Job, path: Path, k: int, done: object) -> str:
    """The process dies at the k-th call: what is there then."""
    folder = path.parent
    before, good = files_in(folder), answer(job, path)
    child = os.fork()
    if child == 0:
        _faulty(k, -1)
        job.work(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, k
        return "untouched"
    assert os.WTERMSIG(status) == signal.SIGKILL, (k, status)
    assert answer(job, path) in (good, done), k
    left = names(folder) - set(before) - {path.name, f"{path.name}.meta.json"}
    assert all(name.endswith(".tmp") or name.startswith("lookup-spill") for name in left), (k, left)
    restore(folder, before)
    return "failed"


def try_all(name: str, folder: Path, how: str) -> dict[str, int]:
    """Every call of one job fails once; in how many ways that ended."""
    job, path = JOBS[name], folder / name
    folder.mkdir()
    job.prepare(path)
    before = files_in(path.parent)
    job.work(path)
    done = answer(job, path)
    restore(path.parent, before)
    found = {"failed": 0, "not needed": 0}
    for k in range(1, 10_000):
        if how == "kill":
            outcome = kill_once(job, path, k, done)
        else:
            outcome = fail_once(job, path, k, getattr(errno, how))
        if outcome == "untouched":
            break
        found[outcome] += 1
        if outcome == "not needed":
            assert answer(job, path) == done, k
            restore(path.parent, before)
    return found


def main() -> None:
    folder, how, *jobs = sys.argv[1:]
    for name in jobs or JOBS:
        found = try_all(name, Path(folder) / name, how)
        print(f"{name}: {sum(found.values())} calls, {found['not needed']} not needed")


if __name__ == "__main__":
    main()
