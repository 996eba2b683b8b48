"""The options of lookup-stats: one flag for each parameter of each source, and all the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lookup_tools.cli.options import FILE
from lookup_tools.drafting.params import (
    ALL_PARAMS,
    CACHE_PARAMS,
    SOURCE_PARAMS,
    THRESHOLD,
    find_param,
    member_kinds,
)
from lookup_tools.errors import ParameterError

F = TypeVar("F", bound=Callable[..., Any])


def _thresholds(ctx: click.Context, option: click.Parameter, given: Any) -> dict[str, int]:
    found = {}
    for text in given:
        name, _, value = text.partition("=")
        hint = f"'{THRESHOLD} {name}'"
        try:
            param = find_param(["ngram-cache"], name)[1]
            found[param.name] = param.check(int(value))
        except ParameterError as error:
            raise click.BadParameter(str(error), param_hint=hint) from None
        except ValueError:
            says = f"found {text!r}, expected NAME=VALUE such as context-percent-2=60"
            raise click.BadParameter(says, param_hint=hint) from None
    return found


def _requests(ctx: click.Context, option: click.Parameter, given: Any) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in given.split(",")) if given else ()
    except ValueError:
        numbers = (0,)
    if any(number < 1 for number in numbers):
        raise click.BadParameter(f"found {given!r}, expected numbers of requests such as 1,4,16")
    return numbers


def source_options(function: F) -> F:
    """--threshold for ngram-cache, --spec-ngram-mod-n-match and so on for the others."""
    for name, param in reversed(ALL_PARAMS.items()):
        if name in CACHE_PARAMS:
            continue
        option = click.option(
            param.flag,
            name,
            type=click.IntRange(param.least, param.largest),
            help=f"{param.help} [{param.default}]",
        )
        function = option(function)
    return click.option(
        THRESHOLD, "thresholds", multiple=True, metavar="NAME=VALUE", callback=_thresholds,
        help="ngram-cache: least number of followers (samples) or least share of the best one "
        "(percent) that is trusted. NAME is context-, dynamic- or static-samples or -percent, "
        "with -1 to -4 for the n-grams of the first two tiers, as context-percent-2=60.",
    )(function)  # fmt: skip


class StatsCommand(click.Command):
    """Says what became of flags that this release no longer has."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for word in args:
            name = word.removeprefix("--").partition("=")[0]
            if word.startswith("--") and name.replace("-", "_") in CACHE_PARAMS:
                ctx.fail(f"found --{name}, expected {THRESHOLD} {name}=VALUE: that is its new name")
        return super().parse_args(ctx, args)


