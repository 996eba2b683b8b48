"""llama-server with integrations/llama.cpp: `--spec-type lookup`, with a real model.

`make engines` builds it. Whatever is asked, the text has to be that of a server without drafts; the
reports of other engines' users that these tests answer are named beside them.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers import TEXT, run, write_counts

from lookup_tools import open_cache, verify_cache
from lookup_tools.corpora import open_corpus
from lookup_tools.engine.llama_server import Completion, LlamaServer
from lookup_tools.engine.programs import Program, find_lookup_program
from lookup_tools.errors import EngineError
from lookup_tools.formats.meta import CacheMeta

pytestmark = pytest.mark.engine

# Drafts cost next to nothing by this curve, so all that are likely are made, on any machine.
CHEAP = ("--lookup-verify-cost", "1:1,64:1.1")
N_PREDICT = 48
PROMPTS = {
    "list": "red, green, blue, red, green, blue, red, green, blue, red, green,",
    "prose": "Assert statements are a convenient way to insert debugging assertions into a "
    "program. The current code generator emits no code for an assert statement when",
    "code": "class A:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n"
    "class B:\n    def __init__(self, x, y, z):\n        self.x = x\n        self.y = y\n",
    "json": '[{"id": 1, "name": "one"}, {"id": 2, "name": "two"}, {"id": 3, "name": "three"}, ',
}


@pytest.fixture(scope="module")
def engine() -> Program:
    """Skips where there is no such server."""
    try:
        return find_lookup_program()
    except EngineError as error:
        pytest.skip(str(error))


def start(gguf: Path, engine: Program, *more: str, **options: Any) -> LlamaServer:
    """A server of ours, by default with the cheap curve; `spec_type` "none" is a baseline."""
    spec = options.pop("spec_type", "lookup")
    if not options.pop("measured", False) and "--lookup-verify-cost" not in more:
        more = (*CHEAP, *more)
    return LlamaServer(
        gguf, program=engine, spec_type=spec, threads=1, extra=more, **{"n_ctx": 512, **options}
    )


def said(server: LlamaServer, **more: Any) -> dict[str, Completion]:
    return {
        kind: server.complete(text, N_PREDICT, **more) for kind, text in PROMPTS.items()
    }  # fmt: skip


def texts(answers: dict[str, Completion]) -> dict[str, tuple[str, list[int], str]]:
    return {kind: (each.text, each.tokens, each.stop) for kind, each in answers.items()}


def drafted(answers: dict[str, Completion]) -> tuple[int, int]:
    every = [each.timings for each in answers.values()]
    return sum(each.draft_n for each in every), sum(each.draft_n_accepted for each in every)


@pytest.fixture(scope="module")
def baseline(engine: Program, gguf: Path) -> Iterator[LlamaServer]:
    """A server without drafts, to ask the same."""
    with start(gguf, engine, spec_type="none", slots=4) as server:
        yield server


@pytest.fixture(scope="module")
def caches(
    tmp_path_factory: pytest.TempPathFactory, gguf: Path, plain: dict[str, Completion]
) -> dict[str, Path]:
    """What the model is going to say, among other text, as caches of every format."""
    folder = tmp_path_factory.mktemp("caches")
    topics = open_corpus(dataset="python-topics", split="all").documents()
    answers = [PROMPTS[kind] + each.text for kind, each in plain.items()]
    (folder / "text").write_text("\n".join([*answers, *(topic.text for topic in topics)]))
    made = {name: folder / name for name in ("constmap", "constmap2", "legacy", "dynamic")}
    common = ["-m", gguf, "-f", folder / "text", "--max-tokens", 30_000]
    for fmt in ("constmap", "constmap2", "legacy"):
        run("create", *common, "--format", fmt, "-o", made[fmt])
    run("create", *common, "--kind", "dynamic", "-o", made["dynamic"])
    return made


@pytest.fixture(scope="module")
def ours(engine: Program, gguf: Path, caches: dict[str, Path]) -> Iterator[LlamaServer]:
    """A server that drafts, for all tests that need no other options."""
    with start(gguf, engine, static=caches["constmap"], slots=4) as server:
        yield server


@pytest.fixture(scope="module")
def plain(baseline: LlamaServer) -> dict[str, Completion]:
    found = said(baseline)
    assert drafted(found) == (0, 0)
    return found


# ---- files


@pytest.mark.parametrize("fmt", ["constmap", "constmap2", "legacy"])
def test_a_static_cache_of_any_format_is_drafted_from(
    engine: Program, gguf: Path, caches: dict[str, Path], plain: dict[str, Completion], fmt: str
) -> None:
    with start(gguf, engine, static=caches[fmt]) as server:
        found = said(server)
    assert texts(found) == texts(plain)
    assert found["prose"].timings.draft_n_accepted > N_PREDICT // 3


@pytest.mark.parametrize("name", ["dynamic", "constmap2"])
def test_a_dynamic_cache_is_drafted_from_and_stays_as_it_is(
    engine: Program, gguf: Path, caches: dict[str, Path], plain: dict[str, Completion], name: str
) -> None:
    before = caches[name].read_bytes()
    with start(gguf, engine, dynamic=caches[name]) as server:
        found = said(server)
    assert texts(found) == texts(plain)
    least = N_PREDICT // 3 if name == "dynamic" else 4  # 2-grams alone lead astray
    assert found["prose"].timings.draft_n_accepted > least
    assert caches[name].read_bytes() == before


def refusal(engine: Program, gguf: Path, *options: object) -> str:
    """The one line with which a server that cannot use its files ends."""
    words = [engine.path, "-m", gguf, "--port", "0", "--spec-type", "lookup", *options]
    done = subprocess.run(
        list(map(str, words)), env=engine.environment(), capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "E lookup: " in line]
    assert len(lines) == 1, done.stdout + done.stderr
    return lines[0].split("E lookup: ")[1]


def test_a_wrong_file_is_refused_in_one_line(
    engine: Program, gguf: Path, caches: dict[str, Path], tmp_path: Path
) -> None:
    """Row 3 of the pitfalls: llama-server aborts on these, or takes them without a word."""
    cut, wrong = tmp_path / "cut", tmp_path / "wrong"
    cut.write_bytes(caches["constmap"].read_bytes()[:-4000])
    wrong.write_text("once upon a time")
    nowhere = tmp_path / "nowhere"
    empty = tmp_path / "empty"
    empty.touch()
    for path in (nowhere, cut, wrong, gguf, tmp_path, empty):
        line = refusal(engine, gguf, "-lcs", path)
        assert line.startswith(f"{path}: ")
    for path in (nowhere, empty):
        assert refusal(engine, gguf, "-lcd", path).startswith(f"{path}: ")


def test_a_legacy_file_that_was_cut_is_refused(
    engine: Program, gguf: Path, caches: dict[str, Path], tmp_path: Path
) -> None:
    for suffix in ("", ".meta.json"):
        copy = Path(f"{caches['legacy']}{suffix}").read_bytes()
        Path(f"{tmp_path / 'cut'}{suffix}").write_bytes(copy)
    data = caches["legacy"].read_bytes()
    (tmp_path / "cut").write_bytes(data[:-28])  # at the end of a record, or not
    line = refusal(engine, gguf, "-lcs", tmp_path / "cut")
    assert line.startswith(f"{tmp_path / 'cut'}: ")


def test_a_cache_of_another_vocabulary_is_refused(
    engine: Program, gguf: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cache"
    meta = CacheMeta(fingerprint="0" * 32, tokenizer="another (gpt2)", vocab_size=1000)
    write_counts(path, {(1, 2): {3: 4}}, "constmap", meta)
    line = refusal(engine, gguf, "-lcs", path)
    assert line.startswith(f"{path}: found ")
    assert "another (gpt2)" in line
    with start(gguf, engine, "--lookup-ignore-vocabulary", static=path) as server:
        assert server.complete("x", 1).text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--lookup-save"], "found no -lcd FILE"),
        (["--lookup-chain", "ngram-none"], "found 'ngram-none', expected ngram-adaptive"),
    ],
)
def test_wrong_options_are_refused(
    engine: Program, gguf: Path, options: list[str], expected: str
) -> None:
    assert expected in refusal(engine, gguf, *options)


# ---- the same text, whatever is asked


def test_four_requests_at_once_say_the_same(
    ours: LlamaServer, plain: dict[str, Completion]
) -> None:
    """ArcticInference #185, sglang #13376: drafts of several requests in one batch."""
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            jobs = {
                kind: pool.submit(ours.complete, text, N_PREDICT) for kind, text in PROMPTS.items()
            }
            found = {kind: job.result() for kind, job in jobs.items()}
            assert texts(found) == texts(plain)
            assert drafted(found)[1] > N_PREDICT


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "tags"],
}


