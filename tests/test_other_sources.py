"""The draft sources beside ngram-cache: each equals a plain transcription of its rules (rescans and
all) on random streams, and the counters of real llama.cpp runs where those are at hand."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tools._native import ffi, lib

GOLDEN = Path(__file__).parent / "data"
TABLE = 262_144
POOL = 4_194_304
HITS = 16_380


def make(kind: str, **params: int) -> Any:
    """A source that frees itself; ValueError if the parameters are refused."""
    filled = ffi.new(f"lookup_{kind}_params *")
    getattr(lib, f"lookup_{kind}_defaults")(filled)
    for name, value in params.items():
        setattr(filled, name, value)
    out = ffi.new("lookup_source **")
    if getattr(lib, f"lookup_source_{kind}")(filled, out) != 0:
        raise ValueError(f"{kind} refused {params}")
    return ffi.gc(out[0], lib.lookup_source_free)


class Native:
    """The C source behind the same three calls as the transcriptions below."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def begin(self, tokens: list[int]) -> None:
        assert lib.lookup_source_begin(self.source, tokens, len(tokens)) == 0

    def draft(self, tokens: list[int], room: int = 1024) -> list[int]:
        out, n = ffi.new("int32_t[]", room), ffi.new("size_t *")
        tiers = ffi.new("uint8_t[]", b"\xff" * room)
        status = lib.lookup_source_draft(self.source, tokens, len(tokens), out, tiers, room, n)
        assert status == 0
        assert not any(tiers[0 : n[0]])
        return list(out[0 : n[0]])

    def accept(self, n: int) -> None:
        assert lib.lookup_source_accept(self.source, n) == 0


# ---- the rules, transcribed; H is `tokens` without its last one


class Simple:
    def __init__(self, n: int, m: int) -> None:
        self.n, self.m = n, m

    def begin(self, tokens: list[int]) -> None:
        pass

    def draft(self, tokens: list[int]) -> list[int]:
        n, m, c = self.n, self.m, len(tokens) - 1
        if c <= n + m + 1:
            return []
        for j in range(c - n - 1, 0, -1):
            if tokens[j : j + n] == tokens[-n:]:
                copy = min(m, c - (j + n))
                return [] if copy < n else tokens[j + n : j + n + copy]
        return []

    def accept(self, k: int) -> None:
        pass


class Map:
    def __init__(self, n: int, m: int, min_hits: int, k4v: bool, compat: bool) -> None:
        self.n, self.m, self.min_hits, self.k4v, self.compat = n, m, min_hits, k4v, compat
        self.table: dict[int, int] = {}
        self.last_idx = self.begin_len = self.checked_len = 0
        self.keys: list[dict[str, Any]] = []
        self.remembered: dict[str, int] | None = None

    def slot(self, gram: list[int]) -> int:
        h = 0
        for token in gram:
            h = (h * 2654435761 + token) & 0xFFFFFFFF
        return h % TABLE

    def begin(self, tokens: list[int]) -> None:
        b, n, m = len(tokens), self.n, self.m
        cut = self.begin_len
        if cut > b:
            cut = b - n - m if b > n + m else 0
        self.remembered = None
        if b < self.checked_len:
            self.table = {slot: p for slot, p in self.table.items() if p < cut}
            self.last_idx = max(cut - 1, 0)
            self.keys = [k for k in self.keys if k["key_idx"] < cut]
            if self.k4v:
                for k in self.keys:
                    k["values"] = [v for v in k["values"] if v["idx"] < cut]
                self.keys = [k for k in self.keys if k["values"]]
        self.checked_len = self.begin_len = b

    def draft(self, tokens: list[int]) -> list[int]:
        n, m, c = self.n, self.m, len(tokens) - 1
        self.remembered = None
        if c < 2 * n + m:
            return []
        self.checked_len = c
        gram = tokens[-n:]
        ranges = [
            range(self.begin_len - n - m - 1, self.last_idx, -1),
            range(c - n - m - 1, max(self.begin_len, self.last_idx), -1),
        ]
        match = self.table.get(self.slot(gram), 0)
        if not (match and match < c - n - m - 1 and tokens[match : match + n] == gram):
            found = (j for r in ranges for j in r if tokens[j : j + n] == gram)
            match = next(found, 0)
        for r in ranges:
            for j in r:
                self.table.setdefault(self.slot(tokens[j : j + n]), j)
        self.last_idx = max(self.last_idx, c - n - m - 1)
        return self.draft_from(tokens, match) if match else []

    def draft_from(self, tokens: list[int], match: int) -> list[int]:
        n, m, c, gram = self.n, self.m, len(tokens) - 1, tokens[-self.n :]

        def stands(k: dict[str, Any]) -> bool:
            at = k["key_idx"]
            return bool(at + n <= c and tokens[at : at + n] == gram)

        key = next((k for k in self.keys if stands(k)), None)
        if key is None:
            key = {"key_idx": match, "stat_idx": 0, "num": 0, "values": []}
            self.keys.append(key)
            key["first"] = {"n_accepted": m}
        key["num"] = min(key["num"] + 1, HITS)
        start = match + n
        if not self.k4v:
            chosen = key["first"]
        else:
            if key["num"] < self.min_hits:
                return []
            self.count(tokens, key, match)
            nums = [v["num"] for v in key["values"]]
            others = sum(nums) - max(nums)
            if others > 0 and max(nums) < 2 * others:
                return []
            chosen = key["values"][nums.index(max(nums))]
            if not self.compat:
                start = chosen["idx"]
        self.remembered = chosen
        return tokens[start : min(start + min(m, chosen["n_accepted"]), c)]

    def count(self, tokens: list[int], key: dict[str, Any], match: int) -> None:
        n, m, c = self.n, self.m, len(tokens) - 1
        for i in range(key["stat_idx"], match + 1):
            if tokens[i : i + n] != tokens[-n:]:
                continue
            follow = tokens[i + n : i + n + m]
            for v in key["values"]:
                if v["idx"] + m <= c and tokens[v["idx"] : v["idx"] + m] == follow:
                    break
            else:
                if len(key["values"]) == 4:
                    continue
                v = {"idx": i + n, "num": 0, "n_accepted": m}
                key["values"].append(v)
            v["num"] = min(v["num"] + 1, HITS)
        key["stat_idx"] = match if self.compat else match + 1

    def accept(self, k: int) -> None:
        if self.remembered is not None:
            self.remembered["n_accepted"] = k


