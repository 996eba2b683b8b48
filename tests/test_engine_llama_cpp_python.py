"""Drafts for llama-cpp-python: the history they follow, their limits, when they decline, what they
save; and with the engine, its own text in fewer decodes.

Only the tests marked `engine` need llama-cpp-python.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import (
    MAX_COUNT,
    TEXT,
    Counts,
    add,
    cache_drafter,
    count_documents,
    create_from,
    names,
    random_counts,
    random_stream,
    read_counts,
    write_counts,
)
from hypothesis import given
from hypothesis import strategies as st

from lookup_tools import DynamicTable, Tokenizer, open_cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.engine.budget import DraftBudget
from lookup_tools.engine.drafts import LookupDrafts
from lookup_tools.engine.llama_cpp_python import (
    LlamaSequence,
    LookupDraftModel,
    greedy,
)
from lookup_tools.errors import (
    EngineError,
    FormatError,
    ParameterError,
    TokenizerMismatchError,
)
from lookup_tools.formats.meta import CacheMeta

CACHE: dict[str, Any] = {"spec_type": "ngram-cache"}
SUFFIX: dict[str, Any] = {"spec_type": "ngram-suffix", "n_draft": 8, "draft": 8}
HISTORY = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]  # 4, 5, 6, 7, 8, 9, 1, 2 follow
STEEP = CostCurve.of([(1, 1), (2, 1.76), (4, 2.59), (9, 4.93)])  # SmolLM2 on two cores
FLAT = CostCurve.of([(1, 1), (9, 1.2)])


def ids_of(tokens: Sequence[int]) -> np.ndarray[Any, Any]:
    return np.array(tokens, np.intc)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens agree."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((k for k, (x, y) in pairs if x != y), min(len(a), len(b)))


# ---- the history


@given(seed=st.integers(0, 2**32), vocab=st.integers(1, 6))
def test_every_history_is_followed_and_counted(seed: int, vocab: int) -> None:
    """Steps of one request, further requests that go on from the last or begin anew: drafts are
    those of a drafter that knew the history from the start, counts those of a list."""
    rng = random.Random(seed)
    history = random_stream(rng, rng.randint(1, 9), vocab)
    drafted = accepted = 0
    with LookupDrafts(**CACHE, n_draft=4) as drafts:
        for step in range(25):
            found = drafts(ids_of(history))
            assert found.dtype == np.intc
            draft = found.tolist()
            drafted += len(draft)
            with cache_drafter(n_draft=4) as fresh:
                fresh.begin(history)
                assert draft == fresh.draft().tolist()
            assert (drafts.steps, drafts.drafted) == (step + 1, drafted)
            before = history
            if rng.random() < 0.2:  # another request, which may go on from the text so far
                kept = rng.choice((0, len(history) // 2, len(history)))
                history = [*history[:kept], *random_stream(rng, rng.randint(1, 9), vocab)]
            else:
                history = [*history, *draft[: rng.randint(0, 4)], rng.randrange(vocab)]
            if history[: len(before)] == before:
                accepted += common(draft, history[len(before) :])
            drafts.observe(ids_of(history))
            assert drafts.accepted == accepted


def test_lists_and_wider_integers_do() -> None:
    with LookupDrafts(**SUFFIX) as drafts:
        expected = drafts(ids_of(HISTORY)).tolist()
        assert expected == [4, 5, 6, 7, 8, 9, 1, 2]
        for kind in (list, np.int64):
            assert drafts(kind(HISTORY) if kind is list else np.array(HISTORY, kind)).tolist() == (
                expected
            )
        with pytest.raises(ParameterError, match="integers"):
            drafts([0.5])


def test_a_history_of_32000_tokens(record_property: Callable[[str, object], None]) -> None:
    """Right in every step; what a step takes is recorded, not judged."""
    rng = np.random.default_rng(1)
    text = rng.integers(0, 300, 32_200).astype(np.intc)
    seconds = []
    with LookupDrafts(**CACHE) as drafts:
        drafts(text[:32_000])
        for n in range(32_001, 32_200):
            start = time.perf_counter()
            found = drafts(text[:n])
            seconds.append(time.perf_counter() - start)
        with cache_drafter() as fresh:
            fresh.begin(text[:32_199])
            assert found.tolist() == fresh.draft().tolist()
    record_property("microseconds_per_draft", 1e6 * float(np.median(seconds)))


# ---- limits


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [(None, 8), (9, 8), (8, 7), (3, 2), (2, 1), (1, 0), (0, 0), (-1, 0)],
)
def test_the_budget_leaves_room_for_the_models_own_token(
    remaining: int | None, expected: int
) -> None:
    with LookupDrafts(**SUFFIX) as drafts:
        assert len(drafts(ids_of(HISTORY), remaining=remaining)) == expected


def test_a_budget_told_before_a_request() -> None:
    with LookupDrafts(**SUFFIX) as drafts:
        drafts.expect(5)  # the last of HISTORY is the first of them
        assert drafts(ids_of(HISTORY)).tolist() == [4, 5, 6]
        assert drafts(ids_of([*HISTORY, 4, 5])).tolist() == [6]
        assert drafts(ids_of([*HISTORY, 4, 5, 6])).tolist() == []
        # it is over; the next request goes on from there and has said nothing
        assert len(drafts(ids_of([*HISTORY, 4, 5, 6, 7, 8]))) == 8
        drafts.expect(2)
        assert drafts(ids_of([*HISTORY, 4, 5, 6, 7, 8, 9])).tolist() == []
        # another prompt is another request
        assert len(drafts(ids_of(HISTORY))) == 8


@pytest.mark.parametrize(
    ("eos", "expected"), [((), 8), ((6,), 2), ((9, 5), 1), ((4,), 0), ((100,), 8)]
)
def test_a_draft_stops_before_an_end(eos: tuple[int, ...], expected: int) -> None:
    with LookupDrafts(**SUFFIX, eos=eos) as drafts:
        assert len(drafts(ids_of(HISTORY))) == expected


def test_a_tokenizer_tells_ends_and_size(tokenizer: Tokenizer) -> None:
    beyond, end = tokenizer.vocab_size, tokenizer.eos_id
    assert end is not None
    with LookupDrafts(**SUFFIX, tokenizer=tokenizer) as drafts:
        for odd in (beyond, end):
            assert drafts(ids_of([1, 2, 3, 7, odd, 5, 1, 2, 3])).tolist() == [7]


def test_row_23_never_past_the_budget_or_the_end_and_nothing_is_an_empty_array() -> None:
    with LookupDrafts(**SUFFIX, eos=(5,)) as drafts:
        assert drafts(ids_of(HISTORY), remaining=2).tolist() == [4]
        assert drafts(ids_of(HISTORY)).tolist() == [4]  # then comes 5
    with LookupDrafts(**SUFFIX) as drafts:  # no end known
        assert len(drafts(ids_of(HISTORY))) == 8
        for nothing in ([1, 2, 3, 4], [7], []):
            found = drafts(ids_of(nothing))
            assert isinstance(found, np.ndarray)
            assert (found.dtype, found.shape) == (np.intc, (0,))


# ---- declining


curves = st.lists(st.floats(0.2, 3), min_size=1, max_size=12).map(
    lambda steps: CostCurve.of(
        [(1, 1.0), *((2 + k, max(0.5, 1 + sum(steps[: k + 1]))) for k in range(len(steps)))]
    )
)


@given(curve=curves, n_draft=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_whatever_is_said_plain_decoding_is_never_far_ahead(
    curve: CostCurve, n_draft: int, seed: int
) -> None:
    """T tokens take at most 1.01 T + 1 plain decodes' time, at every moment."""
    rng = random.Random(seed)
    luck = rng.random()
    account = DraftBudget(curve, n_draft)
    taken, tokens = 0.0, 0
    for step in range(300):
        if step % 100 == 0:
            luck = rng.random() ** 2
        drafted = rng.randint(0, account.limit())
        accepted = 0
        while accepted < drafted and rng.random() < luck:
            accepted += 1
        account.enter(drafted, accepted)
        taken += curve.at(1 + drafted)
        tokens += 1 + accepted
        assert taken <= 1.01 * tokens + 1 + 1e-9


