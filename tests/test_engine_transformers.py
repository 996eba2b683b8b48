"""Drafting in transformers, with tiny models of random weights.

Weights are float64, so that what a batch of tokens gives is what single tokens give.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import cache_drafter, count_documents, random_stream, write_counts

from lookup_tools import DynamicTable, open_cache
from lookup_tools.engine.transformers import LookupCandidateGenerator
from lookup_tools.errors import ClosedError, EngineError, ParameterError

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

VOCAB = 128
LOOPING = [5, 6, 7, 8, 9] * 3
DISTINCT = [3, 1, 4, 15, 9, 2, 6]
HISTORY = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}


class Watched(LookupCandidateGenerator):
    """Remembers what it proposed and how much it fetched."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.proposed: list[list[int]] = []
        self.lengths: list[int] = []
        self.fetched: list[int] = []
        super().__init__(*arguments, **named)

    def get_candidates(self, input_ids: Any, **more: Any) -> tuple[Any, None]:
        candidates, scores = super().get_candidates(input_ids, **more)
        n = input_ids.shape[1]
        assert torch.equal(candidates[:, :n], input_ids)
        assert candidates.dtype == torch.int64
        self.proposed.append(candidates[0, n:].tolist())
        self.lengths.append(candidates.shape[1])
        return candidates, scores

    def _fetch(self, ids: Any) -> Any:
        self.fetched.append(len(ids))
        return super()._fetch(ids)


class Llama:
    """A model and how often it was run."""

    def __init__(self, model: Any) -> None:
        self.model = model.to(torch.float64).eval()
        self.passes = 0
        self._plain: dict[tuple[int, ...], list[int]] = {}
        model.register_forward_pre_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.passes += 1

    def say(self, prompt: Sequence[int], n: int = 60, **named: Any) -> list[int]:
        """What `generate` adds to the prompt."""
        named = {"do_sample": False, "max_new_tokens": n, **named}
        self.passes = 0
        found = self.model.generate(torch.tensor([list(prompt)]), **named)
        assert found[0, : len(prompt)].tolist() == list(prompt)
        return [int(token) for token in found[0, len(prompt) :]]

    def plain(self, prompt: Sequence[int]) -> list[int]:
        """What greedy decoding without drafts adds, 60 tokens."""
        key = tuple(prompt)
        if key not in self._plain:
            self._plain[key] = self.say(prompt)
        return self._plain[key]