class Mod:
    def __init__(self, n: int, n_max: int, n_min: int) -> None:
        self.n, self.n_max, self.n_min = n, n_max, n_min
        self.pool: dict[int, int] = {}
        self.i_last = self.drafted = self.low = 0
        self.resets_low = self.resets_full = 0

    def slot(self, gram: list[int]) -> int:
        r = 0
        for token in gram:
            r = (r * 6364136223846793005 + token) & 0xFFFFFFFFFFFFFFFF
        return r % POOL

    def add(self, tokens: list[int], start: int, end: int) -> None:
        for i in range(start, end):
            self.pool[self.slot(tokens[i : i + self.n])] = tokens[i + self.n]

    def begin(self, tokens: list[int]) -> None:
        self.i_last = self.drafted = 0
        if len(tokens) < self.n:
            return
        self.add(tokens, 0, len(tokens) - self.n)
        self.i_last = len(tokens) - self.n
        if len(self.pool) > POOL // 4:
            self.pool = {}
            self.resets_full += 1

    def draft(self, tokens: list[int]) -> list[int]:
        c = len(tokens) - 1
        self.drafted = 0
        if c < self.n:
            return []
        if self.i_last + 32 < c:
            self.add(tokens, self.i_last, c - self.n)
            self.i_last = c - self.n
        gram, out = tokens[-self.n :], []
        while len(out) < self.n_max:
            follower = self.pool.get(self.slot(gram))
            if follower is None:
                if len(out) < self.n_min:
                    return []
                break
            out.append(follower)
            gram = [*gram[1:], follower]
        self.drafted = len(out)
        return out

    def accept(self, k: int) -> None:
        if self.drafted == 0:
            return
        self.low = self.low + 1 if k / self.drafted < 0.25 else 0
        if self.low == 5:
            self.low, self.i_last, self.pool = 0, 0, {}
            self.resets_low += 1


class Suffix:
    def __init__(self, draft: int, min_match: int, max_match: int) -> None:
        self.n_draft, self.min_match, self.max_match = draft, min_match, max_match

    def begin(self, tokens: list[int]) -> None:
        pass

    def draft(self, tokens: list[int]) -> list[int]:
        best, best_end, last = 0, 0, len(tokens) - 1
        for end in range(last):
            back, pattern = tokens[end::-1], tokens[last::-1]
            length = agreement(back, pattern[: self.max_match])
            if length >= best:
                best, best_end = length, end
        return [] if best < self.min_match else tokens[best_end + 1 : best_end + 1 + self.n_draft]

    def accept(self, k: int) -> None:
        pass


