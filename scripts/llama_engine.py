"""A GGUF model through llama-cpp-python's low-level API: batches of any width, greedy decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Engine(Protocol):
    """What the loops below need of an engine. Its context holds `n` tokens."""

    n: int

    def decode(self, tokens: Sequence[int]) -> list[int]:
        """Append the tokens; after each one, the most likely next token."""

    def keep(self, n: int) -> None:
        """Forget all but the first n tokens."""


class LlamaEngine:
    """One sequence in one context. Weights are loaded once."""

    def __init__(self, model: str, n_ctx: int, threads: int) -> None:
        import llama_cpp

        self._api: Any = llama_cpp
        llama_cpp.llama_backend_init()
        llama_cpp.llama_log_set(llama_cpp.llama_log_callback(_silent), None)
        self._model = llama_cpp.llama_model_load_from_file(
            model.encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise SystemExit(f"{model}: found no model llama.cpp can load, expected a GGUF")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, 512, 512
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self.n = 0

    def run(self, tokens: Sequence[int], all_logits: bool = True) -> None:
        """Append tokens, in batches of up to 512, and wait until they are computed."""
        for start in range(0, len(tokens), 512):
            part = tokens[start : start + 512]
            batch = self._batch
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i] = token, self.n + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = all_logits or i == len(part) - 1
            if self._api.llama_decode(self._context, batch):
                raise SystemExit("llama_decode failed; is the context too small?")
            self.n += len(part)
        self._api.llama_synchronize(self._context)

    def _argmax(self, i: int) -> int:
        row = self._api.llama_get_logits_ith(self._context, i)
        return int(np.ctypeslib.as_array(row, (self._n_vocab,)).argmax())

    def decode(self, tokens: Sequence[int]) -> list[int]:
        self.run(tokens)
        return [self._argmax(i) for i in range(len(tokens))]

    def prefill(self, tokens: Sequence[int]) -> int:
        """Start anew with a prompt; the most likely next token."""
        self.keep(0)
        self.run(tokens, all_logits=False)
        return self._argmax(-1)

    def keep(self, n: int) -> None:
        memory = self._api.llama_get_memory(self._context)
        self._api.llama_memory_seq_rm(memory, 0, n, -1)
        self.n = n


def _silent(level: int, text: bytes, user: Any) -> None:
    """llama.cpp reports every tensor otherwise."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Tokens of one prompt, the decodes and seconds they took (the prompt's own not counted)."""

    tokens: list[int]
    decodes: int
    seconds: float


def generate(
    engine: Engine,
    first: int,
    n: int,
    drafter: Any | None,
    clock: Callable[[], float] = time.perf_counter,
) -> Generated:
    """Greedy decoding of n tokens behind a prefilled prompt whose next token is `first`.

    Without a drafter this is plain decoding: nothing is opened, asked or counted for drafts. With
    one, each draft is verified in one batch with the last token, and what is refused is forgotten.
    """
    said, decodes = [first], 0
    start = clock()
    if drafter is not None:
        drafter.accept([first])
    while len(said) < n:
        room = n - len(said) - 1
        draft = [int(token) for token in drafter.draft()[:room]] if drafter is not None else []
        begin = engine.n
        answers = engine.decode([said[-1], *draft])
        decodes += 1
        accepted = 0
        while accepted < len(draft) and answers[accepted] == draft[accepted]:
            accepted += 1
        engine.keep(begin + 1 + accepted)
        new = answers[: accepted + 1]
        if drafter is not None:
            drafter.accept(new)
        said += new
    return Generated(said, decodes, clock() - start)