def random_llama(seed: int, **sizes: Any) -> Llama:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(**{**SIZES, **sizes})
    return Llama(transformers.LlamaForCausalLM(config))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """More cost more than they bring to such models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def llamas() -> Callable[[int], Llama]:
    made = {seed: random_llama(seed) for seed in range(3)}
    return made.__getitem__


@pytest.fixture(scope="module")
def llama(llamas: Callable[[int], Llama]) -> Llama:
    return llamas(0)


@pytest.fixture
def lookup() -> Iterator[Watched]:
    with Watched() as generator:
        yield generator


def restricted(prompt: Sequence[int], **restrictions: Any) -> list[int]:
    """What is proposed after a prompt under restrictions; [4, 5, 6, 7, 8, 9, 1, 2] after HISTORY
    without any."""
    with Watched(spec_type="ngram-suffix", draft=8) as generator:
        generator.restrict(vocab_size=VOCAB, **restrictions)
        generator.get_candidates(torch.tensor([list(prompt)]))
        return generator.proposed[0]


# ---- the same text in fewer passes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("prompt", [LOOPING, DISTINCT], ids=["looping", "distinct"])
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"n_draft": 1},
        {"n_draft": 64, "context_samples_4": 1},
        {"spec_type": "ngram-suffix"},
        {"spec_type": "ngram-simple", "size_n": 3, "size_m": 4},
        {"spec_type": "ngram-map-k4v", "size_n": 3, "size_m": 4, "compat": "llama.cpp"},
        {"spec_type": "ngram-mod,ngram-suffix"},
    ],
    ids=str,
)
def test_greedy_text_is_the_plain_text(
    llamas: Callable[[int], Llama], seed: int, prompt: list[int], spec: dict[str, Any]
) -> None:
    llama = llamas(seed)
    plain = llama.plain(prompt)
    with Watched(**spec) as lookup:
        assert llama.say(prompt, custom_generate=lookup) == plain
    assert llama.passes == lookup.steps == len(plain) - lookup.accepted
    assert lookup.drafted == sum(map(len, lookup.proposed)) >= lookup.accepted
    assert lookup.accepted > 0 or prompt == DISTINCT


@pytest.mark.parametrize("seed", range(3))
def test_repetition_takes_fewer_passes(llamas: Callable[[int], Llama], seed: int) -> None:
    with Watched() as lookup:
        said = llamas(seed).say(LOOPING, 120, custom_generate=lookup)
    assert len(said) == 120
    assert lookup.accepted > 40
    assert llamas(seed).passes < 80


@pytest.mark.parametrize(
    ("tier", "given"),
    [
        ("static", "path"), ("static", "open"),
        ("dynamic", "path"), ("dynamic", "open"), ("dynamic", "table"),
    ],
)  # fmt: skip
def test_a_cache_of_what_will_be_said(
    llama: Llama, tmp_path: Path, tier: str, given: str, request: pytest.FixtureRequest
) -> None:
    plain = llama.plain(DISTINCT)
    orders = (2,) if tier == "static" else (1, 2, 3, 4)
    path = tmp_path / "cache"
    write_counts(path, count_documents([DISTINCT + plain] * 4, orders), "legacy")
    cache: Any = path
    if given != "path":
        cache = open_cache(path)
        request.addfinalizer(cache.close)
    if given == "table":
        cache = DynamicTable(cache)
    with Watched(**{tier: cache}) as lookup, Watched() as without:
        assert llama.say(DISTINCT, custom_generate=lookup) == plain
        llama.say(DISTINCT, custom_generate=without)
    assert lookup.proposed[0]  # before anything has been said twice
    assert lookup.accepted > without.accepted + 5


def test_caches_are_shared_and_the_callers_stay_open(llama: Llama, tmp_path: Path) -> None:
    plain = llama.plain(DISTINCT)
    write_counts(tmp_path / "cache", count_documents([DISTINCT + plain] * 4))
    with open_cache(tmp_path / "cache") as cache:
        with Watched(static=cache) as one, Watched(static=cache) as other:
            with pytest.raises(ClosedError, match="2 drafter"):
                cache.close()
            for lookup in (one, other):
                assert llama.say(DISTINCT, custom_generate=lookup) == plain
            assert one.proposed == other.proposed
        assert not cache.closed


def test_a_closed_generator_says_so(llama: Llama) -> None:
    with Watched() as lookup:
        lookup.close()
    with pytest.raises(ClosedError, match="closed drafter"):
        llama.say(LOOPING, custom_generate=lookup)


# ---- row 23: budget, end, nothing


def test_row_23_never_past_the_budget_or_the_end_and_nothing_is_empty() -> None:
    assert restricted(HISTORY) == [4, 5, 6, 7, 8, 9, 1, 2]
    n = len(HISTORY)
    assert restricted(HISTORY, max_length=n + 2) == [4]  # and one of the model's own
    assert restricted(HISTORY, max_length=n + 1) == []
    assert restricted(HISTORY, eos_token_id=6) == [4, 5]
    assert restricted(HISTORY, eos_token_id=[9, 7]) == [4, 5, 6]
    assert restricted(HISTORY, eos_token_id=None) == [4, 5, 6, 7, 8, 9, 1, 2]
    assert restricted(HISTORY, eos_token_id=4) == []
    given = torch.tensor([DISTINCT])
    with LookupCandidateGenerator() as lookup:
        candidates, scores = lookup.get_candidates(given)
    assert candidates is given
    assert scores is None
    assert (candidates.dtype, tuple(candidates.shape)) == (torch.int64, (1, len(DISTINCT)))


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 11])
@pytest.mark.parametrize("as_length", [False, True])
def test_the_budget_is_kept(llama: Llama, lookup: Watched, budget: int, as_length: bool) -> None:
    prompt = LOOPING + llama.plain(LOOPING)  # in the middle of what repeats itself
    expected = llama.plain(prompt)[:budget]
    limit: dict[str, Any] = {"max_new_tokens": budget}
    if as_length:
        limit = {"max_new_tokens": None, "max_length": len(prompt) + budget}
    assert llama.say(prompt, custom_generate=lookup, **limit) == expected
    assert max(lookup.lengths) + 1 <= len(prompt) + budget
    assert lookup.accepted == budget - lookup.steps
    assert lookup.accepted > 0 or budget == 1


def test_generation_ends_at_every_end(llama: Llama) -> None:
    plain = llama.plain(LOOPING)
    for eos in sorted(set(plain)):
        with Watched() as lookup:
            said = llama.say(LOOPING, custom_generate=lookup, eos_token_id=eos)
        assert said == plain[: plain.index(eos) + 1]
        assert eos not in [token for proposed in lookup.proposed for token in proposed]


@pytest.mark.parametrize("places", [(20, 40), (30,), ()])
def test_one_end_several_or_none(llama: Llama, lookup: Watched, places: tuple[int, ...]) -> None:
    plain = llama.plain(LOOPING)
    ends = [plain[place] for place in places]
    eos = ends or None
    assert llama.say(LOOPING, custom_generate=lookup, eos_token_id=eos) == llama.say(
        LOOPING, eos_token_id=eos
    )


# ---- forbidden tokens, other stops


@pytest.mark.parametrize(
    "options",
    [
        {"suppress_tokens": [6]},
        {"bad_words_ids": [[6], [9, 1]]},
        {"begin_suppress_tokens": [4]},
        {"no_repeat_ngram_size": 3},
        {"min_new_tokens": 8, "eos_token_id": 6},
        {"sequence_bias": {(6,): float("-inf")}},
        {"prefix_allowed_tokens_fn": lambda batch, ids: [4, 5, 9]},
        {"forced_eos_token_id": 99, "eos_token_id": 99},
        {"repetition_penalty": 1.3, "renormalize_logits": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_forbidden_tokens(llama: Llama, options: dict[str, Any]) -> None:
    for prompt in (HISTORY, LOOPING + llama.plain(LOOPING)):
        plain = llama.say(prompt, 40, **options)
        with Watched() as lookup:
            assert llama.say(prompt, 40, custom_generate=lookup, **options) == plain
        assert llama.passes == len(plain) - lookup.accepted


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("SuppressTokensLogitsProcessor", ([6, 9],), [4, 5]),
        ("SuppressTokensLogitsProcessor", ([4],), []),
        ("SuppressTokensAtBeginLogitsProcessor", ([6, 4], len(HISTORY)), []),
        ("SuppressTokensAtBeginLogitsProcessor", ([6, 4], len(HISTORY) + 2), [4, 5]),
        ("NoBadWordsLogitsProcessor", ([[8], [6, 7]],), [4, 5, 6]),
        ("NoRepeatNGramLogitsProcessor", (4,), []),
        ("PrefixConstrainedLogitsProcessor", (lambda batch, ids: [4, 5, 9], 1), [4, 5]),
        ("MinLengthLogitsProcessor", (len(HISTORY) + 4, 7), [4, 5, 6]),
        # These leave alone whatever the model is sure of.
        ("TopPLogitsWarper", (0.01,), [4, 5, 6, 7, 8, 9, 1, 2]),
        ("TopKLogitsWarper", (1,), [4, 5, 6, 7, 8, 9, 1, 2]),
        ("TypicalLogitsWarper", (0.1,), [4, 5, 6, 7, 8, 9, 1, 2]),
    ],
)
def test_drafts_end_before_what_is_forbidden(
    name: str, arguments: tuple[Any, ...], expected: list[int]
) -> None:
    processor = getattr(transformers.generation.logits_process, name)(*arguments)
    assert restricted(HISTORY, logits_processor=[processor]) == expected


def test_a_processor_of_ones_own_is_asked_with_the_tokens_before() -> None:
    asked = []

    def forbid(ids: Any, scores: Any) -> Any:
        asked.append(ids[0].tolist())
        scores[:, 7] = torch.finfo(scores.dtype).min
        return scores

    assert restricted(HISTORY, logits_processor=[forbid]) == [4, 5, 6]
    assert asked == [HISTORY + [4, 5, 6, 7][:k] for k in range(4)]


def test_a_processor_that_leaves_the_likeliest_forbids_nothing() -> None:
    def greedy(ids: Any, scores: Any) -> Any:
        others = torch.arange(scores.shape[1]) != scores.argmax()
        return scores.masked_fill(others, float("-inf"))

    assert restricted(HISTORY, logits_processor=[greedy]) == [4, 5, 6, 7, 8, 9, 1, 2]


def test_ids_that_the_model_does_not_have_are_not_drafted() -> None:
    assert restricted([1, 2, 3, 127, 4, 1, 2, 3]) == [127, 4, 1, 2, 3]
    assert restricted([1, 2, 3, 128, 4, 1, 2, 3]) == []


class StopAfter(transformers.StoppingCriteria):  # type: ignore[misc]
    """Stops when the last tokens are these."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        stop = input_ids[0, -len(self.ids) :].tolist() == self.ids
        return torch.full((input_ids.shape[0],), stop)


