"""lookup-merge: caches -> one cache."""

from __future__ import annotations

from typing import Any

import click

from lookup_tools.cli.options import (
    CONTEXT,
    FILE,
    POSITIVE,
    SIZE,
    WEIGHT,
    ProgressBars,
    emit,
    note,
    one_line_errors,
    output_options,
    shared_options,
    version_option,
    vocabulary_option,
)


@click.command(
    context_settings=CONTEXT,
    epilog="Example: lookup-merge wiki.lcs code.lcs -o both.lcs --weight 1 --weight 2",
)
@click.argument("inputs", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", type=FILE, help="The cache file to write.")
@click.option(
    "--update",
    "live",
    type=FILE,
    metavar="FILE",
    help="Instead: merge the inputs into this file and replace it whole; made if missing.",
)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["constmap", "legacy", "constmap2"]),
    help="[the updated file's; legacy if all inputs are, else constmap]",
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    type=WEIGHT,
    help="Multiply an input's counts; once for each input, in their order (--update FILE first).",
)
@click.option("--memory", type=SIZE, help="Memory for sorting legacy inputs [256M].")
@click.option(
    "--tmpdir", type=click.Path(file_okay=False), help="Where to sort them [the system's]."
)
@click.option(
    "--recover-keys/--no-recover-keys",
    default=True,
    show_default=True,
    help="Recover the keys of constmaps that carry none.",
)
@click.option(
    "--vocab-size", type=POSITIVE, help="For that: ids are below it [largest follower + 1]."
)
@output_options
@vocabulary_option
@shared_options
@version_option()
@one_line_errors
def main(
    inputs: tuple[str, ...],
    output: str | None,
    live: str | None,
    json_to: str | None,
    quiet: bool,
    force: bool,
    **values: Any,
) -> None:
    """Join caches of any formats, summing counts; one input is converted.

    The result does not depend on the inputs' order. Updates of one file at the same time wait for
    each other.
    """
    if (output is None) == (live is None):
        raise click.UsageError("expected either -o OUTPUT or --update FILE: give one of the two")
    from lookup_tools.building.merge import MergeOptions, merge_caches
    from lookup_tools.building.update import update_cache
    from lookup_tools.counting.counts import Prune
    from lookup_tools.reports.builds import merge_json, merge_text

    prune = Prune(values.pop("min_count"), values.pop("top_k"))
    options = MergeOptions(prune=prune, annex=not values.pop("no_annex"), force=force, **values)
    with ProgressBars(quiet) as progress:
        if live is not None:
            report = update_cache(live, inputs, options, progress)
        else:
            assert output is not None
            report = merge_caches(inputs, output, options, progress)
    for line in report.notes:
        note(line, quiet)
    emit(merge_text(report), lambda: merge_json(report), json_to, force=force)


if __name__ == "__main__":
    main()
