"""What a verify batch costs on this machine: the curve for `lookup-stats --verify-cost`.

`measure` times batches of 1 to 64 tokens of a GGUF through llama-cpp-python; `convert` reads what
llama-batched-bench or llama-bench wrote; `check` generates from the same prompts with and without
drafts and compares the real speedup with the projected one.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

CONTEXT = {"help_option_names": ["-h", "--help"]}
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 48, 64)

_model = click.option("-m", "--model", required=True, type=click.Path(exists=True))
_text = click.option(
    "-f", "--file", "text", required=True, type=click.Path(exists=True), help="A text for prompts."
)
_threads = click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
_cpu = click.option(
    "--cpu-time", is_flag=True,
    help="Count this process's processor time: for a busy machine, with --threads 1.",
)  # fmt: skip
_output = click.option("-o", "--output", type=click.Path(), help="The JSON file [stdout].")


@click.group(context_settings=CONTEXT)
def main() -> None:
    """Measure, convert or check the cost of verify batches."""


def write(curve: dict[str, Any], output: str | None) -> None:
    body = json.dumps(curve, indent=1) + "\n"
    if output is None:
        click.echo(body, nl=False)
    else:
        Path(output).write_text(body, encoding="utf-8")
    print(",".join(f"{row['width']}:{row['cost']:.3f}" for row in curve["points"]), file=sys.stderr)


def points(seconds: dict[int, float]) -> list[dict[str, float]]:
    single = seconds[1]
    return [
        {"width": width, "seconds": seconds[width], "cost": seconds[width] / single}
        for width in sorted(seconds)
    ]


def clock_of(cpu_time: bool) -> Callable[[], float]:
    return time.process_time if cpu_time else time.perf_counter


def load_engine(model: str, n_ctx: int, threads: int) -> Any:
    """A GGUF with flash attention, as llama-server runs it."""
    from lookup_tools.engine.llama_cpp_python import LlamaSequence

    try:
        from llama_cpp import Llama

        llama = Llama(
            model, n_ctx=n_ctx, n_threads=threads, n_threads_batch=threads, flash_attn=True,
            verbose=False,
        )  # fmt: skip
    except (ImportError, ValueError) as error:
        raise click.ClickException(f"{model}: {error}") from None
    return LlamaSequence(llama)


def timed_widths(
    engine: Any, ids: list[int], depth: int, runs: int, clock: Callable[[], float]
) -> dict[int, float]:
    """What one batch adds to plain decoding, in seconds by width, behind `depth` tokens: medians of
    `runs`, the widths in turn so that a busy moment of the machine falls on all of them.

    An engine prepares anew for a batch of another width than the last one. A loop that drafts pays
    that twice, for the wide batch and for the single token behind it, and plain decoding never: so
    each width is timed with the token behind it, less a token between tokens.
    """
    engine.prefill(ids[:depth])

    def timed(width: int) -> float:
        start = clock()
        engine.run(ids[depth : depth + width])
        taken = clock() - start
        engine.keep(depth)
        return taken

    single: list[float] = []
    both: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for _ in range(runs + 1):  # the first round warms up
        for width in WIDTHS:
            timed(1)
            single.append(timed(1))
            both[width].append(timed(width) + timed(1))
    alone = statistics.median(single[len(WIDTHS) :])
    return {width: statistics.median(row[1:]) - alone for width, row in both.items()}


@main.command()
@_model
@_text
@_threads
@_cpu
@_output
@click.option(
    "--depth",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Tokens before the batch.",
)
@click.option("--runs", type=click.IntRange(1), default=15, show_default=True)
def measure(
    model: str, text: str, threads: int, cpu_time: bool, output: str | None, depth: int, runs: int
) -> None:
    """Time batches of a GGUF (needs llama-cpp-python)."""
    ids = read_ids(model, text)[: depth + max(WIDTHS)]
    engine = load_engine(model, depth + 2 * max(WIDTHS), threads)
    seconds = timed_widths(engine, ids, depth, runs, clock_of(cpu_time))
    about = {"model": Path(model).name, "threads": threads, "depth": depth, "runs": runs}
    write(
        {"producer": "measure_verify_cost.py measure", **about, "points": points(seconds)}, output
    )


@main.command()
@click.argument("file", type=click.Path(exists=True))
@_output
def convert(file: str, output: str | None) -> None:
    """The curve in the JSON or JSONL of llama-batched-bench or llama-bench.

    Write it with: llama-batched-bench -m MODEL -npp 128 -ntg 32 -npl 1,2,3,4,6,8,9,16,32,64
    --output-format jsonl
    """
    from lookup_tools.evaluation.verify_cost_files import read_cost

    curve = read_cost(file)
    single = 1 / curve.tokens_per_second if curve.tokens_per_second else 1.0
    seconds = {width: cost * single for width, cost in curve.points}
    write({"producer": f"from {Path(file).name}", "points": points(seconds)}, output)


def read_ids(model: str, text: str) -> list[int]:
    from lookup_tools import open_tokenizer

    content = Path(text).read_text(encoding="utf-8")
    return [int(token) for token in open_tokenizer(model).encode(content)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same prompts decoded plainly and with drafts."""

    plain_seconds: float
    drafted_seconds: float
    plain_decodes: int
    drafted_decodes: int
    same_text: int
    streams: list[tuple[list[int], int]]  # tokens, prompt length

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.drafted_seconds


