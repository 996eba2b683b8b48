"""One way of decoding in a process of its own: started, asked every prompt once, measured.

Reads a job as JSON on standard input and answers with JSON. An arm without drafts loads no cache,
opens no source and counts nothing: it pays for plain decoding alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from lookup_tools.engine.llama_cpp_python import LlamaSequence, LookupDraftModel, greedy
from lookup_tools.engine.llama_server import LlamaServer
from lookup_tools.system.memory import process_memory

NONE = "none"
OWN = "prompt-lookup"  # llama-cpp-python's own draft model


@dataclass(frozen=True, slots=True)
class Job:
    """`engine`: loop (our greedy loop), llama (llama-cpp-python's own) or server. `drafts`: NONE,
    OWN or a spec type; `static` goes with ngram-cache."""

    engine: str
    drafts: str
    model: str
    static: str | None
    draft_max: int
    verify_cost: str | None
    threads: int
    n_ctx: int
    predict: int
    prompts: list[list[int]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What followed a prompt. Decodes and seconds are those behind the prompt's own."""

    tokens: list[int]
    seconds: float
    decodes: int
    drafted: int
    accepted: int


Ask = Callable[[list[int]], Answer]


def drafts_of(job: Job) -> Any:
    if job.drafts == NONE:
        return None
    if job.drafts == OWN:
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        return LlamaPromptLookupDecoding(num_pred_tokens=job.draft_max)
    return LookupDraftModel(
        job.static, None, job.drafts, job.draft_max, verify_cost=job.verify_cost
    )


def load(job: Job, **more: Any) -> Any:
    from llama_cpp import Llama

    return Llama(
        job.model, n_ctx=job.n_ctx, n_threads=job.threads, n_threads_batch=job.threads,
        flash_attn=True, verbose=False, **more,
    )  # fmt: skip


@contextmanager
def loop(job: Job) -> Iterator[Ask]:
    """Our greedy loop over llama-cpp-python's low-level API."""
    sequence, drafts = LlamaSequence(load(job)), drafts_of(job)

    def ask(prompt: list[int]) -> Answer:
        said = greedy(sequence, prompt, job.predict, drafts, ignore_ends=True)
        return Answer(said.tokens, said.seconds, said.decodes, said.drafted, said.accepted)

    yield ask


class Counted:
    """A draft model that counts what it drafts."""

    def __init__(self, drafts: Any) -> None:
        self.drafts, self.drafted = drafts, 0

    def __call__(self, ids: Any, /, **more: Any) -> Any:
        found = self.drafts(ids, **more)
        self.drafted += len(found)
        return found


@contextmanager
def library(job: Job) -> Iterator[Ask]:
    """`Llama.generate`, as people use it."""
    drafts = drafts_of(job)
    counted = Counted(drafts) if drafts is not None else None
    # A draft model needs the logits of every prompt token here, else a prompt over n_batch fails.
    llama = load(job, draft_model=counted, logits_all=drafts is not None)
    evaluate, evaluations = llama.eval, 0

    def eval_counted(tokens: Any) -> None:
        nonlocal evaluations
        evaluations += 1
        evaluate(tokens)

    llama.eval = eval_counted

    def ask(prompt: list[int]) -> Answer:
        nonlocal evaluations
        if isinstance(drafts, LookupDraftModel):
            drafts.expect(job.predict)
        said: list[int] = []
        before, started = counted.drafted if counted else 0, 0.0
        for token in llama.generate(prompt, temp=0.0, repeat_penalty=1.0):
            if not said:
                started, evaluations = time.perf_counter(), 0
            said.append(token)
            if len(said) == job.predict:
                break
        seconds = time.perf_counter() - started
        drafted = counted.drafted - before if counted else 0
        return Answer(said, seconds, evaluations, drafted, len(said) - 1 - evaluations)

    yield ask


@contextmanager
def server(job: Job) -> Iterator[Ask]:
    """llama-server with its own sources; ours is the cache file it reads."""
    with LlamaServer(
        job.model, static=job.static, spec_type=job.drafts, n_ctx=job.n_ctx, threads=job.threads,
        extra=("-tb", str(job.threads), "-fa", "on"),
    ) as running:  # fmt: skip
        RUNNING.append(running)

        def ask(prompt: list[int]) -> Answer:
            said = running.complete(prompt, job.predict, ignore_eos=True)
            found = said.timings
            return Answer(
                said.tokens, found.predicted_ms / 1000, found.n_decode, found.draft_n,
                found.draft_n_accepted,
            )  # fmt: skip

        yield ask


ENGINES = {"loop": loop, "llama": library, "server": server}
RUNNING: list[LlamaServer] = []


def run(job: Job) -> dict[str, Any]:
    """Start-up is until the first prompt could be asked; memory is read after the last one."""
    started = time.perf_counter()
    with ENGINES[job.engine](job) as ask:
        start_seconds = time.perf_counter() - started
        ask(job.prompts[0][:8])  # warms up; the engines' own warm-ups differ
        answers = [asdict(ask(prompt)) for prompt in job.prompts]
        memory = RUNNING[0].memory() if RUNNING else process_memory(os.getpid())
    return {
        "start_seconds": start_seconds,
        "resident_bytes": memory.resident,
        "anonymous_bytes": memory.anonymous,
        "answers": answers,
    }


if __name__ == "__main__":
    json.dump(run(Job(**json.load(sys.stdin))), sys.stdout)