def run_text(drafts: LookupDrafts, text: Sequence[int], n_prompt: int, curve: CostCurve) -> float:
    """The speedup of drafting over plain decoding where the model says `text`."""
    known, taken = n_prompt + 1, 0.0
    while known < len(text):
        draft = drafts(ids_of(text[:known]), remaining=len(text) - known).tolist()
        known += common(draft, text[known:]) + 1
        taken += curve.at(1 + len(draft))
    drafts.observe(ids_of(text))
    return (len(text) - n_prompt - 1) / taken


def test_text_that_does_not_repeat_is_declined() -> None:
    text = random_stream(random.Random(3), 600, 3000)
    rng = random.Random(4)
    text = [token if rng.random() < 0.75 else rng.randrange(3000) for token in text]
    with (
        LookupDrafts(**CACHE, n_draft=8) as eager,
        LookupDrafts(**CACHE, n_draft=8, verify_cost=STEEP) as careful,
    ):
        assert run_text(eager, text, 64, STEEP) < 0.9
        assert run_text(careful, text, 64, STEEP) >= 0.98
        assert 0 < careful.drafted < eager.drafted / 5  # now and then it has another look


def test_text_that_repeats_is_not_held_back() -> None:
    text = random_stream(random.Random(5), 100, 3000) * 5
    for curve in (FLAT, STEEP):
        with LookupDrafts(**SUFFIX) as eager, LookupDrafts(**SUFFIX, verify_cost=curve) as careful:
            most = run_text(eager, text, 110, curve)
            assert most > 1.5
            assert run_text(careful, text, 110, curve) > 0.95 * most