@pytest.mark.parametrize(
    "more",
    [
        {"grammar": 'root ::= ("yes" | "no" | " ")+'},
        {"json_schema": SCHEMA},
        {"n_probs": 3},
        {"stop": ["blue, red", "self.y", "code"]},
        {"n_predict": 0},
        {"n_predict": 1},
        {"n_predict": 2},
        {"temperature": 0.8, "seed": 7},
        {"temperature": 1.2, "seed": 8, "top_k": 20, "repeat_penalty": 1.1},
        {"logit_bias": [[28, -5.0]]},
        {"cache_prompt": True},
    ],
    ids=lambda more: next(iter(more)),
)
def test_the_text_is_that_without_drafts(
    ours: LlamaServer, baseline: LlamaServer, more: dict[str, Any]
) -> None:
    """sglang #17576, vllm #52620, #10442, #20284: crashes and cut texts under n-gram drafts."""
    options = {"n_predict": N_PREDICT, **more}
    n = options.pop("n_predict")
    for text in PROMPTS.values():
        one, other = ours.complete(text, n, **options), baseline.complete(text, n, **options)
        assert (one.text, one.tokens, one.stop) == (other.text, other.tokens, other.stop)


def test_a_conversation_that_reuses_its_prompt(ours: LlamaServer, baseline: LlamaServer) -> None:
    """llama.cpp #27852: what a slot said before is not mixed up with what it is asked now."""
    for slot in (0, 1):
        history = PROMPTS["prose"]
        for turn in range(3):
            found = ours.complete(history, N_PREDICT, cache_prompt=True, id_slot=slot)
            assert found.tokens == baseline.complete(history, N_PREDICT).tokens
            assert turn == 0 or found.timings.cache_n > 0
            history += found.text + " And further:"
        again = ours.complete(PROMPTS["code"], N_PREDICT, cache_prompt=True, id_slot=slot)
        assert again.tokens == baseline.complete(PROMPTS["code"], N_PREDICT).tokens