def test_a_stop_inside_a_draft_is_not_missed(llama: Llama) -> None:
    prompt = LOOPING + llama.plain(LOOPING)  # what comes now has been said before, and is drafted
    plain = llama.plain(prompt)
    for end in range(2, 14):
        criteria = [StopAfter(plain[end - 2 : end])]
        expected = llama.say(prompt, 20, stopping_criteria=criteria)
        with Watched() as lookup:
            said = llama.say(prompt, 20, stopping_criteria=criteria, custom_generate=lookup)
        assert said == expected
        assert len(said) <= end


@pytest.mark.parametrize("kind", ["MaxLengthCriteria", "EosTokenCriteria", "MaxTimeCriteria"])
def test_known_criteria_are_read(kind: str) -> None:
    argument = {
        "MaxLengthCriteria": len(HISTORY) + 3,
        "EosTokenCriteria": [6],
        "MaxTimeCriteria": 0,
    }
    criterion = getattr(transformers.generation.stopping_criteria, kind)(argument[kind])
    expected = [4, 5, 6, 7, 8, 9, 1, 2] if kind == "MaxTimeCriteria" else [4, 5]
    assert restricted(HISTORY, stopping_criteria=[criterion], max_length=1000) == expected


def test_restrictions_end_with_the_call(llama: Llama) -> None:
    with Watched(spec_type="ngram-suffix", draft=8) as lookup:
        llama.say(HISTORY, 1, custom_generate=lookup, eos_token_id=6)
        lookup.get_candidates(torch.tensor([HISTORY]))
    assert lookup.proposed == [[], [4, 5, 6, 7, 8, 9, 1, 2]]