def test_the_curve_decides_and_what_was_won_is_not_all_lost() -> None:
    """The same drafts pay on one engine and not on another; prose after code is noticed."""
    code = random_stream(random.Random(6), 60, 3000) * 20
    prose = [token % 40 for token in random_stream(random.Random(7), 900, 3000)]
    text = code + prose
    with LookupDrafts(**CACHE, n_draft=8, verify_cost=STEEP) as drafts:
        run_text(drafts, code, 61, STEEP)
        before = drafts.drafted
        assert before > 800
        run_text(drafts, text, len(code), STEEP)
        with LookupDrafts(**CACHE, n_draft=8) as eager:
            run_text(eager, text, len(code), STEEP)
        assert drafts.drafted - before < eager.drafted / 4
    with LookupDrafts(**CACHE, n_draft=8, verify_cost=FLAT) as drafts:
        run_text(drafts, text, len(code), FLAT)
        assert drafts.drafted > 0.9 * eager.drafted


def test_verify_cost_as_the_command_takes_it() -> None:
    with LookupDrafts(**SUFFIX, verify_cost="1:1,2:1.9,9:9") as drafts:
        assert len(drafts(ids_of(HISTORY))) == 1
    with pytest.raises(ParameterError, match="verify cost"):
        LookupDrafts(**CACHE, verify_cost="steep")


# ---- caches


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    static, dynamic = tmp_path / "a.lcs", tmp_path / "a.lcd"
    write_counts(static, random_counts(random.Random(1), 300))
    write_counts(dynamic, {(1, 2, 3): {9: 5}, (1,): {2: 8}}, "legacy")
    return static, dynamic


def mapped(path: Path) -> int:
    """How many times this process has a file mapped."""
    return Path("/proc/self/maps").read_text().count(str(path))


def test_paths_are_opened_once_and_closed_with_the_last(files: tuple[Path, Path]) -> None:
    static, dynamic = files
    models = [LookupDrafts(static, dynamic, **CACHE) for _ in range(8)]
    assert len(models[0](ids_of([1, 2, 3]))) > 0
    assert {model(ids_of([1, 2, 3]))[0] for model in models} == {9}
    if sys.platform == "linux":
        assert (mapped(static), mapped(dynamic)) == (1, 0)
    for model in models[1:]:
        model.close()
        model.close()
    assert models[0](ids_of([3, 1, 2, 3])).tolist()[0] == 9
    models[0].close()
    if sys.platform == "linux":
        assert mapped(static) == 0


def test_threads_share_and_forgotten_models_let_go(files: tuple[Path, Path]) -> None:
    static, dynamic = files
    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(lambda _: LookupDrafts(static, dynamic, **CACHE), range(8)))
    assert {model(ids_of([1, 2, 3]))[0] for model in models} == {9}
    if sys.platform == "linux":
        assert mapped(static) == 1
        models[0].itself = models[0]  # type: ignore[attr-defined]
        del models
        gc.collect()
        assert mapped(static) == 0