def test_a_shifted_context(engine: Program, gguf: Path, caches: dict[str, Path]) -> None:
    """llama.cpp #21815: a context that is shifted aborts other n-gram sources."""
    found = []
    for spec in ("none", "lookup"):
        cache = caches["constmap"] if spec == "lookup" else None
        with start(gguf, engine, "--context-shift", spec_type=spec, static=cache, n_ctx=128) as one:
            found.append(one.complete(PROMPTS["prose"], 400, ignore_eos=True, n_keep=8))
    assert found[0].tokens == found[1].tokens
    assert len(found[0].tokens) == 400
    assert found[1].timings.draft_n_accepted > 100


def test_drafts_end_where_the_context_does(
    engine: Program, gguf: Path, baseline: LlamaServer
) -> None:
    """llama.cpp #10641, #10628: drafts that pass the context's end."""
    found = []
    for spec in ("none", "lookup"):
        with start(gguf, engine, spec_type=spec, n_ctx=256) as server:
            found.append(server.complete(PROMPTS["list"] * 3, -1, ignore_eos=True))
    assert (found[0].tokens, found[0].stop) == (found[1].tokens, found[1].stop)


def stream(server: LlamaServer, prompt: str, n: int, most: int | None = None) -> tuple[str, int]:
    """The text of a streamed answer and its number of parts; hangs up after `most` of them."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=120)
    body = {
        "prompt": prompt,
        "n_predict": n,
        "temperature": 0,
        "cache_prompt": False,
        "stream": True,
    }
    connection.request(
        "POST", "/completion", json.dumps(body), {"Content-Type": "application/json"}
    )
    text, parts = "", 0
    for line in connection.getresponse():
        if line.startswith(b"data: "):
            text += json.loads(line[6:])["content"]
            parts += 1
        if parts == most:
            break
    connection.close()
    return text, parts


def test_streams_and_cancelled_requests(ours: LlamaServer, plain: dict[str, Completion]) -> None:
    for kind, prompt in PROMPTS.items():
        assert stream(ours, prompt, N_PREDICT)[0] == plain[kind].text
    for prompt in PROMPTS.values():
        stream(ours, prompt, 400, most=4)
        stream(ours, prompt, 400, most=1)
    assert texts(said(ours)) == texts(plain)


# ---- learning and saving

STORY = "The lighthouse keeper of Port Ellery wrote in his log that evening:"


def conversation(server: LlamaServer, slot: int) -> float:
    """The share of the words of an answer that drafts were right about."""
    found = server.complete(STORY, 96, temperature=0, id_slot=slot, ignore_eos=True)
    return found.timings.draft_n_accepted / 96


def test_what_was_said_is_learned_by_all_slots(engine: Program, gguf: Path) -> None:
    with start(gguf, engine, slots=2) as server:
        first, second = conversation(server, 0), conversation(server, 1)
    assert second > first + 0.2
    with start(gguf, engine, "--lookup-no-learn", slots=2) as server:
        unlearned, again = conversation(server, 0), conversation(server, 1)
    assert unlearned == pytest.approx(first, abs=0.05)
    assert again < first + 0.2


def test_what_was_learned_is_saved_and_found_again(
    engine: Program, gguf: Path, tmp_path: Path
) -> None:
    live = tmp_path / "live.lcd"
    save = ("--lookup-save",)
    with start(gguf, engine, *save, dynamic=live) as server:
        first = conversation(server, 0)
    with open_cache(live) as cache:
        assert cache.orders == (1, 2, 3, 4)
        assert cache.meta is not None
        assert cache.meta.vocab_size == 49152
        verify_cache(cache)
    size = live.stat().st_size
    with start(gguf, engine, *save, dynamic=live) as server:
        assert conversation(server, 0) > first + 0.2
        server.complete(TEXT[:200], 8)
    assert live.stat().st_size > size
    run("inspect", live, "--verify")
    assert not list(tmp_path.glob("*.tmp-*"))


def test_saving_does_not_wait_for_the_end(engine: Program, gguf: Path, tmp_path: Path) -> None:
    live = tmp_path / "live.lcd"
    more = ("--lookup-save", "--lookup-save-minutes", "1")
    with start(gguf, engine, *more, dynamic=live) as server:
        deadline = time.monotonic() + 100
        while not live.exists() and time.monotonic() < deadline:
            server.complete(STORY, 16)
            time.sleep(0.5)
        assert live.exists()
    run("inspect", live, "--verify", "-m", gguf)


# ---- options have the effect that they name (llama.cpp #22414)


def test_a_dear_curve_leaves_nothing_to_draft(engine: Program, gguf: Path) -> None:
    with start(gguf, engine, "--lookup-verify-cost", "1:1,2:50") as server:
        assert drafted(said(server)) == (0, 0)


def test_drafts_are_as_long_as_asked_for(engine: Program, gguf: Path) -> None:
    mean = {}
    for n in (1, 16):
        with start(gguf, engine, "--lookup-n-max", str(n), "-lv", "4") as server:
            found = server.complete(PROMPTS["list"], 96, ignore_eos=True).timings
            mean[n] = found.draft_n_accepted / found.n_decode
    assert 0 < mean[1] <= 1 < mean[16] <= 16


@pytest.mark.parametrize("chain", ["ngram-suffix", "ngram-cache", "ngram-suffix,ngram-adaptive"])
def test_a_chain_of_other_sources(
    engine: Program, gguf: Path, caches: dict[str, Path], plain: dict[str, Completion], chain: str
) -> None:
    with start(gguf, engine, "--lookup-chain", chain, static=caches["constmap"]) as server:
        found = said(server)
        again = said(server)
    assert texts(found) == texts(again) == texts(plain)
    assert drafted(found)[1] > 0


def test_costs_are_measured_and_told(engine: Program, gguf: Path) -> None:
    with start(gguf, engine, "-lv", "4", measured=True) as server:
        said(server)
        said(server)
        log = server.log()
    assert "statistics lookup: " in log
    assert "verify cost measured: 1:1.00,2:" in log


def test_a_stock_source_beside_ours(
    engine: Program, gguf: Path, plain: dict[str, Completion]
) -> None:
    for spec in ("ngram-mod", "ngram-simple,lookup"):
        with LlamaServer(gguf, program=engine, spec_type=spec, threads=1, n_ctx=512) as server:
            assert texts(said(server)) == texts(plain)
