"""Every draft source on texts of several kinds: the tables of docs/choosing.md, as Markdown.

The texts are made on the spot: Python's standard library (modules m to z, with a cache of a to l)
and a chat that renames things in it (chat_like.py). Where their files are given, prose with a cache
of other prose and a token file that a model wrote (model_text.py) are replayed, too. All texts are
replayed with the same settings.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chat_like
import click
import numpy as np
from tqdm import tqdm

import lookup_tools as lt
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.evaluation.verify_cost import project
from lookup_tools.evaluation.verify_cost_files import read_cost

# SmolLM2 135M on one core, measured; the two others are the tool's examples.
CPU = "1:1,2:1.77,4:2.94,9:5.83,17:10.3"
WIDE = ",128:5.2,256:9.6,512:18.4,1100:38.6"  # the example `dense`, continued for many requests
DENSE = "1:1,2:1.03,4:1.08,8:1.18,16:1.4,32:1.9,64:3"
SIX = ("ngram-cache", "ngram-suffix", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod")
ADAPTIVE = "ngram-adaptive"
CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Text:
    """A text to replay: ids, a static cache or none, and the tokens of a chunk."""

    name: str
    ids: Any
    static: lt.Cache | None
    n_ctx: int = CHUNK


def modules(first: str, last: str) -> list[Path]:
    """The standard library's top-level modules whose names begin with these letters."""
    home = Path(sysconfig.get_paths()["stdlib"])
    return sorted(path for path in home.glob("*.py") if first <= path.name[0] <= last)


def encoded(tokenizer: lt.Tokenizer, texts: list[str]) -> Any:
    return np.concatenate([np.asarray(tokenizer.encode(text), np.int32) for text in texts])


def read(paths: list[Path]) -> list[str]:
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths]


def make_texts(
    model: str, work: Path, prose: Path | None, prose_cache: Path | None, said: Path | None,
    opened: ExitStack,
) -> Iterator[Text]:  # fmt: skip
    tokenizer = lt.open_tokenizer(model)
    if prose is not None:
        cache = prose_cache and opened.enter_context(lt.open_cache(prose_cache))
        yield Text("prose", encoded(tokenizer, read([prose])), cache or None)
    file = work / "code.lcs"
    if not file.exists():
        lt.create_cache(lt.open_corpus(modules("a", "l")), tokenizer, file)
    code = opened.enter_context(lt.open_cache(file))
    yield Text("code", encoded(tokenizer, read(modules("m", "z"))), code)
    rng = random.Random(1)
    turns = [turn for text in read(modules("m", "p")) for turn in chat_like.turns(text, rng, 30)]
    yield Text("chat", encoded(tokenizer, ["".join(turns)]), code)
    if said is not None:
        kind = np.uint16 if said.suffix == ".u16" else np.uint32
        yield Text("model", np.fromfile(said, kind).astype(np.int32), None, 2048)


def speedup(text: Text, spec: lt.SourceSpec, most: int, curve: CostCurve) -> lt.SourceReport:
    options = lt.ReplayOptions(n_ctx=text.n_ctx, draft_max=most, curve=curve)
    static = [text.static] if text.static is not None else []
    return lt.replay(text.ids, [spec], static=static, options=options).sources[0]


def curves_table(texts: list[Text], curves: dict[str, CostCurve]) -> Iterator[str]:
    """Speedup of each source on each text by curve; the sources of llama.cpp with 8 tokens."""
    yield f"| source ({' / '.join(curves)}) | {' | '.join(text.name for text in texts)} |"
    yield "|---" * (len(texts) + 1) + "|"
    gaps: list[str] = []
    for source in tqdm((*SIX, ADAPTIVE), desc="sources", leave=False):
        cells = []
        for text in texts:
            found = []
            for name, curve in curves.items():
                long = source == ADAPTIVE and text.name == "chat" and name != "cpu"
                most = 8 if source != ADAPTIVE else 63 if long else 16
                report = speedup(text, lt.SourceSpec(source), most, curve)
                found.append(f"{project(report, curve).speedup:.3f}")
                if report.calibration is not None and name == "dense":
                    gaps.append(f"{text.name} {report.calibration.mean_gap:.4f}")
            cells.append(" / ".join(found))
        yield f"| `{source}` | {' | '.join(cells)} |"
    yield ""
    yield f"Mean calibration gap, dense: {', '.join(gaps)}."


def requests_table(texts: list[Text], numbers: tuple[int, ...]) -> Iterator[str]:
    """Speedup by number of requests that share each batch, chunks of 1024 tokens."""
    curve = read_cost(DENSE + WIDE)
    yield f"| text, source | {' | '.join(map(str, numbers))} |"
    yield "|---" * (len(numbers) + 1) + "|"
    for text in tqdm(texts, desc="requests", leave=False):
        for source, most in (("ngram-cache", 8), (ADAPTIVE, 16)):
            options = lt.ReplayOptions(n_ctx=1024, draft_max=most, curve=curve, requests=numbers)
            static = [text.static] if text.static is not None else []
            report = lt.replay(
                text.ids, [lt.SourceSpec(source)], static=static, options=options
            ).sources[0]
            cells = [f"{each.speedup:.3f}" for each in report.requests]
            yield f"| {text.name}, `{source}` | {' | '.join(cells)} |"


@click.command(help=(__doc__ or "").split("\n\n", 1)[0])
@click.option("-m", "--model", required=True, help="The vocabulary.")
@click.option("--work", type=Path, default=Path("build/sources"), show_default=True,
              help="Folder for the caches.")  # fmt: skip
@click.option("--prose", type=Path, help="A text.")
@click.option("--prose-cache", type=Path, help="A static cache of other prose.")
@click.option("--said", type=Path, help="Token file of model_text.py.")
@click.option("--numbers", default="1,4,16,64", show_default=True, help="Numbers of requests.")
def main(
    model: str, work: Path, prose: Path | None, prose_cache: Path | None, said: Path | None,
    numbers: str,
) -> None:  # fmt: skip
    work.mkdir(parents=True, exist_ok=True)
    curves = {"dense": read_cost("dense"), "moe": read_cost("moe"), "cpu": read_cost(CPU)}
    with ExitStack() as opened:
        texts = list(make_texts(model, work, prose, prose_cache, said, opened))
        for text in texts:
            click.echo(f"{text.name}: {len(text.ids):,} tokens", err=True)
        for line in curves_table(texts, curves):
            click.echo(line)
        click.echo()
        for line in requests_table(texts, tuple(int(n) for n in numbers.split(","))):
            click.echo(line)


if __name__ == "__main__":
    main()
