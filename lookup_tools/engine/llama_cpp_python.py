"""llama-cpp-python: a draft model for its `Llama`, and a greedy loop over its low-level API.

    llama = Llama("model.gguf", n_ctx=4096, flash_attn=True, verbose=False)
    with LookupDraftModel(static="corpus.lcs", spec_type="ngram-suffix,ngram-cache") as draft:
        said = greedy(LlamaSequence(llama), llama.tokenize(b"Once upon a time"), 200, draft)

The loop asks for the logits of a verify batch only, where `Llama(draft_model=...)` computes and
stores those of the whole prompt, and it tells the drafts how many tokens are left.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from lookup_tools.engine.drafts import LookupDrafts
from lookup_tools.errors import EngineError, ParameterError
from lookup_tools.tokens.stream import Ids


class LookupDraftModel(LookupDrafts):
    """A `llama_cpp.llama_speculative.LlamaDraftModel`, for `Llama(draft_model=...)` and `greedy`.
    All but the kind is `LookupDrafts`'. Say what `max_tokens` is with `expect` before a request to
    `Llama`, which does not tell; nor does it hand over the last tokens of a request, see `observe`.

    Raises:
        EngineError: llama-cpp-python is not installed. See `LookupDrafts` for the rest.
    """

    def __new__(cls, *_: Any, **__: Any) -> LookupDraftModel:
        # Registered, not inherited from: this module can be imported without llama_cpp.
        _llama_cpp().llama_speculative.LlamaDraftModel.register(cls)
        return super().__new__(cls)


def _llama_cpp() -> Any:
    try:
        import llama_cpp
        import llama_cpp.llama_speculative
    except ImportError as error:
        raise EngineError(
            f"found no {error.name}, expected it for drafting in llama-cpp-python; "
            "install lookup-tools[llama-cpp-python]"
        ) from None
    return llama_cpp


class Engine(Protocol):
    """What `greedy` needs of an engine. Its context holds `n` of at most `n_ctx` tokens."""

    n: int
    n_ctx: int

    def prefill(self, tokens: Sequence[int]) -> int:
        """Start anew with a prompt; the most likely next token."""

    def decode(self, tokens: Sequence[int]) -> list[int]:
        """Append the tokens; after each one, the most likely next token."""

    def keep(self, n: int) -> None:
        """Forget all but the first n tokens."""

    def ends(self, token: int) -> bool:
        """Whether the token ends a generation."""


class LlamaSequence:
    """Sequence 0 in the context of a `llama_cpp.Llama`. Whatever that held before is forgotten.

    Raises:
        EngineError: llama-cpp-python is too old.
    """

    def __init__(self, llama: Any) -> None:
        api = self._api = _llama_cpp()
        if not hasattr(api, "llama_memory_seq_rm"):
            raise EngineError(
                f"found llama-cpp-python {api.__version__}, expected one with llama_memory_seq_rm; "
                "upgrade it"
            )
        self._llama = llama
        self._memory = api.llama_get_memory(llama.ctx)
        self._vocab = api.llama_model_get_vocab(llama.model)
        self._n_vocab = api.llama_vocab_n_tokens(self._vocab)
        self._n_batch = api.llama_n_batch(llama.ctx)
        self._batch = api.llama_batch_init(self._n_batch, 0, 1)
        weakref.finalize(self, api.llama_batch_free, self._batch)
        self.n_ctx = llama.n_ctx()
        self._start()

    def run(self, tokens: Sequence[int], all_logits: bool = True) -> list[int]:
        """Append tokens, in batches that the context takes; the most likely token after each one,
        or after the last one only.

        Raises:
            EngineError: the engine refuses; what is in its context is not known then.
        """
        likely: list[int] = []
        for start in range(0, len(tokens), self._n_batch):
            part = tokens[start : start + self._n_batch]
            last = start + len(part) == len(tokens)
            self._fill(part, all_logits, last)
            status = self._api.llama_decode(self._llama.ctx, self._batch)
            if status:
                raise EngineError(
                    f"llama_decode: found status {status} for {len(part)} tokens after {self.n}, "
                    "expected 0; is the context large enough?"
                )
            self.n += len(part)
            if all_logits or last:
                likely += self._likely(len(part) if all_logits else 1)
        return likely

    def _fill(self, tokens: Sequence[int], all_logits: bool, last: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, self.n + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = all_logits or (last and i == len(tokens) - 1)

    def _likely(self, rows: int) -> list[int]:
        logits = self._api.llama_get_logits(self._llama.ctx)  # waits until they are computed
        table = np.ctypeslib.as_array(logits, (rows, self._n_vocab))
        return [int(token) for token in table.argmax(axis=1)]

    def decode(self, tokens: Sequence[int]) -> list[int]:
        return self.run(tokens)

    def _start(self) -> None:
        self._llama.reset()  # it reuses what it believes to be in its context otherwise
        self.keep(0)

    def prefill(self, tokens: Sequence[int]) -> int:
        self._start()
        return self.run(tokens, all_logits=False)[-1]

    def keep(self, n: int) -> None:
        if not self._api.llama_memory_seq_rm(self._memory, 0, n, -1):
            raise EngineError(
                "found a model whose state cannot be taken back, expected one with a key-value "
                "cache; decode it without drafts"
            )
        self.n = n

    def ends(self, token: int) -> bool:
        return bool(self._api.llama_vocab_is_eog(self._vocab, token))


@dataclass(frozen=True, slots=True)
class Generated:
    """What one prompt led to.

    `tokens` includes the one that ended it; `accepted` of them were drafted. Decodes and seconds
    are those behind the prompt's own, which yields the first token: `prompt_seconds`.
    """

    tokens: list[int]
    stop: Literal["end", "limit"]
    decodes: int
    drafted: int
    accepted: int
    prompt_seconds: float
    seconds: float


def greedy(
    engine: Engine,
    prompt: Sequence[int],
    max_tokens: int,
    draft: Any = None,
    *,
    ignore_ends: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Generated:
    """Greedy decoding with drafts: each one is verified in one batch with the last token, and what
    the engine does not say itself is forgotten again.

    The text is that of plain decoding wherever the engine computes the same logits in batches of
    any width; llama.cpp does with flash attention on CPUs, not everywhere else.

    Args:
        engine: a `LlamaSequence`.
        prompt: ids, at least one.
        max_tokens: most tokens to say; fewer where the context is full or the model ends.
        draft: a `LookupDraftModel` or any other `LlamaDraftModel`. Without one this is plain
            decoding: nothing is asked or counted for drafts.
        ignore_ends: go on behind tokens that end a generation.

    Raises:
        ParameterError: an empty prompt, or one that leaves no room.
        EngineError: the engine fails, or cannot take back what was refused.
    """
    history = _history(engine, prompt, max_tokens)
    start = clock()
    known = len(prompt) + 1
    history[known - 1] = engine.prefill(prompt)
    begun = clock()
    decodes = drafted = accepted = 0
    while known < len(history) and (ignore_ends or not engine.ends(int(history[known - 1]))):
        guess = _drafted(draft, history, known)
        found = _verified(engine, int(history[known - 1]), guess)
        new = found if ignore_ends else _until_end(engine, found)
        history[known : known + len(new)] = new
        known += len(new)
        decodes, drafted = decodes + 1, drafted + len(guess)
        accepted += min(len(new), len(found) - 1)
    seconds = clock() - begun
    if isinstance(draft, LookupDrafts):
        draft.observe(history[:known])
    said = history[len(prompt) : known].tolist()
    ended = not ignore_ends and engine.ends(said[-1])
    return Generated(
        said, "end" if ended else "limit", decodes, drafted, accepted, begun - start, seconds
    )


def _history(engine: Engine, prompt: Sequence[int], max_tokens: int) -> Ids:
    """The prompt and room for what will be said. The last token need not enter the context."""
    room = engine.n_ctx - len(prompt) + 1
    if not len(prompt) or max_tokens < 1 or room < 2:
        raise ParameterError(
            f"found {len(prompt)} prompt tokens and {max_tokens} to say, expected at least one of "
            f"both and fewer than {engine.n_ctx} in the prompt, which is the context's size"
        )
    history = np.empty(len(prompt) + min(max_tokens, room), np.intc)
    history[: len(prompt)] = prompt
    return history


def _drafted(draft: Any, history: Ids, known: int) -> list[int]:
    """A draft for the first `known` tokens that leaves room for the engine's own."""
    if draft is None:
        return []
    left = len(history) - known
    guess: list[int] = draft(history[:known], remaining=left)[: left - 1].tolist()
    return guess


def _verified(engine: Engine, last: int, guess: list[int]) -> list[int]:
    """Decode the last token and a draft behind it: the tokens of the draft that the engine would
    have said itself, and the one that it says next."""
    begin = engine.n
    answers = engine.decode([last, *guess])
    accepted = 0
    while accepted < len(guess) and answers[accepted] == guess[accepted]:
        accepted += 1
    if accepted < len(guess):
        engine.keep(begin + 1 + accepted)
    return answers[: accepted + 1]


def _until_end(engine: Engine, tokens: list[int]) -> list[int]:
    """The tokens up to the first that ends a generation, that one included."""
    for at, token in enumerate(tokens):
        if engine.ends(token):
            return tokens[: at + 1]
    return tokens
