"""lookup-stats: what caches are worth on a text, and what they cost."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from lookup_tools.cli.options import CONTEXT, ProgressBars, emit, one_line_errors, shared_options, version_option
from lookup_tools.cli.text import TextArguments, text_options


def _thresholds(function: Any) -> Any:
    """One flag for each parameter of ngram-cache: --context-samples-1 and so on."""
    from lookup_tools.params import CACHE_PARAMS

    for name, (_, _, _, least, largest) in reversed(CACHE_PARAMS.items()):
        function = click.option("--" + name.replace("_", "-"), name, type=click.IntRange(least, largest), hidden="_1" not in name and "static" not in name, help="Threshold of ngram-cache [llama.cpp's]; likewise -2 to -4." if "_1" in name else "Threshold of the static tier [llama.cpp's].")(function)
    return function


@click.command(context_settings=CONTEXT, epilog="Example: lookup-stats -m model.gguf -f test.txt -lcs corpus.lcs")
@text_options
@click.option("-lcs", "--lookup-cache-static", "static", type=click.Path(), help="The static cache.")
@click.option("-lcd", "--lookup-cache-dynamic", "dynamic", type=click.Path(), help="The dynamic cache (never written).")
@click.option("-c", "--ctx-size", "n_ctx", type=click.IntRange(2, 2**31 - 1), default=4096, show_default=True, help="Tokens in a chunk.")
@click.option("--draft-max", type=click.IntRange(1, 1024), default=8, show_default=True, help="Most tokens in a draft.")
@click.option("--spec-type", default="ngram-cache", show_default=True, help="Draft sources, separated by commas.")
@click.option("--prompt-tokens", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Tokens of each chunk that are given, not predicted.")
@click.option("--compat", type=click.Choice(["llama.cpp"]), help="Reproduce llama-lookup-stats' quirks: it leaves out the last chunk of an exact multiple.")
@click.option("--load", type=click.Choice(["mmap", "read"]), default="mmap", show_default=True, help="Map caches, or copy them into memory.")
@click.option("--populate", is_flag=True, help="Bring mapped caches into memory at once.")
@click.option("--csv", "csv_to", type=click.Path(), help="Write one row a source as CSV.")
@_thresholds
@shared_options
@version_option()
@one_line_errors
def main(json_to: str | None, csv_to: str | None, quiet: bool, force: bool, threads: int | None, **values: Any) -> None:
    """Replay a text as if a model said it: what drafts from these caches would have been worth, and
    what opening them and drafting costs.

    Times are of this machine; load time, memory and latency belong to the run that is reported.
    """
    from lookup_tools.atomic import atomic_output
    from lookup_tools.mapping import peak_rss_bytes
    from lookup_tools.report import stats_csv, stats_json, stats_text

    arguments = TextArguments.take(values)
    with ExitStack() as stack:
        progress = stack.enter_context(ProgressBars(quiet))
        report, static, dynamic = _run(arguments, values, force, progress, stack)
        if csv_to is not None:
            with atomic_output(csv_to, force=force) as file:
                file.write(stats_csv(report).encode())
        flat = sum(each.load_seconds for each in (static, dynamic) if each is not None)
        body = stats_json(report, static, dynamic, peak_rss_bytes())
    emit(stats_text(report, flat), lambda: body, json_to, force=force)


def _run(arguments: TextArguments, values: dict[str, Any], force: bool, progress: ProgressBars, stack: ExitStack) -> Any:
    from lookup_tools.loading import load_cache, require_vocabulary
    from lookup_tools.params import CACHE_PARAMS
    from lookup_tools.replaying import replay
    from lookup_tools.sources import SourceSpec

    given = {name: values.pop(name) for name in CACHE_PARAMS}
    params = {name: value for name, value in given.items() if value is not None}
    specs = [SourceSpec(name.strip(), params) for name in values.pop("spec_type").split(",")]
    load, populate = values.pop("load"), values.pop("populate")
    loaded = {}
    for role in ("static", "dynamic"):
        path = values.pop(role)
        loaded[role] = load_cache(path, role, load=load, populate=populate) if path else None
        if path:
            stack.callback(loaded[role].cache.close)
    ids, fingerprint, name = _tokens(arguments, force, progress)
    for each in loaded.values():
        if each is not None:
            require_vocabulary(each.cache, fingerprint, name, force=force)
    report = replay(
        ids, specs, static=loaded["static"].cache if loaded["static"] else None,
        dynamic=loaded["dynamic"].cache if loaded["dynamic"] else None, progress=progress, **values,
    )  # fmt: skip
    return report, loaded["static"], loaded["dynamic"]


def _tokens(arguments: TextArguments, force: bool, progress: ProgressBars) -> tuple[Any, str | None, str]:
    """The test text as one stream of ids, and whose ids they are."""
    import numpy as np

    from lookup_tools.tokenizing import tokenize

    tokenizer = arguments.open_tokenizer()
    if arguments.token_file:
        info, batches = arguments.open_tokens(tokenizer, concatenate=True, force=force)
        name = info.tokenizer or info.fingerprint or "an unnamed vocabulary"
        fingerprint = info.fingerprint
    else:
        assert tokenizer is not None
        corpus = arguments.open_corpus(tokenizer)
        batches = tokenize(corpus, tokenizer, parse_special=arguments.parse_special, bos=arguments.bos)
        fingerprint, name = tokenizer.fingerprint, tokenizer.name
    parts = [np.empty(0, np.int32)]
    for batch in batches:
        parts.append(batch.ids)
        progress("tokenize", sum(map(len, parts)), None)
    return np.concatenate(parts), fingerprint, name


if __name__ == "__main__":
    main()
