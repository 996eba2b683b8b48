"""The same input gives the same bytes, whatever surrounds the run: docs/format.md's promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers import SENTENCES

# Every output of a run, by what it is called: a cache of each kind and format, with sidecars.
CREATE = {
    "static": (),
    "static2": ("--format", "constmap2"),
    "legacy": ("--format", "legacy"),
    "dynamic": ("--kind", "dynamic"),
    "pruned": ("--min-count", "2", "--max-size", "20K"),
}

# Environment variables, options, and the name of the output's folder.
SURROUNDINGS: dict[str, tuple[dict[str, str], Sequence[str], str]] = {
    "hash seed 0": ({"PYTHONHASHSEED": "0"}, ("--threads", "1"), "out"),
    "hash seed 1": ({"PYTHONHASHSEED": "1"}, ("--threads", "2"), "out"),
    "spilled": ({"PYTHONHASHSEED": "2"}, ("--threads", "2", "--memory", "300K"), "out"),
    "C": ({"LC_ALL": "C", "PYTHONUTF8": "0", "TZ": "UTC"}, (), "out"),
    "UTF-8": ({"LC_ALL": "C.UTF-8", "TZ": "Asia/Kathmandu", "LANG": "de_DE"}, (), "öut put"),
}


# One process for each of the surroundings runs all of its commands.
RUN_ALL = "import helpers, json, sys; [helpers.run(*line) for line in json.load(sys.stdin)]"


def run_all(folder: Path, env: dict[str, str], lines: Sequence[Sequence[str]]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), **env},
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def outputs(folder: Path, model: Path, text: str, surroundings: str) -> dict[str, bytes]:
    """Build, merge and convert in `folder`; every file written, by name without its prefix."""
    env, options, home = SURROUNDINGS[surroundings]
    prefix = f"{home}/{surroundings[0]}-"
    (folder / home).mkdir(parents=True)
    (folder / "corpus.txt").write_text(text, encoding="utf-8")
    common = ("create", "-m", str(model), "-f", "corpus.txt", *options)
    lines = [(*common, "-o", prefix + name, *more) for name, more in CREATE.items()]
    made = [prefix + name for name in ("static", "legacy", "static2")]
    lines.append(("merge", *made, "-o", f"{prefix}merged", *options))
    run_all(folder, env, lines)
    return {path.name[2:]: path.read_bytes() for path in (folder / home).iterdir()}


@pytest.fixture(scope="module")
def text() -> str:
    return "\n\n".join(f"{k} {s} {k * k % 97}, ünïcödé" for k in range(300) for s in SENTENCES)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, model: Path, text: str) -> dict[str, bytes]:
    found = outputs(tmp_path_factory.mktemp("first"), model, text, "hash seed 0")
    assert {*CREATE, "merged", "legacy.meta.json", "dynamic.meta.json"} <= set(found)
    return found


@pytest.mark.parametrize("surroundings", list(SURROUNDINGS)[1:])
def test_surroundings_do_not_change_the_bytes(
    tmp_path: Path, model: Path, text: str, expected: dict[str, bytes], surroundings: str
) -> None:
    found = outputs(tmp_path / "elsewhere", model, text, surroundings)
    assert set(found) == set(expected)
    assert [name for name in expected if found[name] != expected[name]] == []


def test_what_stood_there_before_does_not_change_the_bytes(
    tmp_path: Path, model: Path, text: str, expected: dict[str, bytes]
) -> None:
    """A sidecar goes on naming the file before; what it says of the new one comes first."""
    (tmp_path / "old.txt").write_text("the end of the day\n" * 9, encoding="utf-8")
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
    common = ("create", "-m", str(model), "-o", "out", "--format", "legacy")
    run_all(tmp_path, {}, [(*common, "-f", "old.txt"), (*common, "-f", "corpus.txt", "--force")])
    assert (tmp_path / "out").read_bytes() == expected["legacy"]
    said, wanted = (
        json.loads(data)["files"]
        for data in ((tmp_path / "out.meta.json").read_bytes(), expected["legacy.meta.json"])
    )
    assert said[:1] == wanted


def test_surroundings_reach_the_command() -> None:
    """The environments above are not refused or ignored: Python starts, and differs, in each."""
    code = "import time, locale; print(hash('a'), time.timezone, locale.getpreferredencoding())"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for env, _, _ in SURROUNDINGS.values()
    }
    assert len(said) == len(SURROUNDINGS)