def test_a_file_that_was_replaced_is_another(files: tuple[Path, Path]) -> None:
    static, dynamic = files
    with LookupDrafts(static, dynamic, **CACHE) as old:
        write_counts(dynamic, {(1, 2, 3): {7: 5}}, "legacy")
        with (
            LookupDrafts(static, dynamic, **CACHE) as new,
            LookupDrafts(static, dynamic, **CACHE) as same,
        ):
            drafts = [model(ids_of([1, 2, 3])).tolist()[0] for model in (old, new, same)]
            assert drafts == [9, 7, 7]


def test_open_caches_and_tables_stay_the_callers(files: tuple[Path, Path]) -> None:
    static, dynamic = files
    with open_cache(static) as cache, open_cache(dynamic) as more:
        for table in (more, DynamicTable(more)):
            with LookupDrafts(cache, table, **CACHE) as drafts:
                assert drafts(ids_of([1, 2, 3])).tolist()[0] == 9
        assert not cache.closed


def test_a_chain_with_parameters(files: tuple[Path, Path]) -> None:
    static, dynamic = files
    with LookupDrafts(static, dynamic, "ngram-suffix,ngram-cache", 4, draft=2) as drafts:
        assert drafts(ids_of(HISTORY)).tolist() == [4, 5]  # the first source wins
        assert drafts(ids_of([8, 1, 2, 3])).tolist()[0] == 9  # the second one
    with LookupDrafts(spec_type="ngram-mod", n_draft=64, n_match=4) as drafts:
        assert any("n_match" in note or "n-match" in note for note in drafts.notes)


def test_another_vocabulary_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "theirs"
    write_counts(path, {(1, 2): {3: 1}}, meta=CacheMeta(fingerprint="f" * 32, tokenizer="X"))
    for role in ("static", "dynamic"):
        with pytest.raises(TokenizerMismatchError, match="X"):
            LookupDrafts(**{role: path}, tokenizer=tokenizer)  # type: ignore[arg-type]
        with open_cache(path) as cache, pytest.raises(TokenizerMismatchError, match="X"):
            LookupDrafts(**{role: cache}, tokenizer=tokenizer)  # type: ignore[arg-type]
    if sys.platform == "linux":
        assert mapped(path) == 0


def test_what_is_missing_or_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.lcs"):
        LookupDrafts(tmp_path / "nothing.lcs")
    (tmp_path / "notes").write_text(TEXT)
    with pytest.raises(FormatError, match="notes: found a text file"):
        LookupDrafts(dynamic=tmp_path / "notes")


RESIDENT = """
import sys
import numpy as np
from lookup_tools.engine.drafts import LookupDrafts
from lookup_tools.engine.sharing import shared_cache
from lookup_tools.system.memory import memory_now
path, n, text = sys.argv[1], int(sys.argv[2]), np.load(sys.argv[3])
models = [LookupDrafts(path, spec_type="ngram-cache") for _ in range(n)]
for model in models:
    for end in range(400, 500):
        model(text[:end])
with shared_cache(path) as cache:  # all of it has been used
    if cache.format == "constmap":
        cache.entries().sum()
print(memory_now().resident)
"""


