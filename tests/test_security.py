"""What SECURITY.md says of hostile inputs, as far as it is not tested where the input is read:
tests/attacks/, test_mutations.py and the fuzz targets see to the formats themselves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from helpers import run, write_counts, write_tokenizer

from lookup_tools.cli.options import printable
from lookup_tools.corpora.chat import chat_renderer
from lookup_tools.errors import CorpusError, LookupToolsError, TokenizerError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.tokenizers import open_tokenizer

EVIL = "evil\x1b[31m\nError: all is well\x07\u202e\x9b2J"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


# ---- names on the terminal


def test_names_in_a_file_cannot_steer_the_terminal(tmp_path: Path, model: Path) -> None:
    meta = CacheMeta(
        tokenizer=EVIL, fingerprint="0" * 32, vocab_size=300, corpora=(EVIL,), tool=EVIL
    )
    write_counts(tmp_path / "c", {(1, 2): {3: 4}}, meta=meta)
    said = run("inspect", tmp_path / "c", "--verify").stdout
    assert "evil\\x1b[31m Error: all is well\\x07\\u202e\\x9b2J" in said
    refused = run("inspect", tmp_path / "c", "-m", model, code=1).stderr
    assert "evil\\x1b" in refused
    for text in (said, refused):
        assert CONTROL.search(text) is None
        assert not any(line.startswith("Error: all") for line in text.splitlines())


def test_what_is_printable_stays() -> None:
    text = "tab\tnewline\nünïcödé 漢字\u3000\u00a0 🙂"
    assert printable(text) == text


def test_names_in_a_page_are_text(tmp_path: Path, model: Path, text: Path) -> None:
    name = "<script>alert(1)</script>"
    meta = CacheMeta(corpora=(name,), tool=name)
    write_counts(tmp_path / "<b>c", {(1, 2): {3: 4}}, meta=meta)
    arguments = ("-m", model, "-f", text, "-c", 50, "-lcs", tmp_path / "<b>c")
    run("stats", *arguments, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert name not in page
    assert "<b>c" not in page


# ---- chat templates


def with_template(folder: Path, template: str) -> Path:
    path = write_tokenizer(folder)
    path.with_name("tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return path


TEMPLATES = {
    "internals": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "internals by filter": "{{ ('' | attr('__class__')).__mro__ }}",
    "internals by format": "{{ '{0.__class__.__mro__}'.format('').mro }}",
    "globals": "{{ cycler.__init__.__globals__.os.system('true') }}",
    "a function's globals": "{{ raise_exception.__globals__['__builtins__'] }}",
    "a method's object": "{{ strftime_now.__self__.__class__.__mro__ }}",
    "changes its input": "{{ messages.append(1) }}",
    "reads a file": "{% include '/etc/hostname' %}",
    "imports": "{% import 'os' as os %}{{ os.system('true') }}",
    "a large range": "{% for i in range(10 ** 9) %}{% endfor %}",
    "an endless recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "a large string": "{{ 'a' * 10 ** 13 }}",
    "arithmetic": "{{ 1 // 0 }}",
    "deep nesting": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "many blocks": "{% for m in messages %}" * 60 + "{% endfor %}" * 60,
    "a long number": "{{ " + "9" * 5000 + " }}",
    "no Jinja": "{% if %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_reaches_nothing(tmp_path: Path, name: str) -> None:
    """Refused in one line, as text that is no Jinja or as one that fails on every transcript."""
    tokenizer = open_tokenizer(with_template(tmp_path, TEMPLATES[name]))
    with pytest.raises((TokenizerError, CorpusError)):
        chat_renderer(tokenizer)([{"role": "user", "content": "hello"}])


def test_a_template_that_only_looks_reads_nothing(tmp_path: Path) -> None:
    """Jinja answers some forbidden questions with nothing instead of an error."""
    template = "[{{ (1).__class__ }}{{ messages.__class__ }}{{ '{0.__class__}'.format(1) }}]"
    tokenizer = open_tokenizer(with_template(tmp_path, template))
    assert chat_renderer(tokenizer)([{"role": "user", "content": "hello"}]) == "[]"


# ---- memory


PEAK = """
import sys
from lookup_tools.system.memory import peak_rss_bytes
from lookup_tools.corpora import open_corpus
before = peak_rss_bytes()
n = sum(len(piece.text) for piece in open_corpus([sys.argv[1]]).pieces())
print(n, peak_rss_bytes() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peak memory is not told here")
def test_a_compressed_text_is_unpacked_in_pieces(tmp_path: Path) -> None:
    """A quarter of a gigabyte of text in a file of under 50 kB."""
    block = zstandard.ZstdCompressor().compress(b"all work and no play\n" * 1_000_000)
    (tmp_path / "bomb.zst").write_bytes(block * 12)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "bomb.zst")],
        capture_output=True,
        text=True,
        check=True,
    )
    n, grown = map(int, done.stdout.split())
    assert n == 12 * 21_000_000
    assert (tmp_path / "bomb.zst").stat().st_size < 50_000
    assert grown < 200_000_000


# ---- JSON


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"model": ' * 50_000,
        '{"model": {"vocab": {"a": 4000000000000}}}',
        '{"model": {"vocab": {"a": -1}}}',
        '{"model": {"vocab": {"a": 1e308}}}',
        '{"model": {"vocab": {}}, "added_tokens": [{"content": "a", "id": 999999999}]}',
        '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c", 7]}}',
        "9" * 10_000,
    ],
    ids=range(8),
)
def test_a_tokenizer_json_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(LookupToolsError):
        open_tokenizer(tmp_path / "tokenizer.json").encode("a")


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000])
def test_json_as_deep_as_a_file_allows_is_no_traceback(
    tmp_path: Path, text: Path, deep: str
) -> None:
    model = write_tokenizer(tmp_path)
    (tmp_path / "deep").write_text(deep)
    stats = ("stats", "-m", model, "-f", text, "-c", 50)
    assert "found no widths" in run(*stats, "--verify-cost", tmp_path / "deep", code=1).stderr
    run(*stats, "--spec-type", f"trace:{tmp_path / 'deep'}", code=1)
    run(
        "create", "-m", model, "-f", tmp_path / "deep", "--documents", "jsonl:a",
        "-o", tmp_path / "out", code=1,
    )  # fmt: skip
    model.with_name("tokenizer_config.json").write_text(deep)  # broken is as good as absent
    run(*stats)