def compare(
    engine: Any,
    prompts: list[list[int]],
    n: int,
    make_drafts: Any,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Plain decoding and drafting alternate, prompt by prompt. The plain side runs before any
    drafts or caches are opened for the prompt, so it pays nothing for drafting."""
    from lookup_tools.engine.llama_cpp_python import greedy

    plain_seconds, drafted_seconds, decodes, same = 0.0, 0.0, [0, 0], 0
    streams = []
    for prompt in prompts:
        plain = greedy(engine, prompt, n, ignore_ends=True, clock=clock)
        with make_drafts() as drafts:
            drafted = greedy(engine, prompt, n, drafts, ignore_ends=True, clock=clock)
        plain_seconds += plain.seconds
        drafted_seconds += drafted.seconds
        decodes = [decodes[0] + plain.decodes, decodes[1] + drafted.decodes]
        same += plain.tokens == drafted.tokens
        streams.append(([*prompt, *drafted.tokens], len(prompt)))
    return Comparison(plain_seconds, drafted_seconds, *decodes, same, streams)


def projected(comparison: Comparison, spec: Any, draft_max: int, curve: Any, static: Any) -> float:
    """The speedup that a replay of what was generated projects."""
    from lookup_tools import ReplayOptions, replay

    produced = cost = 0.0
    for tokens, n_prompt in comparison.streams:
        report = replay(
            tokens, [spec], static=static,
            options=ReplayOptions(len(tokens), draft_max, n_prompt),
        ).sources[0]  # fmt: skip
        steps = enumerate(report.drafted_length_histogram)
        cost += sum(count * curve.at(1 + drafted) for drafted, count in steps)
        produced += report.n_produced
    return produced / cost


@main.command()
@_model
@_text
@_threads
@_cpu
@click.option("--verify-cost", required=True, help="As lookup-stats takes it.")
@click.option("--spec-type", default="ngram-cache", show_default=True)
@click.option("--draft-max", type=click.IntRange(1), default=8, show_default=True)
@click.option("-lcs", "static_path", type=click.Path(exists=True))
@click.option("--prompts", "n_prompts", type=click.IntRange(1), default=8, show_default=True)
@click.option("--prompt-tokens", type=click.IntRange(1), default=256, show_default=True)
@click.option("-n", "--predict", type=click.IntRange(2), default=128, show_default=True)
def check(
    model: str, text: str, threads: int, cpu_time: bool, verify_cost: str, spec_type: str,
    draft_max: int, static_path: str | None, n_prompts: int, prompt_tokens: int, predict: int,
) -> None:  # fmt: skip
    """Real against projected speedup on the same prompts."""
    from lookup_tools import SourceSpec, open_cache
    from lookup_tools.engine.llama_cpp_python import LookupDraftModel
    from lookup_tools.evaluation.verify_cost_files import read_cost

    ids, curve = read_ids(model, text), read_cost(verify_cost)
    step = max(prompt_tokens, (len(ids) - prompt_tokens) // n_prompts)
    prompts = [ids[k * step : k * step + prompt_tokens] for k in range(n_prompts)]
    engine = load_engine(model, prompt_tokens + predict + 1024, threads)

    def make_drafts() -> LookupDraftModel:
        return LookupDraftModel(static_path, None, spec_type, draft_max)

    real = compare(engine, prompts, predict, make_drafts, clock_of(cpu_time))
    with open_cache(static_path) if static_path else nullcontext() as static:
        guess = projected(real, SourceSpec(spec_type), draft_max, curve, static)
    print(
        f"{spec_type}: real speedup {real.speedup:.3f} ({real.plain_decodes} decodes in "
        f"{real.plain_seconds:.2f} s, {real.drafted_decodes} in {real.drafted_seconds:.2f} s), "
        f"projected {guess:.3f}, {100 * (guess / real.speedup - 1):+.1f}%; "
        f"{real.same_text} of {n_prompts} texts are the same"
    )


if __name__ == "__main__":
    main()