def _apply(function: F, options: list[Callable[[Any], Any]]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def cache_options(function: F) -> F:
    """-lcs, -lcd and how to load them."""
    return _apply(
        function,
        [
            click.option(
                "-lcs", "--lookup-cache-static", "statics", type=FILE, multiple=True,
                help="The static cache. Several are measured one after the other.",
            ),
            click.option(
                "-lcd", "--lookup-cache-dynamic", "dynamic", type=FILE,
                help="The dynamic cache (never written).",
            ),
            click.option(
                "--load", type=click.Choice(["mmap", "read"]), default="mmap", show_default=True,
                help="Map caches, or copy them into memory.",
            ),
            click.option(
                "--populate", is_flag=True, help="Bring mapped caches into memory at once."
            ),
        ],
    )  # fmt: skip


def replay_options(function: F) -> F:
    """What is replayed, and how."""
    return _apply(
        function,
        [
            click.option(
                "--spec-type", "spec_types", multiple=True, metavar="SOURCE[,SOURCE...]",
                help="A draft source, or a chain in which the first non-empty draft wins: "
                "ngram-adaptive, ngram-cache, ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod, "
                "ngram-suffix, trace:FILE. May be repeated: all replay one text. [ngram-cache]",
            ),
            click.option(
                "-c", "--ctx-size", "n_ctx", type=click.IntRange(2, 2**31 - 1), default=4096,
                show_default=True, help="Tokens in a chunk.",
            ),
            click.option(
                "--draft-max", type=click.IntRange(1, 1024), default=8, show_default=True,
                help="Most tokens in a draft.",
            ),
            click.option(
                "--prompt-tokens", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True,
                help="Tokens of each chunk that are given, not predicted.",
            ),
            click.option(
                "--state", type=click.Choice(["fresh", "shared"]), default="fresh",
                show_default=True,
                help="Make the sources beside ngram-cache anew for each chunk, or keep them.",
            ),
            click.option(
                "--compat", type=click.Choice(["llama.cpp"]),
                help="Keep llama.cpp's quirks: the last chunk of an exact multiple is left out, "
                "ngram-map-k4v may draft another continuation than the one it chose.",
            ),
            click.option(
                "--repeats", type=click.IntRange(1, 1000), default=1, show_default=True,
                help="Replay this often and report the median time.",
            ),
            click.option(
                "--requests", metavar="N[,N...]", callback=_requests,
                help="Also replay so many requests in lock step, verified in one shared batch each "
                "step, as 1,4,16.",
            ),
            click.option(
                "--by-file", is_flag=True, help="Report each -f by itself, too, to its end."
            ),
            click.option(
                "--by-document", is_flag=True, help="Report each document by itself, too."
            ),
        ],
    )  # fmt: skip


def cost_options(function: F) -> F:
    """Whether it pays."""
    return _apply(
        function,
        [
            click.option(
                "--verify-cost", metavar="COST",
                help="What a batch of so many tokens costs: a table (1:1,2:1.05,4:1.3), a JSON "
                "file, llama-batched-bench's or llama-bench's JSON, or one of the examples "
                "dense and moe.",
            ),
            click.option(
                "--tokens-per-second", type=click.FloatRange(0, min_open=True),
                help="Your engine's speed without drafts.",
            ),
            click.option(
                "--sweep", "sweeps", multiple=True, metavar="SOURCE:PARAM=VALUES",
                help="Try every combination, as ngram-suffix:ngram-min-match=2..8,draft=1,3,8; "
                "draft-max may vary, too.",
            ),
            click.option(
                "--tune", is_flag=True,
                help="Search the thresholds of ngram-cache, or the longest draft of "
                "ngram-adaptive, on the first half; report on the second.",
            ),
            click.option(
                "--tune-text", type=FILE,
                help="Search on this text (or token file) instead, report on all of the other.",
            ),
        ],
    )  # fmt: skip


def output_options(function: F) -> F:
    """Files beside --json."""
    return _apply(
        function,
        [
            click.option(
                "--csv", "csv_to", type=FILE, help="Write one row a source as CSV."
            ),
            click.option(
                "--plot", "plot_to", type=FILE,
                help="Draw the figures into an .svg or .png file (needs matplotlib).",
            ),
            click.option(
                "--html", "html_to", type=FILE,
                help="Write one page with the table and the figures; it needs no network.",
            ),
        ],
    )  # fmt: skip


def take_params(values: dict[str, Any]) -> dict[str, int]:
    """Remove the source parameters from a command's arguments; those that were given."""
    given = {name: values.pop(name) for name in ALL_PARAMS if name not in CACHE_PARAMS}
    params = {name: value for name, value in given.items() if value is not None}
    thresholds: dict[str, int] = values.pop("thresholds")
    return params | thresholds


def params_of(spec_type: str, params: dict[str, int]) -> dict[str, int]:
    """The given parameters that belong to a source or chain."""
    kinds = member_kinds(spec_type)
    own = {param.stem for kind in kinds for param in SOURCE_PARAMS[kind].values()}
    return {name: value for name, value in params.items() if name in own}


def require_used(params: dict[str, int], spec_types: list[str]) -> None:
    """Refuse parameters that no source here has.

    Raises:
        ParameterError: names the first one.
    """
    used = {name for spec_type in spec_types for name in params_of(spec_type, params)}
    for name in params:
        if name not in used:
            raise ParameterError(
                f"found {ALL_PARAMS[name].flag} without a source that has it, expected its source "
                f"among {', '.join(spec_types)}; add it with --spec-type"
            )
