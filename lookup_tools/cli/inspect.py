"""lookup-inspect: what is in this file, is it whole, what follows these words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import click

from lookup_tools.cli.options import (
    CONTEXT,
    FILE,
    emit,
    one_line_errors,
    shared_options,
    version_option,
    vocabulary_option,
)
from lookup_tools.errors import ParameterError


@click.command(
    context_settings=CONTEXT,
    epilog='Example: lookup-inspect corpus.lcs -m model.gguf --query "of the"',
)
@click.argument("file", type=FILE)
@click.option(
    "-m",
    "--model",
    type=FILE,
    help="The vocabulary, to show and query text instead of ids.",
)
@click.option(
    "--verify", is_flag=True, help="Check the whole file: checksums, spans, followers, ids."
)
@click.option(
    "--top", type=click.IntRange(0, 100_000), metavar="N", help="The N most frequent n-grams."
)
@click.option(
    "--query",
    "queried",
    metavar="TEXT",
    help="What follows these words (with -m), or these ids (without).",
)
@click.option(
    "--dump", is_flag=True, help="Every pair as a line: ids, follower, count, separated by tabs."
)
@click.option(
    "--recover-keys", is_flag=True, help="For a constmap without keys: recover and report them."
)
@vocabulary_option
@shared_options
@version_option()
@one_line_errors
def main(
    file: str,
    model: str | None,
    dump: bool,
    json_to: str | None,
    quiet: bool,
    force: bool,
    ignore_vocabulary: bool,
    threads: int | None,
    **wanted: Any,
) -> None:
    """Show what a cache file holds; check it; ask it what follows some words."""
    from lookup_tools.cache import open_cache
    from lookup_tools.cache.load_cost import require_vocabulary
    from lookup_tools.tokenizers import open_tokenizer

    if dump and json_to:
        raise click.UsageError("found --dump with --json, expected one of them")
    tokenizer = open_tokenizer(model) if model else None
    with open_cache(file) as cache:
        if tokenizer is not None:
            ours = (tokenizer.fingerprint, tokenizer.name, tokenizer.text_fingerprint)
            require_vocabulary(cache, *ours, ignore=ignore_vocabulary)
        if dump:
            _dump(cache)
            return
        asked = _Asked(cache, tokenizer, wanted, threads, _facts(cache), [_heading(cache)])
        for section in (_verify, _recover, _top, _query):
            section(asked)
    emit("\n".join(asked.text), lambda: asked.body, json_to, force=force)


@dataclass(slots=True)
class _Asked:
    """What the sections read, and where they put their findings."""

    cache: Any
    tokenizer: Any
    wanted: dict[str, Any]
    threads: int | None
    body: dict[str, Any]
    text: list[str]


def _facts(cache: Any) -> dict[str, Any]:
    return {
        "path": cache.path,
        "format": cache.format,
        "file_bytes": cache.file_bytes,
        "n_ngrams": cache.n_ngrams,
        "n_pairs": cache.n_pairs,
        "orders": list(cache.orders),
        "has_keys": getattr(cache, "has_keys", True),
        "meta": asdict(cache.meta) if cache.meta else None,
    }


def _heading(cache: Any) -> str:
    n_ngrams = "an unknown number of" if cache.n_ngrams is None else f"{cache.n_ngrams:,}"
    lines = [
        f"{cache.path}: {cache.format}, {cache.file_bytes:,} bytes, {n_ngrams} n-grams, "
        f"{cache.n_pairs:,} pairs"
    ]
    if cache.meta is None:
        lines.append("no metadata: the file does not say which vocabulary or corpus it is from")
    else:
        meta = cache.meta
        name = meta.tokenizer_name  # ours say the size themselves
        size = f" ({meta.vocab_size} ids)" if meta.vocab_size and " ids)" not in name else ""
        lines.append(f"{meta.kind} cache by {meta.tool or 'an unnamed tool'} for {name}{size}")
        tokens = "" if meta.n_tokens is None else f"{meta.n_tokens:,} tokens of "
        lines.append(f"from {tokens}{', '.join(meta.corpora) or 'an unnamed corpus'}")
    return "\n".join(" ".join(line.split()) for line in lines)  # a name cannot fake a line


def _verify(asked: _Asked) -> None:
    if not asked.wanted["verify"]:
        return
    import os

    from lookup_tools.cache.verify import verify_cache
    from lookup_tools.system.workers import worker_pool

    with worker_pool(asked.threads or os.cpu_count() or 1) as pool:
        report = verify_cache(asked.cache, pool)
    asked.body["verify"] = asdict(report)
    asked.text += [f"checked: {line}" for line in report.checked] + [
        f"not proved: {line}" for line in report.unproved
    ]


def _recover(asked: _Asked) -> None:
    if not asked.wanted["recover_keys"]:
        return
    import os
    import time

    from lookup_tools.cache import ConstmapCache
    from lookup_tools.cache.recover_keys import recover_keys
    from lookup_tools.system.workers import worker_pool

    if not isinstance(asked.cache, ConstmapCache):
        raise ParameterError(
            f"{asked.cache.path}: found a legacy file, expected a constmap: legacy records carry "
            "their keys"
        )
    start = time.perf_counter()
    with worker_pool(asked.threads or os.cpu_count() or 1) as pool:
        found = recover_keys(
            asked.cache,
            vocab_size=asked.tokenizer.vocab_size if asked.tokenizer else None,
            pool=pool,
        )
    seconds = time.perf_counter() - start
    asked.body["recovered"] = {
        "n_keys": len(found.lengths),
        "method": found.method,
        "seconds": seconds,
    }
    asked.text.append(
        f"recovered {len(found.lengths):,} keys by {found.method} in {seconds:.2f} s; "
        f"their spans tile all {asked.cache.n_pairs:,} entries"
    )


def _top(asked: _Asked) -> None:
    if asked.wanted["top"] is None:
        return
    from lookup_tools.cache.overview import overview, shown

    seen = overview(asked.cache, asked.wanted["top"])
    asked.body["overview"] = asdict(seen)
    quantiles = ", ".join(f"{name} {value}" for name, value in seen.followers_quantiles.items())
    asked.text.append(f"followers of an n-gram: {quantiles}")
    for each in seen.top:
        asked.text.append(
            f"{each.total:>10,} x {shown(each.ngram, asked.tokenizer)}: "
            f"{each.n_followers:,} followers, "
            f"first {shown((each.best,), asked.tokenizer)} ({each.best_count:,})"
        )


def _query(asked: _Asked) -> None:
    if asked.wanted["queried"] is None:
        return
    from lookup_tools.cache.overview import query, shown

    ids = _query_ids(asked.wanted["queried"], asked.tokenizer)
    # The longest n-gram the file can hold, from the end: what a drafter would look at.
    longest = max((order for order in asked.cache.orders if order <= len(ids)), default=0)
    if not longest:
        raise ParameterError(
            f"found {len(ids)} tokens in the query, expected at least "
            f"{min(asked.cache.orders, default=2)}"
        )
    ids = ids[-longest:]
    found = query(asked.cache, ids, 20)
    asked.body["query"] = {
        "ngram": ids,
        "followers": [{"token": token, "count": count} for token, count in found],
    }
    asked.text.append(
        f"after {shown(ids, asked.tokenizer)} ({' '.join(map(str, ids))}):"
        + ("" if found else " nothing")
    )
    asked.text += [
        f"{count:>10,} x {shown((token,), asked.tokenizer)} ({token})" for token, count in found
    ]


def _query_ids(text: str, tokenizer: Any) -> list[int]:
    if tokenizer is not None:
        return [int(i) for i in tokenizer.encode(text)]
    try:
        return [int(word) for word in text.split()]
    except ValueError:
        raise ParameterError(
            f"found query {text!r} without a vocabulary, expected -m MODEL, or ids separated "
            "by spaces"
        ) from None


def _dump(cache: Any) -> None:
    from lookup_tools.cache.overview import all_blocks

    for block in all_blocks(cache):
        lines = [
            f"{' '.join(map(str, ngram))}\t{token}\t{count}"
            for ngram, followers in block.items()
            for token, count in followers.items()
        ]
        click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
