"""What a release and continuous integration stand on: pins, targets, workflows, engine wheels.
`make dist-check` tests the built files themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import dist_check
import engines
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = engines.tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["dependency-groups"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

if not (ROOT / "constraints.txt").exists():
    pytest.skip("only part of the source is here", allow_module_level=True)


def pins() -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.lstrip().startswith("#"):
            requirement = Requirement(line)
            found.setdefault(requirement.name, []).append(requirement)
    return found


def declared() -> list[Requirement]:
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), *GROUPS.values()]
    return [Requirement(each) for some in lists for each in some if isinstance(each, str)]


# ---- versions


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_everything_declared_is_pinned_to_a_version_that_fits(requirement: Requirement) -> None:
    """`make lock` writes constraints.txt."""
    found = pins().get(requirement.name.lower().replace("_", "-"), [])
    assert found, f"{requirement.name} is not in constraints.txt: run make lock"
    for pin in found:
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert requirement.specifier.contains(exact.version), f"{pin} is not {requirement}"


def test_a_build_without_isolation_has_what_an_isolated_one_gets() -> None:
    assert set(PROJECT["build-system"]["requires"]) <= set(GROUPS["build"])


def test_the_oldest_dependencies_are_those_declared() -> None:
    assert dist_check.lowest(
        ["numpy>=1.26", "tomli>=2; python_version < '3.11'", "torch>=2.5; extra == 'x'"]
    ) == ["numpy==1.26", "tomli==2; python_version < '3.11'"]
    named = [Requirement(each) for each in dist_check.lowest(PROJECT["project"]["dependencies"])]
    assert [[exact.operator for exact in each.specifier] for each in named] == [["=="]] * len(named)


def test_the_version_stands_in_one_place() -> None:
    assert version("lookup-tools") == PROJECT["project"]["version"]


# ---- targets and workflows


def test_targets_that_ci_runs_exist() -> None:
    """tests/test_docs.py sees to those that documents name."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = re.findall(r"^([a-z][\w -]*):", makefile, re.MULTILINE)
    targets = {name for line in lines for name in line.split()}
    files = [ROOT / ".ci" / "run", *WORKFLOWS]
    named = {
        (path.name, name)
        for path in files
        if path.exists()
        for name in re.findall(r"\bmake ([a-z][\w-]*)", path.read_text(encoding="utf-8"))
    }
    assert named or not any(path.exists() for path in files)
    assert sorted(each for each in named if each[1] not in targets) == []


def program(name: str) -> Path:
    found = Path(sys.executable).with_name(name)
    if not found.exists():
        pytest.skip(f"{name} is not installed (make dist-check installs it)")
    return found


@pytest.mark.skipif(not WORKFLOWS, reason="the workflows are not here")
def test_workflows_are_what_github_reads() -> None:
    command = [program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    subprocess.run([*command, *WORKFLOWS], check=True)


@pytest.mark.skipif(not WORKFLOWS, reason="the workflows are not here")
def test_workflows_leave_no_door_open() -> None:
    command = [program("zizmor"), "--offline", "--no-progress", ROOT / ".github"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_actions_are_pinned_to_commits() -> None:
    for path in WORKFLOWS:
        for action in re.findall(r"uses: (\S+)", path.read_text()):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), f"{path.name}: {action}"


# ---- wheels of engines

# A package whose build takes no time, and fails on request.
BACKEND = """
import os, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    print("compiling with", os.environ.get("SETTING"))
    if os.environ.get("SETTING") == "broken":
        raise SystemExit("compiler error")
    name, setting = "slow_engine-1.0-py3-none-any.whl", os.environ.get("SETTING")
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for part, lines in {
            "METADATA": ["Metadata-Version: 2.1", "Name: slow-engine", "Version: 1.0"],
            "WHEEL": ["Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any"],
            "RECORD": [],
        }.items():
            wheel.writestr("slow_engine-1.0.dist-info/" + part, "\\n".join(lines) + "\\n")
        wheel.writestr("slow_engine.py", "SETTING = %r" % setting)
    return name
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source of slow-engine 1.0 in a folder that pip takes for its only index."""
    source = tmp_path / "slow_engine-1.0"
    source.mkdir()
    (source / "backend.py").write_text(BACKEND)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slow-engine"\nversion = "1.0"\n'
    )
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: slow-engine\nVersion: 1.0\n")
    (tmp_path / "index").mkdir()
    archive = tmp_path / "index" / "slow_engine-1.0"
    shutil.make_archive(str(archive), "gztar", tmp_path, "slow_engine-1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


@pytest.mark.usefixtures("index")
def test_a_wheel_is_built_once_for_each_setting(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "wheels"
    first = engines.wheel("slow-engine==1.0", {"SETTING": "a"}, cache)
    assert re.search(r"== slow-engine==1.0: building, SETTING='a': \d+ s\n", capfd.readouterr().out)
    assert engines.wheel("slow-engine==1.0", {"SETTING": "a"}, cache) == first
    assert "kept from an earlier build" in capfd.readouterr().out
    other = engines.wheel("slow-engine==1.0", {"SETTING": "b"}, cache)
    assert other.parent != first.parent
    assert other.read_bytes() != first.read_bytes()
    assert sorted(path.name for path in cache.iterdir()) == sorted(
        path.parent.name for path in (first, other)
    )


@pytest.mark.usefixtures("index")
def test_a_build_that_fails_is_named_and_leaves_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"== FAILED after \d+ s \(exit 1\): slow-engine==1.0"):
        engines.wheel("slow-engine==1.0", {"SETTING": "broken"}, tmp_path / "wheels")
    said = capfd.readouterr()
    assert "compiler error" in said.out + said.err
    assert list((tmp_path / "wheels").iterdir()) == []


def test_the_key_changes_with_what_a_wheel_depends_on() -> None:
    keys = {
        engines.key("a==1", {}),
        engines.key("a==2", {}),
        engines.key("a==1", {"X": "1"}),
        engines.key("a==1", {"X": "2"}),
    }
    assert len(keys) == 4
    assert engines.key("a==1", {"X": "1", "Y": "2"}) == engines.key("a==1", {"Y": "2", "X": "1"})


def test_engines_without_wheels_are_pinned_exactly() -> None:
    names = {requirement.partition("==")[0] for requirement in engines.requirements()}
    assert set(engines.BUILDS) <= names
