"""Real engines with and without drafts, beside what lookup-stats projects for the same words.

Three kinds of prompts (prose, a code edit, structured output), plain decoding, our sources and the
engines' own. Every arm is a process of its own, so that one's caches and warm memory are not
another's; the arms of an engine take turns. Writes CSV, JSON and a figure.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from benchlib import Series, repeat, save
from engine_arms import NONE, OWN, Job
from measure_verify_cost import load_engine, points, timed_widths

from lookup_tools import ReplayOptions, SourceSpec, open_cache, open_corpus, open_tokenizer, replay
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.engine.server_options import require_engine_cache
from lookup_tools.evaluation.verify_cost import project
from lookup_tools.evaluation.verify_cost_files import read_cost

HERE = Path(__file__).parent
KINDS = ("prose", "code edit", "structured")
OURS = ("ngram-cache", "ngram-simple", "ngram-map-k", "ngram-mod", "ngram-suffix")
CHAIN = "ngram-suffix,ngram-cache"
CURVE_DEPTH = 512
TITLES = {"loop": "our greedy loop", "llama": "llama-cpp-python's loop", "server": "llama-server"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of decoding. `guarded`: drafts that do not pay are declined by the cost curve."""

    engine: str
    drafts: str
    cached: bool = False
    guarded: bool = False

    @property
    def name(self) -> str:
        words = [self.drafts]
        words += ["+ static cache"] if self.cached else []
        words += ["+ verify cost"] if self.guarded else []
        return " ".join(words)


def arms(engines: tuple[str, ...], cached: bool) -> list[Arm]:
    """The first arm of each engine is its baseline, with no cache loaded."""
    loop = [Arm("loop", drafts) for drafts in (NONE, *OURS, CHAIN)]
    loop += [Arm("loop", CHAIN, guarded=True), Arm("loop", OWN)]
    llama = [Arm("llama", drafts) for drafts in (NONE, OWN, CHAIN)]
    server = [Arm("server", drafts) for drafts in (NONE, "ngram-simple", "ngram-cache")]
    if cached:
        loop.append(Arm("loop", "ngram-cache", cached=True))
        server.append(Arm("server", "ngram-cache", cached=True))
    return [arm for arm in (*loop, *llama, *server) if arm.engine in engines]


# ---- prompts


def prose(characters: int) -> str:
    """The beginning of a held-out text."""
    corpus = open_corpus(dataset="python-topics", split="test")
    return next(
        document.text for document in corpus.documents() if len(document.text) > characters
    )[:characters]


def code_edit() -> str:
    """A file to be written again with one name changed."""
    source = (HERE.parent / "lookup_tools" / "errors.py").read_text(encoding="utf-8")[:1400]
    return (
        "Rewrite this file and rename LookupToolsError to ToolsError. Change nothing else.\n\n"
        f"```python\n{source}```\n\nThe same file with the new name:\n\n```python\n"
        + source[: source.index("\n\n") + 2]
    )


def structured() -> str:
    """Records to go on with: the form repeats, the values change."""
    records = [
        {"id": 1000 + k, "name": f"sensor-{k:02d}", "unit": "celsius", "enabled": k % 3 != 0,
         "limits": {"low": -20 + k, "high": 60 + 2 * k}}
        for k in range(8)
    ]  # fmt: skip
    body = ",\n".join(json.dumps(record, indent=2) for record in records)
    return f"All sensors of the plant, from 1000 to 1040, as JSON:\n[\n{body},\n"


# ---- one round


