"""What is in a cache file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lookup_tools.cache import Cache, ConstmapCache
from lookup_tools.cache.recover_keys import recover_keys
from lookup_tools.counting.counts import CountsBlock
from lookup_tools.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class TopNgram:
    """An n-gram and its most frequent follower."""

    ngram: tuple[int, ...]
    total: int
    n_followers: int
    best: int
    best_count: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The shape of a cache: numbers by order, and its most frequent n-grams."""

    n_ngrams: dict[int, int]
    n_pairs: dict[int, int]
    followers_quantiles: dict[str, int]
    top: list[TopNgram]


def all_blocks(cache: Cache) -> Iterator[CountsBlock]:
    """Everything in a cache, keys recovered where it carries none."""
    if isinstance(cache, ConstmapCache) and not cache.has_keys:
        found = recover_keys(cache)
        yield from cache.blocks_of(found.ngrams, found.offsets, found.lengths)
        return
    for order in cache.orders:
        yield from cache.blocks(order)


def overview(cache: Cache, n_top: int) -> Overview:
    """Read a whole cache once. O(size)."""
    ngrams: dict[int, int] = {}
    pairs: dict[int, int] = {}
    lengths: list[Any] = []
    top: list[TopNgram] = []
    for block in all_blocks(cache):
        ngrams[block.order] = ngrams.get(block.order, 0) + block.n_ngrams
        pairs[block.order] = pairs.get(block.order, 0) + block.n_pairs
        lengths.append(block.lengths)
        top = sorted(
            [*top, *_top_of(block, n_top)],
            key=lambda each: (-each.total, len(each.ngram), each.ngram),
        )[:n_top]
    joined = np.concatenate(lengths) if lengths else np.zeros(0, np.uint32)
    shares = {"50%": 50, "90%": 90, "99%": 99, "max": 100}
    quantiles = {
        name: int(np.percentile(joined, share, method="higher")) if len(joined) else 0
        for name, share in shares.items()
    }
    return Overview(ngrams, pairs, quantiles, top)


def _top_of(block: CountsBlock, n: int) -> Iterator[TopNgram]:
    if not block.n_ngrams or not n:
        return
    starts = np.cumsum(block.lengths, dtype=np.int64) - block.lengths
    totals = np.add.reduceat(block.entries[:, 1].astype(np.int64), starts)
    for at in np.argsort(-totals, kind="stable")[:n].tolist():
        entries = block.entries[starts[at] : starts[at] + block.lengths[at]]
        best = int(np.argmax(entries[:, 1]))
        yield TopNgram(
            tuple(block.ngrams[at].tolist()),
            int(totals[at]),
            len(entries),
            int(entries[best, 0]),
            int(entries[best, 1]),
        )


def query(cache: Cache, ids: list[int], n: int) -> list[tuple[int, int]]:
    """The `n` most frequent followers of an n-gram: (token, count), lowest ids first on ties."""
    found = cache.followers(ids)
    order = np.lexsort((found["token"], -found["count"].astype(np.int64)))[:n]
    return [(int(found["token"][k]), int(found["count"][k])) for k in order]


def shown(ids: list[int] | tuple[int, ...], tokenizer: Tokenizer | None) -> str:
    """Ids for people: their text where there is a vocabulary."""
    if tokenizer is None or any(i >= tokenizer.vocab_size for i in ids):
        return " ".join(map(str, ids))
    return repr(b"".join(tokenizer.token_bytes(i) for i in ids).decode(errors="replace"))