@pytest.mark.parametrize("fmt", ["constmap", "legacy"])
def test_row_18_one_copy_for_eight_models(tmp_path: Path, fmt: str) -> None:
    rng = np.random.default_rng(1)
    cache, text = tmp_path / "cache", tmp_path / "text.npy"
    create_from(cache, [rng.integers(0, 3000, 1_500_000).tolist()], fmt=fmt)
    assert cache.stat().st_size > 30_000_000
    np.save(text, rng.integers(0, 3000, 500).astype(np.intc))
    resident = []
    for n in ("1", "8"):
        command = [sys.executable, "-c", RESIDENT, str(cache), n, str(text)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        resident.append(int(done.stdout))
    if not resident[0]:
        pytest.skip("this system does not tell resident memory")
    assert resident[1] <= 1.05 * resident[0]


# ---- what was said, saved


def said_counts(*conversations: Sequence[int]) -> Counts:
    return count_documents(conversations, (1, 2, 3, 4))


@pytest.mark.parametrize("cuts", [(), (1,), (2, 3), (30,), (3, 4, 5, 6, 7, 8), (10, 10, 39)])
def test_a_conversation_is_saved_whole_however_often(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    """After every turn or once, its n-grams are counted once, those across turns included."""
    path = tmp_path / "live.lcd"
    talk = random_stream(random.Random(1), 40, 6)
    with LookupDrafts(**CACHE) as drafts:
        for cut in (*cuts, len(talk)):
            drafts.observe(ids_of(talk[:cut]))
            drafts.save_dynamic(path)
        assert read_counts(path) == said_counts(talk)
        # other conversations are added; what was taken back and said otherwise is new
        other = [*talk[:20], *random_stream(random.Random(2), 10, 6)]
        drafts.observe(ids_of(other))
        drafts.save_dynamic(path)
        since = add(said_counts(talk), said_counts(other))
        again = said_counts(talk[:20])
        for ngram, followers in again.items():
            for token, count in followers.items():
                since[ngram][token] -= count
        expected = {
            ngram: {token: count for token, count in followers.items() if count}
            for ngram, followers in since.items()
        }
        assert read_counts(path) == {ngram: each for ngram, each in expected.items() if each}
    assert names(tmp_path) == {"live.lcd", "live.lcd.meta.json"}
    with open_cache(path) as cache:
        assert (cache.format, cache.orders) == ("legacy", (1, 2, 3, 4))


def test_a_live_file_is_added_to_and_drafted_from(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "live.lcd"
    old: Counts = {(5,): {6: 1}, (1, 2): {3: MAX_COUNT}}
    write_counts(path, old, "legacy")
    with LookupDrafts(**CACHE, dynamic=path, tokenizer=tokenizer) as drafts:
        drafts(ids_of([1, 2, 3, 1, 2, 3]))
        drafts.save_dynamic(path)
    assert read_counts(path) == add(old, said_counts([1, 2, 3, 1, 2, 3]))
    with open_cache(path) as cache:
        assert cache.meta is not None
        assert cache.meta.fingerprint == tokenizer.fingerprint
    with LookupDrafts(**CACHE, dynamic=path, n_draft=1) as drafts:
        assert drafts(ids_of([9, 1, 2])).tolist() == [3]


def test_nothing_said_saves_nothing(tmp_path: Path) -> None:
    with LookupDrafts(**CACHE) as drafts:
        drafts.save_dynamic(tmp_path / "live.lcd")
        drafts.observe(ids_of([7]))
        drafts.save_dynamic(tmp_path / "live.lcd")
    assert names(tmp_path) == set()


def test_row_02_a_live_file_that_cannot_be_read_is_left_alone(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    broken, theirs = tmp_path / "broken.lcd", tmp_path / "theirs.lcd"
    write_counts(broken, {(1,): {2: 1}, (1, 2): {3: 1}}, "legacy")
    broken.write_bytes(broken.read_bytes()[:-3])
    write_counts(theirs, {(1,): {2: 1}}, "legacy", CacheMeta(fingerprint="f" * 32, tokenizer="X"))
    (tmp_path / "folder").mkdir()
    before = {path: path.read_bytes() for path in (broken, theirs)}
    left = names(tmp_path)
    with LookupDrafts(**CACHE, tokenizer=tokenizer) as drafts:
        drafts.observe(ids_of([1, 2, 3, 1, 2, 3]))
        with pytest.raises(FormatError, match=r"broken\.lcd: found"):
            drafts.save_dynamic(broken)
        with pytest.raises(TokenizerMismatchError, match="X"):
            drafts.save_dynamic(theirs)
        with pytest.raises(ParameterError, match="folder: found no regular file"):
            drafts.save_dynamic(tmp_path / "folder")
        with pytest.raises(FileNotFoundError):
            drafts.save_dynamic(tmp_path / "nowhere" / "live.lcd")
        assert {path: path.read_bytes() for path in before} == before
        assert names(tmp_path) == left
        # nothing of it counts as saved
        drafts.save_dynamic(tmp_path / "live.lcd")
    assert read_counts(tmp_path / "live.lcd") == said_counts([1, 2, 3, 1, 2, 3])


# ---- the loop, with an engine of ours


class Chooser:
    """A model that looks at all that its context holds, which is all it can see."""

    def __init__(self, seed: int, vocab: int, n_ctx: int = 10_000, ending: int = -1) -> None:
        self.seed, self.vocab, self.n_ctx, self.ending = seed, vocab, n_ctx, ending
        self.context: list[int] = []
        self.widths: list[int] = []

    @property
    def n(self) -> int:
        return len(self.context)

    def _next(self) -> int:
        # mostly an earlier continuation, so that lookups are right now and then
        rng = random.Random(f"{self.seed} {self.context}")
        last = self.context[-1]
        after = [b for a, b in zip(self.context, self.context[1:], strict=False) if a == last]
        return rng.choice(after) if after and rng.random() < 0.8 else rng.randrange(self.vocab)

    def decode(self, tokens: Sequence[int]) -> list[int]:
        assert len(self.context) + len(tokens) <= self.n_ctx
        self.widths.append(len(tokens))
        answers = []
        for token in tokens:
            self.context.append(token)
            answers.append(self._next())
        return answers

    def prefill(self, tokens: Sequence[int]) -> int:
        self.context = list(tokens)
        self.widths = []
        return self._next()

    def keep(self, n: int) -> None:
        assert n <= len(self.context)
        del self.context[n:]

    def ends(self, token: int) -> bool:
        return token == self.ending


def foolish(rng: random.Random, vocab: int) -> Callable[..., np.ndarray[Any, Any]]:
    """Drafts of any length, past budgets and ends, right by chance."""
    return lambda ids, **_: ids_of([rng.randrange(vocab) for _ in range(rng.randint(0, 6))])


@given(
    seed=st.integers(0, 2**32),
    vocab=st.integers(1, 6),
    max_tokens=st.integers(1, 40),
    ending=st.integers(-1, 8),
    lookup=st.booleans(),
    tight=st.integers(0, 60),
)
def test_the_loop_says_what_plain_decoding_says(
    seed: int, vocab: int, max_tokens: int, ending: int, lookup: bool, tight: int
) -> None:
    rng = random.Random(seed)
    prompt = random_stream(rng, rng.randint(1, 12), vocab)
    model = Chooser(seed, vocab, len(prompt) + 1 + tight, ending)
    plain = greedy(model, prompt, max_tokens)
    assert model.widths == [1] * plain.decodes
    assert len(plain.tokens) == 1 + plain.decodes
    assert plain.stop == ("end" if plain.tokens[-1] == ending else "limit")
    if plain.stop == "limit":
        assert len(plain.tokens) == min(max_tokens, tight + 2)
        assert ending not in plain.tokens
    with LookupDrafts(**CACHE, n_draft=5) as drafts:
        found = greedy(model, prompt, max_tokens, drafts if lookup else foolish(rng, vocab))
        if lookup:
            assert (drafts.drafted, drafts.accepted) == (found.drafted, found.accepted)
    assert (found.tokens, found.stop) == (plain.tokens, plain.stop)
    assert sum(model.widths) == found.drafted + found.decodes
    # every decode yields a token of the model's own, unless a drafted one ends it all
    assert 1 + found.decodes + found.accepted - len(found.tokens) in (0, found.stop == "end")
    # the context is the text without what was refused; its end may hold what lay behind an end
    said = [*prompt, *found.tokens]
    assert model.context[: len(said) - 1] == said[:-1]


def test_ends_can_be_ignored() -> None:
    model = Chooser(1, 3, ending=1)
    assert greedy(model, [0, 1, 2], 30).stop == "end"
    found = greedy(model, [0, 1, 2], 30, ignore_ends=True)
    assert (len(found.tokens), found.stop) == (30, "limit")


@pytest.mark.parametrize(("prompt", "max_tokens"), [([], 5), ([1], 0), ([1] * 10, 5)])
def test_a_prompt_needs_room(prompt: list[int], max_tokens: int) -> None:
    with pytest.raises(ParameterError, match="expected at least one of both and fewer than 10"):
        greedy(Chooser(1, 3, 10), prompt, max_tokens)


# ---- without llama-cpp-python


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    for make in (LookupDraftModel, lambda: LlamaSequence(object())):
        with pytest.raises(EngineError, match=r"install lookup-tools\[llama-cpp-python\]"):
            make()


def test_an_old_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    old = type(sys)("llama_cpp")
    old.__version__ = "0.2.1"
    old.__path__ = []
    monkeypatch.setitem(sys.modules, "llama_cpp", old)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", type(sys)("x"))
    with pytest.raises(EngineError, match=r"found llama-cpp-python 0.2.1, .* upgrade"):
        LlamaSequence(object())


def test_a_state_that_cannot_be_taken_back_is_an_error() -> None:
    sequence = LlamaSequence.__new__(LlamaSequence)
    sequence._api = SimpleNamespace(llama_memory_seq_rm=lambda *_: False)
    sequence._memory, sequence.n = None, 5
    with pytest.raises(EngineError, match="decode it without drafts"):
        sequence.keep(3)
    assert sequence.n == 5


def test_importing_loads_no_engine() -> None:
    code = (
        "import sys, lookup_tools, lookup_tools.engine.llama_cpp_python\n"
        "lookup_tools.Drafter().close()\n"
        "assert 'llama_cpp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- llama-cpp-python itself

STACK = '''class Stack:
    """A stack of items, the last one in is the first one out."""

    def __init__(self, items):
        self.items = list(items)

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("pop from an empty stack")
        return self.items.pop()

    def peek(self):
        if not self.items:
            raise IndexError("peek at an empty stack")
        return self.items[-1]
'''
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
REWRITE = TURN.format(f"Rewrite this file:\n```python\n{STACK}```") + "```python\n"
CHAIN: dict[str, Any] = {"spec_type": "ngram-suffix,ngram-cache", "n_draft": 8, "draft": 8}
N_BATCH = 96  # less than REWRITE has


def make_llama(gguf: Path, **options: Any) -> Any:
    """One thread, so that a token's logits are the same in batches of any width (with flash
    attention, on this engine and a CPU)."""
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed")
    from llama_cpp import Llama

    options = {"n_ctx": 384, "n_batch": N_BATCH, "flash_attn": True, **options}
    return Llama(str(gguf), n_threads=1, n_threads_batch=1, verbose=False, **options)


def encode(llama: Any, text: str) -> list[int]:
    return list(llama.tokenize(text.encode(), add_bos=False, special=True))


def library(llama: Any, prompt: Sequence[int], n: int) -> list[int]:
    """n tokens by the library's own loop."""
    llama.reset()
    said = llama.generate(list(prompt), temp=0.0)
    with closing(said):
        return [int(token) for token, _ in zip(said, range(n), strict=False)]


@pytest.fixture(scope="module")
def llama(gguf: Path) -> Iterator[Any]:
    with closing(make_llama(gguf)) as made:
        yield made


@pytest.fixture(scope="module")
def rewritten(llama: Any) -> tuple[list[int], Any]:
    """The prompt, and what plain decoding makes of it: as many tokens as the file has."""
    prompt = encode(llama, REWRITE)
    assert len(prompt) > N_BATCH
    return prompt, greedy(LlamaSequence(llama), prompt, len(encode(llama, STACK)))


@pytest.mark.engine
def test_rewriting_a_file_takes_a_third_of_the_decodes(
    llama: Any, rewritten: tuple[list[int], Any]
) -> None:
    prompt, plain = rewritten
    with LookupDraftModel(**CHAIN) as draft:
        found = greedy(LlamaSequence(llama), prompt, len(plain.tokens), draft)
    assert found.tokens == plain.tokens
    assert found.stop == plain.stop
    assert plain.decodes == len(plain.tokens) - 1
    assert 3 * found.decodes <= plain.decodes
    # the library's loop says the same
    assert library(llama, prompt, 40) == plain.tokens[:40]
    assert greedy(LlamaSequence(llama), prompt, 10).tokens == plain.tokens[:10]


@pytest.mark.engine
def test_as_the_librarys_draft_model(gguf: Path, rewritten: tuple[list[int], Any]) -> None:
    from llama_cpp.llama_speculative import LlamaDraftModel

    prompt, plain = rewritten
    n = len(plain.tokens)
    with LookupDraftModel(**CHAIN) as draft:
        assert isinstance(draft, LlamaDraftModel)
        with closing(make_llama(gguf, draft_model=draft, logits_all=True)) as llama:
            draft.expect(n)
            assert library(llama, prompt, n) == plain.tokens
            assert 3 * draft.steps <= n
            assert draft.accepted > n // 2
            # the next turn: its history goes on from this one's
            steps = draft.steps
            turn = [*prompt, *plain.tokens, *encode(llama, TURN.format("Thank you."))]
            draft.expect(8)
            assert len(library(llama, turn, 8)) == 8
            assert draft.steps > steps


@pytest.mark.engine
def test_a_draft_model_needs_logits_all_for_long_prompts(
    gguf: Path, rewritten: tuple[list[int], Any]
) -> None:
    """A fault of the library that our own loop does not share; see docs/engines.md."""
    prompt, _ = rewritten
    with (
        LookupDraftModel(**CHAIN) as draft,
        closing(make_llama(gguf, draft_model=draft)) as llama,
        pytest.raises(ValueError, match="broadcast"),
    ):
        library(llama, prompt, 2)


@pytest.mark.engine
def test_without_flash_attention_the_width_changes_the_text_not_the_loop(gguf: Path) -> None:
    """The library's lookup decoding leaves the plain greedy text where two tokens are almost
    equally likely, and so does our loop with the same drafts: at the same token, to the same text.
    """
    speculative = pytest.importorskip(
        "llama_cpp.llama_speculative", reason="llama-cpp-python is not installed"
    )
    drafts = speculative.LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=10)
    options = {"flash_attn": False, "logits_all": True, "n_ctx": 128}
    with closing(make_llama(gguf, draft_model=drafts, **options)) as llama:
        prompt = encode(llama, TURN.format("Write a short story about a dog."))
        theirs = library(llama, prompt, 40)
        sequence = LlamaSequence(llama)
        plain = greedy(sequence, prompt, 40, ignore_ends=True).tokens
        assert greedy(sequence, prompt, 40, drafts, ignore_ends=True).tokens == theirs
        leaves = next((k for k in range(40) if plain[k] != theirs[k]), None)
        if leaves is None:
            return  # this machine computes both alike
        text = [*prompt, *plain[:leaves]]
        narrow, wide = (logits_after(sequence, text, len(prompt), width) for width in (1, 2))
        apart = np.abs(narrow - wide).max()
        for logits in (narrow, wide):
            best, other = logits[plain[leaves]], logits[theirs[leaves]]
            assert abs(best - other) <= 2 * apart
    assert apart > 0


def logits_after(sequence: LlamaSequence, text: list[int], n_prompt: int, width: int) -> Any:
    """The logits behind a text whose end was decoded in batches of a width."""
    sequence.prefill(text[:n_prompt])
    for start in range(n_prompt, len(text), width):
        part = text[start : start + width]
        sequence.run(part)
    logits = sequence._api.llama_get_logits_ith(sequence._llama.ctx, -1)
    return np.ctypeslib.as_array(logits, (sequence._n_vocab,)).copy()


@pytest.mark.engine
def test_a_verify_batch_may_be_wider_than_a_batch(gguf: Path) -> None:
    """llama_decode takes n_batch tokens; a draft may have more."""
    with closing(make_llama(gguf, n_batch=4, n_ubatch=4, n_ctx=64)) as llama:
        sequence = LlamaSequence(llama)
        prompt = encode(llama, "one two three four five six seven eight nine")
        plain = greedy(sequence, prompt, 12, ignore_ends=True)
        known = ids_of([*prompt, *plain.tokens])
        oracle = greedy(sequence, prompt, 12, lambda ids, **_: known[len(ids) :], ignore_ends=True)
    assert oracle.tokens == plain.tokens
    assert (oracle.decodes, oracle.accepted) == (1, 10)


@pytest.mark.engine
def test_the_model_ends_its_answer(llama: Any) -> None:
    """Drafts that know the end stop before it, others are cut behind it."""
    question = TURN.format("What is the capital of France?")
    first = greedy(LlamaSequence(llama), encode(llama, question), 40)
    assert first.stop == "end"
    assert llama.detokenize(first.tokens, special=True).endswith(b"Paris.<|im_end|>")
    again = [*encode(llama, question), *first.tokens, *encode(llama, "\n" + question)]
    plain = greedy(LlamaSequence(llama), again, 40)
    assert plain.stop == "end"
    for eos in ((), first.tokens[-1:]):
        with LookupDraftModel(**CHAIN, eos=eos) as draft:
            found = greedy(LlamaSequence(llama), again, 40, draft)
        assert (found.tokens, found.stop) == (plain.tokens, "end")
        assert found.decodes < plain.decodes


@pytest.mark.engine
def test_what_the_engine_refuses_is_an_error(llama: Any) -> None:
    with pytest.raises(EngineError, match="llama_decode: found status -1 for 1 tokens after 0"):
        LlamaSequence(llama).run([10**8])
