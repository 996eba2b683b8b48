"""The stored inputs of the Python fuzz targets, replayed; tests/c does the same for the C ones."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from fuzz.run import TARGETS

FUZZ = Path(__file__).with_name("fuzz")
# For all targets together, C ones included.
MOST_FILES, MOST_BYTES = 200, 300_000


def stored(kind: str, target: str) -> list[Path]:
    return sorted(path for path in (FUZZ / kind / target).rglob("*") if path.is_file())


@pytest.mark.parametrize("target", TARGETS)
def test_stored_inputs_raise_errors_of_ours_or_none(target: str, tmp_path: Path) -> None:
    check = import_module(f"fuzz.{target}").check
    inputs = stored("corpus", target) + stored("crashes", target)
    assert inputs
    for path in inputs:
        try:
            check(path.read_bytes(), tmp_path)
        except Exception as error:
            raise AssertionError(f"{path}: {error!r}") from error


def test_the_stored_inputs_stay_small() -> None:
    files = stored("corpus", ".")
    assert len(files) < MOST_FILES
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