# ---- random sessions


def streams(rng: random.Random) -> Iterator[tuple[list[int], int]]:
    """Texts and the length of their prompts: few tokens, copied stretches, some of the text before,
    and ids that the sources' hashes cannot tell apart."""
    step = rng.choice([1, TABLE, POOL])
    alphabet = [rng.randrange(3) + step * i for i in range(rng.randrange(1, 5))]
    text: list[int] = []
    for _ in range(rng.randrange(1, 5)):
        text = text[: rng.choice([0, rng.randrange(len(text) + 1)])]
        length = rng.randrange(1, 160)
        while len(text) < length:
            if len(text) > 8 and rng.random() < 0.3:
                start = rng.randrange(len(text))
                text += text[start : start + rng.randrange(1, 30)]
            else:
                text.append(rng.choice(alphabet))
        text = text[:length]
        yield text, rng.randrange(length)


def agreement(a: list[int], b: list[int]) -> int:
    """How many tokens two lists share from their start on."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def compare(native: Native, rules: Any, rng: random.Random, rooms: bool = True) -> None:
    for text, n_prompt in streams(rng):
        native.begin(text[:n_prompt])
        rules.begin(text[:n_prompt])
        known = max(n_prompt + rng.randrange(2), 1)
        while known <= len(text):
            room = rng.choice([1, 3, 1024]) if rooms else 1024
            found = native.draft(text[:known], room)
            expected = rules.draft(text[:known])[:room]
            assert found == expected, (known, n_prompt)
            accepted = agreement(found, text[known:])
            if found:
                native.accept(accepted)
                rules.accept(accepted)
            if rng.random() < 0.05:
                continue  # asked again with the same tokens
            known += accepted + rng.choice([1, 1, 1, 2, 9])


seeds = st.integers(0, 2**32)
small = st.integers(1, 5)
quick = settings(deadline=None, max_examples=150)


@quick
@given(seeds, small, small)
def test_simple_equals_the_rules(seed: int, n: int, m: int) -> None:
    source = Native(make("ngram_simple", size_n=n, size_m=m))
    compare(source, Simple(n, m), random.Random(seed))


@quick
@given(seeds, small, small, st.integers(1, 3), st.booleans(), st.booleans())
def test_map_equals_the_rules(
    seed: int, n: int, m: int, hits: int, k4v: bool, compat: bool
) -> None:
    source = make("ngram_map", size_n=n, size_m=m, min_hits=hits, k4v=k4v, compat=compat)
    compare(Native(source), Map(n, m, hits, k4v, compat), random.Random(seed))


def mod_counts(source: Any) -> tuple[int, int, int]:
    counts = ffi.new("lookup_ngram_mod_counts *")
    assert lib.lookup_ngram_mod_counters(source, counts) == 0
    return counts.used, counts.resets_low, counts.resets_full


@quick
@given(seeds, st.one_of(small, st.integers(30, 40)), st.integers(1, 12), st.integers(0, 6))
def test_mod_equals_the_rules(seed: int, n: int, n_max: int, n_min: int) -> None:
    source, rules = make("ngram_mod", n_match=n, n_max=n_max, n_min=n_min), Mod(n, n_max, n_min)
    compare(Native(source), rules, random.Random(seed))
    assert mod_counts(source) == (len(rules.pool), rules.resets_low, rules.resets_full)


@quick
@given(seeds, small, small, st.one_of(st.integers(0, 6), st.just(59)))
def test_suffix_equals_a_naive_scan(seed: int, draft: int, min_match: int, more: int) -> None:
    params = {"draft": draft, "min_match": min_match, "max_match": min_match + more}
    compare(Native(make("ngram_suffix", **params)), Suffix(**params), random.Random(seed))


# ---- worked examples


def test_suffix_worked_example() -> None:
    source = Native(make("ngram_suffix", draft=3, min_match=3, max_match=64))
    source.begin([])
    assert source.draft([7, 7, 7]) == []  # two agree: below min_match
    assert source.draft([7, 7, 7, 7]) == [7]  # a run predicts itself, clipped at the end
    source.begin([])
    assert source.draft([1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 1, 2, 3]) == [5, 9, 1]  # the most recent
    source.begin([])
    assert source.draft([0, 1, 2, 3, 4, 9, 1, 2, 3, 5, 0, 1, 2, 3]) == [4, 9, 1]  # the longest
    source.begin([])
    assert source.draft([1, 2, 3, 4, 5, 2, 3]) == []  # declined


def test_row_01_nothing_is_drafted_from_the_last_text() -> None:
    before, after = [1, 2, 3, 4] * 40, [9, 8, 1, 2, 3]
    sources = [
        make("ngram_simple", size_n=2, size_m=2),
        make("ngram_map", size_n=2, size_m=2),
        make("ngram_map", size_n=2, size_m=2, k4v=1),
        make("ngram_suffix", min_match=2),
    ]
    for source in map(Native, sources):
        source.begin([])
        assert source.draft(before)
        source.begin([])
        assert source.draft(after) == []


def test_row_19_k4v_drafts_the_value_it_picked() -> None:
    a, b = [10, 11, 12], [20, 21, 22]
    text = [0, 1, 2, *a, 3, 1, 2, *a, 4, 1, 2, *a, 5, 1, 2, *b, 6, 7, 8, 9, 30, 31, 1, 2]
    for compat, expected in ((0, a), (1, b)):
        source = Native(make("ngram_map", size_n=2, size_m=3, k4v=1, compat=compat))
        source.begin(text[:-1])
        assert source.draft(text) == expected


@pytest.mark.parametrize("k4v", [0, 1])
def test_row_20_a_shrinking_context_rebuilds(k4v: int) -> None:
    rng = random.Random(5)
    source = Native(make("ngram_map", size_n=2, size_m=3, k4v=k4v))
    rules = Map(2, 3, 1, bool(k4v), False)
    long = [rng.randrange(4) for _ in range(300)]
    for length in (250, 40, 3, 0, 120, 119):
        source.begin(long[:length])
        rules.begin(long[:length])
        for known in range(max(length, 1), 300):
            assert source.draft(long[:known]) == rules.draft(long[:known])


def test_row_21_mod_reports_resets_and_occupancy() -> None:
    source = make("ngram_mod", n_match=2, n_max=8, n_min=1)
    native, text = Native(source), [1, 2, 3, 4, 5, 6, 7, 8] * 8
    native.begin(text)
    assert mod_counts(source) == (8, 0, 0)
    for bad in range(1, 6):
        assert mod_counts(source)[1] == 0
        assert native.draft(text) == [1, 2, 3, 4, 5, 6, 7, 8]
        native.accept(0 if bad < 5 else 1)
    assert mod_counts(source) == (0, 1, 0)
    assert native.draft([*text, 1]) == [2, 3, 4, 5, 6, 7, 8, 1]  # refilled from the present text
    assert mod_counts(source) == (8, 1, 0)


def test_mod_empties_a_pool_more_than_a_quarter_full() -> None:
    source = make("ngram_mod", n_match=1, n_max=4, n_min=1)
    tokens = np.arange(POOL // 4 + 2, dtype=np.int32)
    data = ffi.from_buffer("int32_t[]", tokens)
    assert lib.lookup_source_begin(source, data, POOL // 4 + 1) == 0
    assert mod_counts(source) == (POOL // 4, 0, 0)
    assert lib.lookup_source_begin(source, data, POOL // 4 + 2) == 0
    assert mod_counts(source) == (0, 0, 1)
    text = np.concatenate([tokens, np.array([5, 6, 7] * 20, dtype=np.int32)])
    out, n = ffi.new("int32_t[]", 4), ffi.new("size_t *")
    for bad in range(6):  # the low rounds bring the whole text back, prompt included
        data = ffi.from_buffer("int32_t[]", text)
        assert lib.lookup_source_draft(source, data, len(text), out, ffi.NULL, 4, n) == 0
        assert list(out[0 : n[0]]) == [5, 6, 7, 5]
        assert mod_counts(source) == ((4, 0, 1) if bad < 5 else (len(tokens), 1, 1))
        assert lib.lookup_source_accept(source, 0) == 0


def test_mod_knows_thousands_of_prompts() -> None:
    source, rules = make("ngram_mod", n_match=2, n_max=6, n_min=1), Mod(2, 6, 1)
    native, rng = Native(source), random.Random(1)
    for turn in range(2500):
        text = [rng.randrange(40) for _ in range(rng.randrange(1, 12))]
        native.begin(text)
        rules.begin(text)
        found = native.draft(text)
        assert found == rules.draft(text), turn
        if found:
            accepted = rng.choice([0, 0, 0, 0, 0, 0, 0, 0, len(found)])
            native.accept(accepted)
            rules.accept(accepted)
    assert rules.resets_low > 0
    assert mod_counts(source) == (len(rules.pool), rules.resets_low, 0)


# ---- chains


def test_chain_takes_the_first_draft_and_tells_only_its_maker() -> None:
    keys, suffix = make("ngram_map", size_n=2, size_m=2), make("ngram_suffix", min_match=2, draft=1)
    out, last = ffi.new("lookup_source **"), ffi.new("int32_t *")
    assert lib.lookup_source_chain([keys, suffix], 2, out) == 0
    chain = ffi.gc(out[0], lib.lookup_source_free)
    native = Native(chain)

    def who() -> int:
        assert lib.lookup_chain_last(chain, last) == 0
        return int(last[0])

    text = [3, 1, 2, 5, 6, 7, 8, 9, 4, 1, 2]
    native.begin([])
    assert (native.draft(text[:4]), who()) == ([], -1)
    native.accept(0)  # nobody's
    assert (native.draft(text), who()) == ([5, 6], 0)
    native.accept(0)  # the key drafts nothing from now on, and the next member has its turn
    assert (native.draft(text), who()) == ([5], 1)
    native.accept(1)
    assert (native.draft(text), who()) == ([5], 1)
    native.begin([])
    assert who() == -1


def test_chain_refuses_what_it_cannot_ask() -> None:
    out, last = ffi.new("lookup_source **"), ffi.new("int32_t *")
    source = make("ngram_simple")
    refused = lib.LOOKUP_E_ARGUMENT
    assert lib.lookup_source_chain([], 0, out) == refused
    assert lib.lookup_source_chain([source, ffi.NULL], 2, out) == refused
    assert lib.lookup_source_chain([source] * 65, 65, out) == refused
    assert lib.lookup_chain_last(source, last) == refused
    assert lib.lookup_chain_counters(source, 0, ffi.new("lookup_chain_counts *")) == refused
    assert lib.lookup_trace_seek(source, 0) == refused
    assert lib.lookup_ngram_mod_counters(source, ffi.new("lookup_ngram_mod_counts *")) == refused
    assert lib.lookup_ngram_map_counters(source, ffi.new("lookup_ngram_map_counts *")) == refused


def test_chain_counts_what_each_member_did() -> None:
    keys, suffix = make("ngram_map", size_n=2, size_m=2), make("ngram_suffix", min_match=2, draft=1)
    out = ffi.new("lookup_source **")
    assert lib.lookup_source_chain([keys, suffix], 2, out) == 0
    native = Native(ffi.gc(out[0], lib.lookup_source_free))
    text = [3, 1, 2, 5, 6, 7, 8, 9, 4, 1, 2]
    native.begin([])
    for accepted in (0, 1):  # the key drafts two, is refused, and leaves it to the next member
        assert native.draft(text)
        native.accept(accepted)
    names = [name for name, _ in ffi.typeof("lookup_chain_counts").fields]
    found = []
    for member in (0, 1):
        counts = ffi.new("lookup_chain_counts *")
        assert lib.lookup_chain_counters(native.source, member, counts) == 0
        found.append([getattr(counts, name) for name in names])
    assert found == [[1, 2, 1, 1, 0, 2, 0], [1, 1, 1, 1, 1, 1, 1]]
    beyond = lib.lookup_chain_counters(native.source, 2, ffi.new("lookup_chain_counts *"))
    assert beyond == lib.LOOKUP_E_ARGUMENT


# ---- traces


@pytest.mark.parametrize(
    ("positions", "ends", "tokens", "status"),
    [
        ([3, 3], [1, 2], [5, 6], "LOOKUP_E_ARGUMENT"),
        ([4, 3], [1, 2], [5, 6], "LOOKUP_E_ARGUMENT"),
        ([3, 4], [2, 1], [5, 6], "LOOKUP_E_ARGUMENT"),
        ([3, 4], [1, 2], [5, -1], "LOOKUP_E_TOKEN"),
        ([], [], [], "LOOKUP_OK"),
    ],
)
def test_a_trace_checks_its_arrays(
    positions: list[int], ends: list[int], tokens: list[int], status: str
) -> None:
    arrays = (
        ffi.new("uint64_t[]", positions), ffi.new("uint64_t[]", ends), ffi.new("int32_t[]", tokens)
    )  # fmt: skip
    trace, out = ffi.new("lookup_trace *", (*arrays, len(positions))), ffi.new("lookup_source **")
    assert lib.lookup_source_trace(trace, out) == getattr(lib, status)
    if status == "LOOKUP_OK":
        native = Native(ffi.gc(out[0], lib.lookup_source_free))
        native.begin([])
        assert native.draft([1, 2, 3]) == []


# ---- arguments

RANGES = {
    "ngram_simple": {"size_n": (1, 1024), "size_m": (1, 1024)},
    "ngram_map": {
        "size_n": (1, 1024), "size_m": (1, 1024), "min_hits": (1, HITS),
        "k4v": (0, 1), "compat": (0, 1),
    },
    "ngram_mod": {"n_match": (1, 1024), "n_max": (1, 1024), "n_min": (0, 1024)},
    "ngram_suffix": {"draft": (1, 1024), "min_match": (1, 64), "max_match": (3, 1024)},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "low", "high"),
    [(kind, name, *bounds) for kind, names in RANGES.items() for name, bounds in names.items()],
)
def test_row_22_parameters_end_where_they_say(kind: str, name: str, low: int, high: int) -> None:
    for value in (low, high):
        source = Native(make(kind, **{name: value}))
        source.begin([])
        found = source.draft([2**31 - 1] * 40, 5)
        assert found == [2**31 - 1] * len(found)
    for value in (low - 1, high + 1, -(2**31), 2**31 - 1):
        with pytest.raises(ValueError, match="refused"):
            make(kind, **{name: value})


@pytest.mark.parametrize("kind", RANGES)
def test_what_breaks_the_contract_is_refused(kind: str) -> None:
    source = make(kind)
    out, n = ffi.new("int32_t[]", 8), ffi.new("size_t *")

    def draft(tokens: list[int]) -> int:
        return int(lib.lookup_source_draft(source, tokens, len(tokens), out, ffi.NULL, 8, n))

    assert draft([1, 2, -3]) == lib.LOOKUP_E_TOKEN
    assert lib.lookup_source_begin(source, [-1], 1) == lib.LOOKUP_E_TOKEN
    for length in (0, 1, 2, 3, 200):  # row 12
        assert draft([5] * length) == 0
    assert draft([5] * 199) == lib.LOOKUP_E_ARGUMENT
    assert lib.lookup_source_begin(source, [5] * 199, 199) == 0
    assert draft([5] * 199) == 0


# ---- the counters of llama.cpp b11434 on the same tokens

COUNTERS = {
    "n_call_begin": "calls_begin", "n_call_draft": "calls_draft", "n_call_accept": "calls_accept",
    "n_gen_drafts": "gen_drafts", "n_acc_drafts": "acc_drafts", "n_gen_tokens": "gen_tokens",
    "n_acc_tokens": "acc_tokens", "n_decode": "n_decode",
}  # fmt: skip


def golden_rows() -> list[dict[str, Any]]:
    lines = (GOLDEN / "other-sources.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def row_name(row: dict[str, Any]) -> str:
    sizes = "-".join(map(str, row["params"].values()))
    return f"{row['spec_type']}-{sizes}-{row['state']}-{row['n_prompt']}"


@pytest.fixture(scope="module")
def wiki_test() -> np.ndarray:
    packed = (GOLDEN / "wiki.test.smollm2.u16.zst").read_bytes()
    ids = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    return np.frombuffer(ids, dtype="<u2").astype(np.int32)


@pytest.mark.parametrize("row", golden_rows(), ids=row_name)
def test_counters_equal_llama_cpp(row: dict[str, Any], wiki_test: np.ndarray) -> None:
    kind, params = row["spec_type"].replace("-", "_"), dict(row["params"])
    if kind.startswith("ngram_map"):
        params |= {"k4v": int(kind.endswith("k4v")), "compat": 1}
        kind = "ngram_map"
    tokens, stats, source = (
        ffi.from_buffer("int32_t[]", wiki_test),
        ffi.new("lookup_replay_stats *"),
        None,
    )
    n_ctx, n_prompt, draft_max = row["n_ctx"], row["n_prompt"], row["draft_max"]
    for start in range(0, len(wiki_test) - n_ctx, n_ctx):
        if source is None or row["state"] == "fresh":
            source = make(kind, **params)
        chunk = tokens + start
        assert lib.lookup_replay_chunk(source, chunk, n_ctx, n_prompt, draft_max, stats) == 0
    found = {name: getattr(stats, ours) for name, ours in COUNTERS.items()}
    assert found == {name: row[name] for name in COUNTERS}
