"""The rules of drafting as plain Python, written from their description and sharing nothing with
the library: dictionaries, rescans, no cleverness. Slow and short on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Counts = dict[tuple[int, ...], dict[int, int]]


@dataclass(frozen=True)
class Thresholds:
    """Samples and percent for n = 1..4 of the two tables, and for the static tier."""

    context_samples: tuple[int, int, int, int] = (2, 2, 1, 1)
    context_percent: tuple[int, int, int, int] = (66, 50, 50, 50)
    dynamic_samples: tuple[int, int, int, int] = (4, 3, 2, 2)
    dynamic_percent: tuple[int, int, int, int] = (75, 66, 66, 66)
    static_samples: int = 2
    static_percent: int = 50

    def params(self) -> dict[str, int]:
        """The same by flag name."""
        named = {"static_samples": self.static_samples, "static_percent": self.static_percent}
        for tier in ("context", "dynamic"):
            for what in ("samples", "percent"):
                for k, value in enumerate(getattr(self, f"{tier}_{what}")):
                    named[f"{tier}_{what}_{k + 1}"] = value
        return named


def merge_into(table: Counts, more: Mapping[tuple[int, ...], Mapping[int, int]]) -> None:
    for ngram, followers in more.items():
        mine = table.setdefault(ngram, {})
        for token, count in followers.items():
            mine[token] = mine.get(token, 0) + count


# ---- the rules of ngram-cache, in less than 40 lines


def count_into(table: Counts, tokens: Sequence[int], start: int = 0) -> None:
    """Count the n-grams, n = 1..4, whose follower stands at `start` or later."""
    for i in range(start, len(tokens)):
        for n in range(1, min(i, 4) + 1):
            followers = table.setdefault(tuple(tokens[i - n : i]), {})
            followers[tokens[i]] = followers.get(tokens[i], 0) + 1


def try_tier(table: Counts, history: Sequence[int], part: Mapping[int, int],
             samples: Sequence[int], percent: Sequence[int]) -> int | None:  # fmt: skip
    """Context or dynamic tier: the longest n-gram that is sure enough."""
    for n in (4, 3, 2, 1):
        followers = table.get(tuple(history[-n:]), {}) if n <= len(history) else {}
        total, most = sum(followers.values()), max(followers.values(), default=0)
        if not total or total < samples[n - 1] or 100 * most < percent[n - 1] * total:
            continue
        scores = {
            y: count * 100 * part[y] if y in part else count for y, count in followers.items()
        }
        best = min(scores, key=lambda y: (-scores[y], y))
        if 100 * followers[best] >= percent[n - 1] * total:
            return best
    return None


def draft(known: Sequence[int], context: Counts, dynamic: Counts, static: Counts,
          t: Thresholds, n_draft: int) -> list[tuple[int, str]]:  # fmt: skip
    """Up to `n_draft` tokens, each with the tier it came from."""
    history, out = list(known), []
    while len(history) >= 2 and len(out) < n_draft:
        part, tier = static.get(tuple(history[-2:]), {}), "context"
        token = try_tier(context, history, part, t.context_samples, t.context_percent)
        if token is None:
            tier = "dynamic"
            token = try_tier(dynamic, history, part, t.dynamic_samples, t.dynamic_percent)
        if token is None and part:
            tier, total, best = "static", sum(part.values()), min(part, key=lambda y: (-part[y], y))
            if total >= t.static_samples and 100 * part[best] >= t.static_percent * total:
                token = best
        if token is None:
            break
        out.append((token, tier))
        history.append(token)
    return out


# ---- replay


@dataclass
class Counters:
    n_decode: int = 0
    n_drafted: int = 0
    n_accept: int = 0
    drafted_steps: int = 0
    calls_accept: int = 0
    acc_drafts: int = 0
    tiers: dict[str, list[int]] = field(
        default_factory=lambda: {"context": [0, 0], "dynamic": [0, 0], "static": [0, 0]}
    )
    histogram: dict[int, int] = field(default_factory=dict)


def replay(
    tokens: Sequence[int],
    static: Counts | None = None,
    dynamic: Counts | None = None,
    thresholds: Thresholds | None = None,
    *,
    n_ctx: int,
    draft_max: int,
    prompt: int = 0,
    compat: bool = False,
) -> Counters:
    """Section 4: the text stands in for the model."""
    learned: Counts = {}
    merge_into(learned, dynamic or {})
    out, start = Counters(), 0
    while start + n_ctx < len(tokens) or (start + n_ctx == len(tokens) and not compat):
        chunk = list(tokens[start : start + n_ctx])
        _replay_chunk(
            chunk, static or {}, learned, thresholds or Thresholds(), prompt, draft_max, out
        )
        start += n_ctx
    return out


def _replay_chunk(
    chunk: list[int],
    static: Counts,
    learned: Counts,
    t: Thresholds,
    prompt: int,
    draft_max: int,
    out: Counters,
) -> None:
    context: Counts = {}
    counted, pos = 0, max(prompt + 1, 1)
    while pos < len(chunk):
        count_into(context, chunk[:pos], counted)
        counted = pos
        drafted = draft(chunk[:pos], context, learned, static, t, draft_max)
        accepted = 0
        for token, _ in drafted:
            if pos + accepted >= len(chunk) or token != chunk[pos + accepted]:
                break
            accepted += 1
        _record(out, drafted, accepted)
        pos += accepted
        pos += pos < len(chunk)
    count_into(context, chunk, counted)
    merge_into(learned, context)


def _record(out: Counters, drafted: list[tuple[int, str]], accepted: int) -> None:
    out.n_decode += 1
    out.n_drafted += len(drafted)
    out.n_accept += accepted
    out.drafted_steps += bool(drafted)
    out.calls_accept += bool(drafted)
    out.acc_drafts += accepted > 0
    out.histogram[accepted] = out.histogram.get(accepted, 0) + 1
    for k, (_, tier) in enumerate(drafted):
        out.tiers[tier][0] += 1
        out.tiers[tier][1] += k < accepted
