"""The packages' order: each imports only what stands above it, so that the tree can be read from
documents to reports without looking back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lookup_tools"
CORE = PACKAGE.parent / "csrc"
# From what everything may use to what nothing may.
ORDER = (
    ("errors", "_core"),
    ("_native",),
    ("system",),
    ("tokenizers",),
    ("corpora",),
    ("tokens",),
    ("counting",),
    ("formats",),
    ("cache",),
    ("building",),
    ("cluster",),
    ("drafting",),
    ("replaying",),
    ("evaluation",),
    ("reports",),
    ("engine", "cli"),
)
FLOOR = {name: floor for floor, names in enumerate(ORDER) for name in names}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms that a module imports, wherever in it and whatever for."""
    found = set()
    for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(statement, ast.ImportFrom) and statement.module == "lookup_tools":
            names = [f"lookup_tools.{each.name}" for each in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{path}: a relative import hides where it leads"
            names = [statement.module or ""]
        elif isinstance(statement, ast.Import):
            names = [each.name for each in statement.names]
        found |= {name.split(".")[1] for name in names if name.startswith("lookup_tools.")}
    return found


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_room_has_a_floor() -> None:
    assert {room(path) for path in MODULES} | {"_core"} == set(FLOOR)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_lead_upwards(path: Path) -> None:
    own = room(path)
    wrong = {name for name in imported(path) - {own} if FLOOR[name] >= FLOOR[own]}
    assert wrong == set(), f"{own} stands above {wrong}"


def test_the_core_below_drafting_and_building_stands_alone() -> None:
    """An engine links core and draft: neither may need how files are built."""
    allowed = {
        "core": {"core"},
        "draft": {"core", "draft"},
        "build": {"core", "build"},
        "files": {"core", "files"},  # and the public calls of all others
    }
    for path in CORE.glob("*/*.[ch]"):
        lines = path.read_text(encoding="utf-8").splitlines()
        rooms = {
            line.split("/")[1]
            for line in lines
            if line.startswith('#include "../') and "/" in line[13:]
        }
        own = path.parent.name
        assert rooms <= allowed.get(own, {"core", own}), path