# ---- the history


def test_only_new_tokens_are_fetched(llama: Llama, lookup: Watched) -> None:
    said = llama.say(LOOPING, custom_generate=lookup)
    assert lookup.fetched[0] == len(LOOPING)
    assert sum(lookup.fetched[1:]) == len(said)
    assert len(lookup.fetched) == lookup.steps + 1


def test_calls_that_share_a_prefix(llama: Llama, lookup: Watched) -> None:
    said = llama.plain(LOOPING)
    prompts = [
        LOOPING,
        LOOPING + said,  # goes on
        LOOPING + said[:30] + [11, 12, 5, 6, 7],  # is taken back, and goes on otherwise
        LOOPING[:4],  # is all but forgotten
        DISTINCT,
        LOOPING + said[:30],
    ]
    for prompt in prompts:
        with Watched() as fresh:
            expected = llama.say(prompt, custom_generate=fresh)
        lookup.proposed.clear()
        assert llama.say(prompt, custom_generate=lookup) == expected == llama.plain(prompt)
        assert lookup.proposed == fresh.proposed


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"spec_type": "ngram-map-k", "size_n": 3},
        {"spec_type": "ngram-simple,ngram-suffix", "size_n": 3},
    ],
    ids=str,
)
def test_candidates_are_what_a_drafter_drafts(spec: dict[str, Any]) -> None:
    rng = random.Random(1)
    text = random_stream(rng, 600, 6)
    n, checked = 20, 0
    with Watched(**spec) as lookup, cache_drafter(**spec) as drafter:
        drafter.begin(text[:n])
        history = torch.tensor([text[:n]])
        while n < 500:
            lookup.get_candidates(history)
            expected = drafter.draft().tolist()
            assert lookup.proposed[-1] == expected
            k = 0
            while k < len(expected) and expected[k] == text[n + k]:
                k += 1
            assert drafter.accept(text[n : n + k + 1]) == k
            n += k + 1
            checked += k > 0
            history = torch.tensor([text[:n]])
            lookup.update_candidate_strategy(history, None, torch.tensor(k))
    assert checked > 10
    assert lookup.fetched[-1] < 20


def test_a_history_that_does_not_follow_is_read_anew(lookup: Watched) -> None:
    lookup.get_candidates(torch.tensor([LOOPING]))
    lookup.update_candidate_strategy(torch.tensor([HISTORY]), None, 0)
    with Watched() as fresh:
        for generator in (lookup, fresh):
            generator.get_candidates(torch.tensor([HISTORY]))
    assert lookup.proposed[-1] == fresh.proposed[-1]
    assert lookup.fetched == [len(LOOPING), len(HISTORY), len(HISTORY)]


# ---- sampling, outputs, other models


def test_sampling_the_likeliest_only_is_greedy(llama: Llama, lookup: Watched) -> None:
    said = llama.say(LOOPING, custom_generate=lookup, do_sample=True, top_k=1)
    assert said == llama.plain(LOOPING)
    assert lookup.accepted > 0


