"""The documents are true: examples run, generated parts are current, names and links exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import doc_examples
import docs_reference
import docs_site
import numpy as np
import pytest
from sybil.example import SybilFailure

import lookup_tools as lt
from lookup_tools.cache.load_cost import load_cache
from lookup_tools.reports.builds import stats_json
from lookup_tools.tokens import TokenInfo
from lookup_tools.tokens.stream import TokenBatch

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"
COMMANDS = docs_reference.NAMES


# Options of other programs, and of our scripts, that the documents mention.
FOREIGN = (
    "--lookup-save", "--lookup-save-minutes", "--lookup-no-learn", "--lookup-n-max",
    "--lookup-chain", "--lookup-verify-cost", "--lookup-ignore-vocabulary", "--build", "--target",
    "--no-deps", "--now", "--strict", "--group", "--repo-type", "--include", "--local-dir",
    "--long", "--no-bos", "--no-escape", "--no-parse-special", "--prompt-characters", "--seed",
    "--size", "--corpus", "--output", "--from-tokens", "--out", "--peer", "--runs", "--sizes",
    "--text", "--port", "--spec-draft-n-max", "--temp", "--ngram", "--tool",
)  # fmt: skip


def pages() -> list[Path]:
    """Every document that people read."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def names_of(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.mark.parametrize("page", pages(), ids=names_of(pages()))
def test_the_examples_run(
    page: Path, gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "```" in page.read_text(encoding="utf-8"):
        if doc_examples.EMPTY_FOLDER not in page.read_text(encoding="utf-8"):
            doc_examples.furnish(tmp_path, gguf)
        monkeypatch.chdir(tmp_path)
        doc_examples.run_page(page)


def test_the_generated_parts_are_current() -> None:
    command = [sys.executable, "-m", "cogapp", "--check", "--diff", "-I", ROOT / "scripts", PAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"make docs writes them anew\n{done.stdout}{done.stderr}"


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="no mkdocs-material")
def test_the_site_builds_without_warnings_and_links_lead_somewhere() -> None:
    assert list(docs_site.check_site()) == []


@pytest.mark.parametrize("page", pages(), ids=names_of(pages()))
def test_commands_options_and_targets_that_documents_name_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    commands = {name: docs_reference.command(name) for name in COMMANDS}
    options = {*FOREIGN, "--help", "--version"}
    for command in commands.values():
        for each in command.params:
            options |= {*each.opts, *each.secondary_opts}
    assert set(re.findall(r"(?<![\w<!-])--[a-z][a-z0-9-]*\b", text)) <= options
    assert set(re.findall(r"(?<![\w.-])lookup-([a-z]+)\b", text)) <= {*COMMANDS, "tools"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.MULTILINE)) <= targets


def keys_in(body: object) -> set[str]:
    """Every key of a JSON document, but for those that name parameters."""
    if isinstance(body, list):
        return set().union(*map(keys_in, body)) if body else set()
    if not isinstance(body, dict):
        return set()
    inner = (keys_in(value) for key, value in body.items() if key != "params")
    return {*map(str, body), *set().union(*inner)}


def test_every_json_key_of_lookup_stats_is_documented(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
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
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(COMMANDS) == set(re.findall(r"^lookup-(\w+) = ", project, re.MULTILINE))


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
    assert (doc_examples.difference(shown, printed) == "") is same


def test_a_command_that_is_not_done_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doc_examples, "SECONDS", 0.2)
    assert doc_examples.check_command("sleep 60 &\nwait\n", "") == (
        "exit -1 from sleep 60 &\nwait: not done after 0.2 s"
    )


def test_what_a_page_says_wrongly_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ echo 12 n-grams\n12 n-grams\n$ echo 12 n-grams\n15 n-grams\n```\n"
    )
    with pytest.raises(SybilFailure, match="other numbers"):
        doc_examples.run_page(page)
    page.write_text('<!-- skip: next if(lacks("no-such-program")) -->\n```bash\nfalse\n```\n')
    doc_examples.run_page(page)
    page.write_text('<!-- skip: next if(lacks("bash")) -->\n```bash\nfalse\n```\n')
    with pytest.raises(SybilFailure, match="exit 1"):
        doc_examples.run_page(page)
    page.write_text("```pycon\n>>> 1 + 1\n3\n```\n")
    with pytest.raises(SybilFailure, match="Expected"):
        doc_examples.run_page(page)
    page.write_text('<!-- skip: next "r" -->\n```pycon\n>>> 1\n2\n>>> 1\n3\n```\n')
    doc_examples.run_page(page)


def test_links_lead_to_the_same_page_on_the_site() -> None:
    names = docs_site.sources()
    text = "[a](faq.md#x) [b](../README.md) [c](#here) [d](https://x.y/README.md) `](../README.md)`"
    page = ROOT / "docs" / "index.md"
    assert docs_site.relinked(text, page, names) == text.replace(
        "[b](../README.md)", "[b](overview.md)"
    )
    page = ROOT / "CHANGELOG.md"
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
        [sys.executable, ROOT / "scripts" / "demo.py", "--model", gguf],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
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
