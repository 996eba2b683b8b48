"""Row 24 of the pitfalls: what a build would take, before it is started."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from helpers import TEXT, create_from, run

from lookup_tools import CreateOptions, Tokenizer, create_cache, open_corpus
from lookup_tools.building.estimate import SAMPLE_CHARS, estimate_build
from lookup_tools.counting.counts import Prune
from lookup_tools.errors import CorpusError


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A text larger than the sample, with rare and frequent words."""
    rng = random.Random(1)
    stems = [
        "".join(rng.choices("abcdefghijklmnoprstuw", k=rng.randint(2, 7))) for _ in range(3000)
    ]
    ranked = [1 / (k + 3) for k in range(len(stems))]
    path = tmp_path / "words.txt"
    with open(path, "w", encoding="utf-8") as file:
        size = 0
        while size < 1.3 * SAMPLE_CHARS:
            line = " ".join(rng.choices(stems, ranked, k=20_000)) + ".\n"
            size += len(line)
            file.write(line)
    return path


def test_a_small_corpus_is_counted_outright(
    tmp_path: Path, text: Path, tokenizer: Tokenizer
) -> None:
    for options in (
        CreateOptions(),
        CreateOptions(kind="dynamic"),
        CreateOptions(prune=Prune(2, 1)),
    ):
        found = estimate_build(open_corpus(files=[str(text)]), tokenizer, options)
        report = create_cache(
            open_corpus(files=[str(text)]), tokenizer, tmp_path / "out", options=options
        )
        (tmp_path / "out").unlink()
        assert found.sampled_share == 1
        assert (found.n_tokens, found.n_ngrams, found.n_pairs) == (
            report.n_tokens,
            report.n_ngrams,
            report.n_pairs,
        )
        assert found.file_bytes is not None
        assert report.file_bytes <= found.file_bytes <= report.file_bytes + 8192


def test_a_larger_one_is_extrapolated(tmp_path: Path, words: Path, tokenizer: Tokenizer) -> None:
    """Rough, but of the right size."""
    found = estimate_build(open_corpus(files=[str(words)]), tokenizer, CreateOptions())
    report = create_cache(open_corpus(files=[str(words)]), tokenizer, tmp_path / "out")
    assert found.sampled_share is not None
    assert 0.5 < found.sampled_share < 1
    for guess, truth in (
        (found.n_tokens, report.n_tokens),
        (found.n_ngrams, report.n_ngrams),
        (found.n_pairs, report.n_pairs),
        (found.file_bytes, report.file_bytes),
    ):
        assert guess is not None
        assert 0.8 < guess / truth < 1.25


def test_limits_are_taken_into_account(text: Path, tokenizer: Tokenizer) -> None:
    plain = estimate_build(open_corpus(files=[str(text)]), tokenizer, CreateOptions())
    limited = estimate_build(
        open_corpus(files=[str(text)]), tokenizer, CreateOptions(max_tokens=100, max_size=5000)
    )
    assert limited.n_tokens == 100
    assert limited.file_bytes is not None
    assert limited.file_bytes <= 5000
    assert limited.n_ngrams is not None
    assert plain.n_ngrams is not None
    assert limited.n_ngrams <= plain.n_ngrams


def test_an_empty_corpus(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(CorpusError, match="found no tokens"):
        estimate_build(open_corpus(files=[str(tmp_path / "empty")]), tokenizer, CreateOptions())


def test_dry_run_writes_nothing(tmp_path: Path, model: Path, text: Path) -> None:
    before = sorted(tmp_path.iterdir())
    common = ["-m", model, "-f", text, "-o", tmp_path / "out", "--dry-run"]
    result = run("create", *common)
    assert "a file of about" in result.stdout
    assert "of memory" in result.stdout
    body = json.loads(run("create", *common, "--json", "-").stdout)
    assert body["dry_run"] is True
    assert set(body) >= {
        "n_tokens",
        "n_ngrams",
        "n_pairs",
        "file_bytes",
        "memory_bytes",
        "sampled_tokens",
    }
    assert body["n_tokens"] > 0
    assert sorted(tmp_path.iterdir()) == before


def test_dry_run_of_a_stream_of_unknown_size(tmp_path: Path, model: Path) -> None:
    result = run("create", "-m", model, "-f", "-", "-o", tmp_path / "out", "--dry-run", stdin=TEXT)
    assert "does not say how large it is" in result.stdout
    assert not (tmp_path / "out").exists()


def test_dry_run_needs_text(tmp_path: Path, model: Path) -> None:
    create_from(tmp_path / "c", [[1, 2, 3]])
    (tmp_path / "t.u16").write_bytes(bytes(20))
    result = run(
        "create", "--tokens", tmp_path / "t.u16", "-o", tmp_path / "out", "--dry-run", code=2
    )
    assert "--dry-run" in result.stderr


def test_progress_begins_before_the_first_token(
    tmp_path: Path, text: Path, tokenizer: Tokenizer
) -> None:
    """A slow vocabulary must not keep the bar away, and the rate counts from the start."""
    seen: list[tuple[str, int, int | None]] = []
    create_cache(
        open_corpus(files=[str(text)]),
        tokenizer,
        tmp_path / "out",
        progress=lambda *call: seen.append(call),
    )
    assert seen[0] == ("tokenize and count", 0, text.stat().st_size)
    assert [done for phase, done, _ in seen if phase == "tokenize and count"][
        -1
    ] == text.stat().st_size
