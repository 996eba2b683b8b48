"""lookup-create: corpus -> cache file."""

from __future__ import annotations

from typing import Any

import click

from lookup_tools.cli.options import (
    CONTEXT,
    FILE,
    SIZE,
    ProgressBars,
    emit,
    note,
    one_line_errors,
    output_options,
    shared_options,
    version_option,
)
from lookup_tools.cli.text import TextArguments, text_options


@click.command(
    context_settings=CONTEXT,
    epilog="Example: lookup-create -m model.gguf -f corpus.txt -o corpus.lcs",
)
@text_options
@click.option("-o", "--output", required=True, type=FILE, help="The cache file to write.")
@click.option(
    "--kind",
    type=click.Choice(["static", "dynamic", "context"]),
    default="static",
    show_default=True,
    help="static: 2-grams; dynamic and context: 1- to 4-grams.",
)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["constmap", "legacy", "constmap2"]),
    help="[constmap for static, legacy otherwise]",
)
@click.option("--ngram-min", type=click.IntRange(1, 4), help="Smallest n-gram [the kind's].")
@click.option("--ngram-max", type=click.IntRange(1, 4), help="Largest n-gram [the kind's].")
@click.option(
    "--concatenate",
    is_flag=True,
    help="Join all documents into one stream, so that n-grams reach across.",
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Stop after so many tokens.")
@click.option(
    "--memory", type=SIZE, help="Spill counts beyond about this much memory to --tmpdir [no limit]."
)
@click.option("--tmpdir", type=click.Path(file_okay=False), help="Where to spill [the system's].")
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Count on a Dask cluster: tcp://HOST:PORT of its scheduler, or local[:N] for N processes "
    "here; --memory is each worker's then.",
)
@click.option("--save-tokens", type=FILE, help="Also write the ids, for --tokens.")
@click.option(
    "--dry-run", is_flag=True, help="Estimate size and memory from a sample; write nothing."
)
@output_options
@shared_options
@version_option()
@one_line_errors
def main(
    output: str,
    dry_run: bool,
    cluster: str | None,
    json_to: str | None,
    quiet: bool,
    force: bool,
    **values: Any,
) -> None:
    """Count the n-grams of a corpus and write them as a cache file for lookup decoding.

    Text is taken literally: special tokens are text, backslashes stay, BOS is not added.
    """
    from lookup_tools.reports.builds import create_json, create_text

    arguments = TextArguments.take(values)
    if dry_run:
        _dry_run(arguments, values, json_to, force)
        return
    with ProgressBars(quiet) as progress:
        if cluster is None:
            report = _create(arguments, values, output, force, progress)
        else:
            report = _create_on_cluster(
                arguments, _options(values, force, arguments), output, cluster, progress
            )
    for line in report.notes:
        note(line, quiet)
    emit(create_text(report), lambda: create_json(report), json_to, force=force)


def _options(values: dict[str, Any], force: bool, arguments: TextArguments) -> Any:
    from lookup_tools.building.create_options import CreateOptions
    from lookup_tools.counting.counts import Prune

    prune = Prune(values.pop("min_count"), values.pop("top_k"))
    annex = not values.pop("no_annex")
    return CreateOptions(
        prune=prune,
        annex=annex,
        force=force,
        bos=arguments.bos,
        parse_special=arguments.parse_special,
        **values,
    )


def _create(
    arguments: TextArguments,
    values: dict[str, Any],
    output: str,
    force: bool,
    progress: ProgressBars,
) -> Any:
    from lookup_tools.building.create import create_cache, create_from_tokens

    options = _options(values, force, arguments)
    tokenizer = arguments.open_tokenizer()
    if arguments.token_file:
        info, batches = arguments.open_tokens(tokenizer, concatenate=options.concatenate)
        return create_from_tokens(batches, info, output, options, progress=progress)
    assert tokenizer is not None
    return create_cache(
        arguments.open_corpus(tokenizer), tokenizer, output, options=options, progress=progress
    )


def _create_on_cluster(
    arguments: TextArguments, options: Any, output: str, address: str, progress: ProgressBars
) -> Any:
    from lookup_tools.cluster.create import create_cache_on_cluster

    tokenizer = arguments.open_tokenizer()
    if arguments.token_file or tokenizer is None:
        raise click.UsageError("found --cluster with --tokens, expected text files with -f")
    corpus = arguments.open_corpus(tokenizer)
    return create_cache_on_cluster(
        corpus, tokenizer, output, options, address, progress, progress.tell
    )


def _dry_run(
    arguments: TextArguments, values: dict[str, Any], json_to: str | None, force: bool
) -> None:
    from lookup_tools.building.estimate import estimate_build

    tokenizer = arguments.open_tokenizer()
    if arguments.token_file or tokenizer is None:
        raise click.UsageError(
            "found --dry-run with --tokens, expected text: the estimate is made from a sample of it"
        )
    estimate = estimate_build(
        arguments.open_corpus(tokenizer), tokenizer, _options(values, force, arguments)
    )
    emit(estimate.text(), estimate.facts, json_to, force=force)


if __name__ == "__main__":
    main()