def test_sampling(llama: Llama, lookup: Watched) -> None:
    options = {"do_sample": True, "temperature": 0.05, "top_p": 0.9, "top_k": 20}
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        found.append(llama.say(LOOPING, custom_generate=lookup, **options))
    assert found[0] == found[1]
    assert len(found[0]) == 60
    assert lookup.accepted > 0


def test_a_dictionary_is_returned_as_ever(llama: Llama, lookup: Watched) -> None:
    options: dict[str, Any] = {
        "do_sample": False, "max_new_tokens": 40, "return_dict_in_generate": True,
        "output_scores": True,
    }  # fmt: skip
    prompt = torch.tensor([LOOPING])
    plain = llama.model.generate(prompt, **options)
    found = llama.model.generate(prompt, custom_generate=lookup, **options)
    assert torch.equal(found.sequences, plain.sequences)
    assert len(found.scores) == len(plain.scores) == 40
    assert all(torch.allclose(a, b) for a, b in zip(found.scores, plain.scores, strict=True))


class Heard:
    """A streamer."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.ended = 0

    def put(self, ids: Any) -> None:
        self.tokens += ids.flatten().tolist()

    def end(self) -> None:
        self.ended += 1


def test_streaming(llama: Llama, lookup: Watched) -> None:
    heard = Heard()
    said = llama.say(LOOPING, custom_generate=lookup, stream_to=heard)
    assert heard.tokens == LOOPING + said
    assert heard.ended == 1


def test_a_sliding_window(lookup: Watched) -> None:
    torch.manual_seed(0)
    config = transformers.MistralConfig(**{**SIZES, "sliding_window": 16})
    model = Llama(transformers.MistralForCausalLM(config))
    plain = model.say(LOOPING, 100)
    assert model.say(LOOPING, 100, custom_generate=lookup) == plain
    assert lookup.accepted > 20


def test_an_encoder_and_decoder(lookup: Watched) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=0, eos_token_id=None,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).to(torch.float64).eval()
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 40, "eos_token_id": None}
    prompt = torch.tensor([LOOPING])
    plain = model.generate(prompt, **options)
    assert torch.equal(model.generate(prompt, custom_generate=lookup, **options), plain)
    assert lookup.accepted > 0


# ---- refusals


def test_a_batch_is_refused(llama: Llama, lookup: Watched) -> None:
    two = torch.tensor([LOOPING] * 2)
    with pytest.raises(ParameterError, match="batch of 2 sequences, expected 1"):
        llama.model.generate(two, max_new_tokens=9, custom_generate=lookup)
    with pytest.raises(ParameterError, match="batch of 3 sequences, expected 1"):
        llama.say(LOOPING, custom_generate=lookup, num_beams=3)
    with pytest.raises(ParameterError, match="batch of 2 sequences, expected 1"):
        lookup.get_candidates(two)
    assert lookup.steps == 0


def test_a_model_whose_state_cannot_go_back_is_refused(lookup: Watched) -> None:
    config = transformers.MambaConfig(
        vocab_size=VOCAB, hidden_size=16, state_size=4, num_hidden_layers=1,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.MambaForCausalLM(config)
    with pytest.raises(ParameterError, match="MambaForCausalLM, whose state cannot be rolled back"):
        model.generate(torch.tensor([LOOPING]), max_new_tokens=3, custom_generate=lookup)


def test_an_old_transformers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "5.9.1")
    with pytest.raises(EngineError, match=r"found transformers 5\.9\.1, expected 5\.15 or newer"):
        LookupCandidateGenerator()


def test_a_transformers_without_the_loop_is_named(lookup: Watched) -> None:
    with pytest.raises(EngineError, match="found object without transformers' assisted decoding"):
        lookup(
            object(), torch.tensor([LOOPING]), logits_processor=[], stopping_criteria=[],
            generation_config=None,
        )  # fmt: skip


def test_bad_arguments_are_refused_before_anything_stays_open(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", count_documents([LOOPING]))
    with open_cache(tmp_path / "cache") as cache:
        with pytest.raises(ParameterError, match="n_draft 0"):
            LookupCandidateGenerator(static=cache, n_draft=0)
        with pytest.raises(ParameterError):
            LookupCandidateGenerator(static=cache, spec_type="nothing")
    with pytest.raises(FileNotFoundError):
        LookupCandidateGenerator(static=tmp_path / "none")