def ask(arm: Arm, job: dict[str, Any]) -> dict[str, Any]:
    """Run an arm.

    Raises:
        click.ClickException: it failed; its last words are given.
    """
    body = {**job, "engine": arm.engine, "drafts": arm.drafts}
    body["static"] = job["static"] if arm.cached else None
    body["verify_cost"] = job["verify_cost"] if arm.guarded else None
    done = subprocess.run(
        [sys.executable, HERE / "engine_arms.py"], input=json.dumps(asdict(Job(**body))),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise click.ClickException(
            f"{arm.engine}, {arm.name}: exit {done.returncode}: {done.stderr.strip()[-400:]}"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured_curve(model: str, threads: int, ids: list[int], out: Path) -> Path:
    """The cost of verify batches, measured now: the machine is what it is today."""
    import time

    engine = load_engine(model, CURVE_DEPTH + 128, threads)
    seconds = timed_widths(engine, ids, CURVE_DEPTH, 9, time.perf_counter)
    path = out / "verify-cost.json"
    path.write_text(json.dumps({"points": points(seconds)}, indent=1) + "\n", encoding="utf-8")
    return path


# ---- what came out


@dataclass(frozen=True, slots=True)
class Row:
    """An arm on one kind of prompt: medians of all rounds, speeds with their range."""

    engine: str
    source: str
    prompt: str
    n_tokens: int
    n_decode: int
    tokens_per_decode: float
    n_drafted: int
    n_accept: int
    accept_rate: float
    tokens_per_second: float
    tokens_per_second_min: float
    tokens_per_second_max: float
    speedup: float
    projected_speedup: float | None
    same_text_as_plain: bool
    start_seconds: float
    resident_bytes: int
    anonymous_bytes: int


def speeds(rounds: list[dict[str, Any]], kind: int) -> Series:
    """Tokens per second behind the first one, which the prompt's decode yields."""
    asked = [each["answers"][kind] for each in rounds]
    return Series([(len(answer["tokens"]) - 1) / answer["seconds"] for answer in asked])


def median(rounds: list[dict[str, Any]], name: str) -> float:
    return Series([each[name] for each in rounds]).median


def projection(
    arm: Arm, prompt: list[int], said: list[int], curve: CostCurve, static: str | None, most: int
) -> float | None:
    """What lookup-stats says of the same words; None where it knows nothing of the source."""
    if arm.drafts in (NONE, OWN) or arm.guarded:
        return None
    if arm.engine == "server" and arm.drafts != "ngram-cache":
        most = 1024  # there a source goes by its own size
    tokens = [*prompt, *said]
    with open_cache(static) if arm.cached and static else nullcontext() as cache:
        report = replay(
            tokens, [SourceSpec(arm.drafts)], static=cache,
                    options=ReplayOptions(len(tokens), most, len(prompt)),
        )  # fmt: skip
    return project(report.sources[0], curve).speedup


def row_of(
    arm: Arm, kind: int, rounds: dict[Arm, list[dict[str, Any]]], job: dict[str, Any],
    curve: CostCurve,
) -> Row:  # fmt: skip
    mine, plain = rounds[arm], rounds[Arm(arm.engine, NONE)]
    answer = mine[0]["answers"][kind]
    speed, base = speeds(mine, kind), speeds(plain, kind)
    n, drafted = len(answer["tokens"]), answer["drafted"]
    guess = projection(
        arm, job["prompts"][kind], answer["tokens"], curve, job["static"], job["draft_max"]
    )
    return Row(
        arm.engine, arm.name, KINDS[kind], n, answer["decodes"],
        (n - 1) / max(1, answer["decodes"]), drafted, answer["accepted"],
        answer["accepted"] / drafted if drafted else 0.0, speed.median, min(speed.values),
        max(speed.values), speed.median / base.median, guess,
        answer["tokens"] == plain[0]["answers"][kind]["tokens"], median(mine, "start_seconds"),
        int(median(mine, "resident_bytes")), int(median(mine, "anonymous_bytes")),
    )  # fmt: skip


def write_csv(rows: list[Row], path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(Row.__slots__))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def show(rows: list[Row]) -> None:
    for row in rows:
        guess = f"{row.projected_speedup:5.2f}" if row.projected_speedup else "    -"
        click.echo(
            f"{row.engine:6} {row.source:42} {row.prompt:10} {row.tokens_per_second:7.1f} tok/s "
            f"({row.tokens_per_second_min:.1f}-{row.tokens_per_second_max:.1f}) x{row.speedup:4.2f}"
            f" projected {guess}  {row.tokens_per_decode:4.2f} tokens/decode  "
            f"{row.n_accept}/{row.n_drafted} accepted  "
            f"{'same text' if row.same_text_as_plain else 'OTHER TEXT'}  "
            f"start {row.start_seconds:.2f} s  {row.resident_bytes / 1e6:.0f} MB"
        )


def draw(rows: list[Row], path: Path) -> None:
    """Speedup by prompt, a panel for each engine; what was projected as a black mark."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    engines = list(dict.fromkeys(row.engine for row in rows))
    drawing, panels = pyplot.subplots(
        len(engines), 1, figsize=(9, 3.2 * len(engines)), layout="constrained", squeeze=False
    )
    for engine, axes in zip(engines, panels[:, 0], strict=True):
        shown = [row for row in rows if row.engine == engine and row.source != NONE]
        sources = list(dict.fromkeys(row.source for row in shown))
        width = 0.8 / len(sources)
        for k, source in enumerate(sources):
            mine = [row for row in shown if row.source == source]
            xs = [KINDS.index(row.prompt) + (k - (len(sources) - 1) / 2) * width for row in mine]
            axes.bar(xs, [row.speedup for row in mine], 0.9 * width, label=source)
            marks = [
                (x, row.projected_speedup)
                for x, row in zip(xs, mine, strict=True)
                if row.projected_speedup
            ]
            axes.plot(*zip(*marks, strict=True), "k_", ms=6) if marks else None
        axes.axhline(1, color="grey", lw=0.8)
        axes.set(
            title=TITLES[engine], ylabel="speed, plain = 1", xticks=range(3), xticklabels=KINDS
        )
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    drawing.savefig(path)
    pyplot.close(drawing)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-m", "--model", required=True, type=click.Path(exists=True))
@click.option("-lcs", "static", type=click.Path(exists=True), help="A legacy static cache.")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    default=("loop", "llama", "server"),
    type=click.Choice(["loop", "llama", "server"]),
    show_default=True,
)
@click.option("--verify-cost", help="As lookup-stats takes it [measured first].")
@click.option("--draft-max", type=click.IntRange(1), default=8, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("-n", "--predict", type=click.IntRange(2), default=160, show_default=True)
@click.option("--prompt-characters", type=click.IntRange(100), default=2000, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default="build/bench", show_default=True)
def main(
    model: str, static: str | None, engines: tuple[str, ...], verify_cost: str | None,
    draft_max: int, threads: int, predict: int, prompt_characters: int, runs: int, out: Path,
) -> None:  # fmt: skip
    """Decode three kinds of prompts with real engines."""
    if static is not None and "server" in engines:
        require_engine_cache(static, "static", model)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = open_tokenizer(model)
    texts = (prose(prompt_characters), code_edit(), structured())
    prompts = [[int(token) for token in tokenizer.encode(text)] for text in texts]
    if verify_cost is None:
        ids = (prompts[0] * (1 + (CURVE_DEPTH + 64) // len(prompts[0])))[: CURVE_DEPTH + 64]
        verify_cost = str(measured_curve(model, threads, ids, out))
    job = {
        "model": model, "static": static, "draft_max": draft_max, "verify_cost": verify_cost,
        "threads": threads, "n_ctx": max(map(len, prompts)) + predict + 64, "predict": predict,
        "prompts": prompts,
    }  # fmt: skip
    rounds: dict[Arm, list[dict[str, Any]]] = {arm: [] for arm in arms(engines, static is not None)}
    sides = {
        f"{arm.engine}: {arm.name}": lambda arm=arm: rounds[arm].append(ask(arm, job))
        for arm in rounds
    }
    repeat(runs, sides)
    curve = read_cost(verify_cost)
    rows = [row_of(arm, kind, rounds, job, curve) for arm in rounds for kind in range(3)]
    show(rows)
    write_csv(rows, out / "engine.csv")
    draw(rows, out / "engine.svg")
    save(out, "engine", {"curve": curve.points, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
