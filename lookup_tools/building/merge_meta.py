"""What a merged file says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from lookup_tools.cache import Cache
from lookup_tools.counting.counts import Prune
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sniff import CacheFormat

KEPT_CORPORA = 16
MIXED = "mixed_vocabularies"  # an option of the file: it was merged from several


def joined_meta(
    caches: Sequence[Cache], fmt: CacheFormat, prune: Prune, weights: Sequence[Fraction]
) -> CacheMeta:
    """What can be said of the sum, in a way that the inputs' order does not change. The sum of
    several vocabularies names none, and neither does what that is merged into."""
    metas = [cache.meta for cache in caches if cache.meta is not None]
    kinds = {meta.kind for meta in metas}
    tokens = [meta.n_tokens for meta in metas if meta.n_tokens is not None]
    named = sorted(
        (m.fingerprint, m.tokenizer or "", m.vocab_size or 0) for m in metas if m.fingerprint
    )
    sizes = [m.vocab_size for m in metas if m.vocab_size]
    by_text = sorted({m.text_fingerprint for m in metas if m.text_fingerprint})
    mixed = (
        len({fingerprint for fingerprint, _, _ in named}) > 1
        or len(by_text) > 1
        or any(meta.options.get(MIXED) for meta in metas)
    )
    fingerprint, tokenizer, _ = named[0] if named and not mixed else (None, None, 0)
    shared = [meta.options for meta in metas]
    known = (
        {
            key: shared[0][key]
            for key in shared[0]
            if all(o.get(key) == shared[0][key] for o in shared)
        }
        if shared
        else {}
    )
    if mixed:
        known[MIXED] = True
    if not prune.keeps_all:
        known |= {"min_count": prune.min_count, "top_k": prune.top_k}
    if any(weight != 1 for weight in weights):
        known["weights"] = sorted(str(weight) for weight in weights)
    return CacheMeta(
        kind="static" if fmt != "legacy" else kinds.pop() if len(kinds) == 1 else "dynamic",
        fingerprint=fingerprint,
        text_fingerprint=by_text[0] if by_text and not mixed else None,
        tokenizer=tokenizer or None,
        vocab_size=max(sizes, default=None),
        corpora=tuple(sorted({name for meta in metas for name in meta.corpora})),
        n_tokens=sum(tokens) if len(tokens) == len(caches) else None,
        options=known,
    )


def refreshed_meta(meta: CacheMeta, caches: Sequence[Cache]) -> CacheMeta:
    """The sum's metadata with the live file's name for its vocabulary, and the last corpora's names
    only: a file refreshed every night must not grow by them."""
    names = [name for cache in caches if cache.meta for name in cache.meta.corpora]
    last = list(dict.fromkeys(reversed(names)))[:KEPT_CORPORA]
    meta = replace(meta, corpora=tuple(reversed(last)))
    live = caches[0].meta
    if live is None or live.fingerprint != meta.fingerprint:
        return meta
    return replace(meta, tokenizer=live.tokenizer)
