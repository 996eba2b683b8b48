"""The whole of it against dull models: files as dicts, drafts as forty lines of rules."""

from __future__ import annotations

import inspect
import random
import shutil
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import oracles
import pytest
from helpers import (
    FORMATS,
    Counts,
    add,
    cache_drafter,
    count_documents,
    counts_of,
    create_from,
    prune,
    random_counts,
    random_stream,
    read_counts,
    write_counts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from oracles import Thresholds

from lookup_tools import merge_caches, open_cache, update_cache, verify_cache
from lookup_tools.building.merge import MergeOptions
from lookup_tools.cache import Cache
from lookup_tools.counting.counts import Prune
from lookup_tools.errors import ClosedError, FormatError, ParameterError

VOCABULARY = 4
NAMES = ("a", "b", "c")
names_of_files = st.sampled_from(NAMES)
some_file = st.integers(0, 5)  # of those that exist
formats = st.sampled_from(FORMATS)
token = st.integers(0, VOCABULARY - 1)
stream = st.lists(token, max_size=14)
prompt = st.builds(
    lambda seed, n: random_stream(random.Random(seed), n, VOCABULARY),
    st.integers(0, 2**32),
    st.integers(0, 30),
)
prunings = st.sampled_from([(1, 0), (1, 0), (2, 0), (1, 1), (2, 2)])


def fits(counts: Counts, fmt: str) -> bool:
    """Whether a format can hold the counts: constmaps have 2-grams, and an empty legacy file has no
    bytes, which nobody takes for a cache."""
    return bool(counts) if fmt == "legacy" else all(len(ngram) == 2 for ngram in counts)


class Saved(NamedTuple):
    """What a file on the disk holds; `listed`: its keys stand in it, or can be found again."""

    counts: Counts
    listed: bool = True


def recoverable(counts: Counts) -> bool:
    """Whether all keys are pairs of ids up to the largest follower."""
    largest = max((token for followers in counts.values() for token in followers), default=0)
    return all(max(ngram) <= largest for ngram in counts)


class Opened(NamedTuple):
    cache: Cache
    counts: Counts


class Drafting:
    """A drafter, and what it should know."""

    def __init__(self, static: Opened | None, dynamic: Opened | None, n_draft: int) -> None:
        self.held = static.cache if static else None
        self.static = two_grams(static.counts) if static else {}
        self.dynamic = dynamic.counts if dynamic else {}
        self.n_draft = n_draft
        self.history: list[int] = []
        self.drafter = cache_drafter(
            static.cache if static else None, dynamic.cache if dynamic else None, n_draft=n_draft
        )

    def expected(self, limit: int | None) -> list[int]:
        room = self.n_draft if limit is None else max(0, min(limit, self.n_draft))
        context: Counts = {}
        oracles.count_into(context, self.history)
        rules = oracles.draft(self.history, context, self.dynamic, self.static, Thresholds(), room)
        return [token for token, _ in rules]


def two_grams(counts: Counts) -> Counts:
    return {ngram: followers for ngram, followers in counts.items() if len(ngram) == 2}


class Machine(RuleBasedStateMachine):
    """Three names on a disk, any number of open caches and drafters on them. Files are created,
    merged, pruned, converted and updated, over each other and under their readers."""

    caches = Bundle("caches")
    drafters = Bundle("drafters")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.files: dict[str, Saved] = {}
        self.in_use: dict[int, int] = {}  # by id of a cache: its drafters
        self.drafts: list[Drafting] = []
        self.all_caches: list[Cache] = []

    @initialize(seed=st.integers(0, 2**32), fmt=formats)
    def begin(self, seed: int, fmt: str) -> None:
        """Two files to begin with."""
        rng = random.Random(seed)
        documents = [random_stream(rng, 40, VOCABULARY) for _ in range(2)]
        self.create("a", documents, fmt, "static", (1, 0), True)
        self.create("b", documents, "legacy", "dynamic", (1, 0), True)

    def existing(self, number: int) -> str:
        """One of the files that are there."""
        return sorted(self.files)[number % len(self.files)]

    # ---- files

    @rule(
        name=names_of_files,
        documents=st.lists(stream, max_size=4),
        fmt=formats,
        kind=st.sampled_from(["static", "dynamic"]),
        pruning=prunings,
        annex=st.booleans(),
    )
    def create(
        self,
        name: str,
        documents: list[list[int]],
        fmt: str,
        kind: str,
        pruning: tuple[int, int],
        annex: bool,
    ) -> None:
        orders = (2,) if kind == "static" else (1, 2, 3, 4)
        made = prune(count_documents(documents, orders), *pruning)
        options: dict[str, Any] = {"kind": kind, "fmt": fmt, "prune": Prune(*pruning)}
        if kind == "dynamic" and fmt != "legacy":
            with pytest.raises(ParameterError):
                create_from(self.folder / name, documents, annex=annex, **options)
        elif sum(map(len, documents)) and fits(made, fmt):
            create_from(self.folder / name, documents, annex=annex, **options)
            self.files[name] = Saved(made, annex or fmt != "constmap" or recoverable(made))

    @rule(
        numbers=st.lists(some_file, min_size=1, max_size=3),
        onto=names_of_files,
        fmt=formats,
        weights=st.lists(st.sampled_from([Fraction(1), Fraction(2), Fraction(1, 2)]), min_size=3),
        pruning=prunings,
        annex=st.booleans(),
    )
    def merge(
        self,
        numbers: list[int],
        onto: str,
        fmt: str,
        weights: list[Fraction],
        pruning: tuple[int, int],
        annex: bool,
    ) -> None:
        """Of one source it is a conversion; onto one of its sources it is a refresh."""
        sources = [self.existing(number) for number in numbers]
        weights = weights[: len(sources)]
        known = [self.files[name] for name in sources]
        made = prune(add(*(each.counts for each in known), weights=weights), *pruning)
        options = MergeOptions(
            fmt=fmt, weights=tuple(weights), prune=Prune(*pruning), annex=annex,
            threads=1, force=True,
        )  # type: ignore[arg-type]  # fmt: skip
        paths = [self.folder / name for name in sources]
        if not all(each.listed for each in known):
            with pytest.raises(FormatError, match="expected all of them"):
                merge_caches(paths, self.folder / onto, options)
        elif fmt != "legacy" and any(len(n) != 2 for each in known for n in each.counts):
            with pytest.raises(ParameterError, match="2-grams"):
                merge_caches(paths, self.folder / onto, options)
        elif fits(made, fmt):
            merge_caches(paths, self.folder / onto, options)
            self.files[onto] = Saved(made, annex or fmt != "constmap" or recoverable(made))

    @rule(old_number=some_file, new_number=some_file)
    def update(self, old_number: int, new_number: int) -> None:
        """The same as a merge onto the file, whose format is kept."""
        live, new = self.existing(old_number), self.existing(new_number)
        both = [self.files[live], self.files[new]]
        if live == new or not all(each.counts and each.listed for each in both):
            return
        old, more = self.files[live].counts, self.files[new].counts
        with open_cache(self.folder / live) as cache:
            fmt = cache.format
        made = add(old, more)
        if not fits(made, fmt):
            with pytest.raises(ParameterError, match="2-grams"):
                update_cache(self.folder / live, [self.folder / new], MergeOptions(threads=1))
            return
        update_cache(self.folder / live, [self.folder / new], MergeOptions(threads=1))
        self.files[live] = Saved(made)

    # ---- open caches

    @rule(target=caches, number=some_file, load=st.sampled_from(["mmap", "read"]))
    def open(self, number: int, load: str) -> Opened:
        name = self.existing(number)
        cache = open_cache(self.folder / name, load=load)  # type: ignore[arg-type]
        self.all_caches.append(cache)
        return Opened(cache, self.files[name].counts)

    @rule(opened=caches, ngram=st.lists(token, min_size=1, max_size=4))
    def look_up(self, opened: Opened, ngram: list[int]) -> None:
        if opened.cache.closed:
            with pytest.raises(ClosedError):
                opened.cache.followers(ngram)
        else:
            found = opened.cache.followers(ngram)
            assert dict(found.tolist()) == opened.counts.get(tuple(ngram), {})

    @rule(opened=caches)
    def verify(self, opened: Opened) -> None:
        if not opened.cache.closed and getattr(opened.cache, "has_keys", True):
            verify_cache(opened.cache)
            assert counts_of(opened.cache) == opened.counts

    @rule(opened=caches)
    def close(self, opened: Opened) -> None:
        if self.in_use.get(id(opened.cache)):
            with pytest.raises(ClosedError, match="still using"):
                opened.cache.close()
            assert not opened.cache.closed
        else:
            opened.cache.close()
            assert opened.cache.closed

    # ---- drafters

    @rule(
        target=drafters,
        static=st.none() | caches,
        dynamic=st.none() | caches,
        n_draft=st.integers(1, 6),
    )
    def new_drafter(self, static: Opened | None, dynamic: Opened | None, n_draft: int) -> Any:
        closed = [each for each in (static, dynamic) if each and each.cache.closed]
        keyless = dynamic is not None and not getattr(dynamic.cache, "has_keys", True)
        if closed or keyless:
            with pytest.raises((ClosedError, FormatError)):
                Drafting(static, dynamic, n_draft)
            return multiple()
        made = Drafting(static, dynamic, n_draft)
        self.drafts.append(made)
        if static:
            self.in_use[id(static.cache)] = self.in_use.get(id(static.cache), 0) + 1
        return made

    @rule(drafting=drafters, text=prompt)
    def begin_prompt(self, drafting: Drafting, text: list[int]) -> None:
        """The text is said token by token."""
        drafting.drafter.begin(text[:3])
        drafting.history = text[:3]
        for following in text[3:]:
            self.draft_and_accept(drafting, None, [following])

    @rule(drafting=drafters, limit=st.none() | st.integers(-1, 8), said=stream)
    def draft_and_accept(self, drafting: Drafting, limit: int | None, said: list[int]) -> None:
        expected = drafting.expected(limit)
        assert drafting.drafter.draft(limit).tolist() == expected
        if len(said) % 2 == 0:  # half of the time some of the draft comes true
            said = expected[: 1 + len(said) // 2] + said
        assert drafting.drafter.accept(said) == common_prefix(expected, said)
        drafting.history = drafting.history + said

    @rule(drafting=drafters, kept=st.integers(0, 30), more=stream)
    def follow(self, drafting: Drafting, kept: int, more: list[int]) -> None:
        """Any other history: longer, shorter, another end, another text."""
        history = drafting.history[:kept] + more
        assert drafting.drafter.follow(history) == common_prefix(drafting.history, history)
        drafting.history = history
        assert drafting.drafter.tokens.tolist() == history

    @rule(drafting=consumes(drafters))
    def close_drafter(self, drafting: Drafting) -> None:
        drafting.drafter.close()
        with pytest.raises(ClosedError):
            drafting.drafter.draft()
        if drafting.held is not None:
            self.in_use[id(drafting.held)] -= 1

    # ---- always

    @invariant()
    def the_files_are_what_was_saved(self) -> None:
        for name, saved in self.files.items():
            if saved.listed:
                assert read_counts(self.folder / name) == saved.counts
        left = {path.name for path in self.folder.iterdir()}
        assert left <= {*NAMES, *(f"{name}.meta.json" for name in NAMES)}

    def teardown(self) -> None:
        for drafting in self.drafts:
            drafting.drafter.close()
        for cache in self.all_caches:
            cache.close()
        shutil.rmtree(self.folder)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def common_prefix(a: list[int], b: list[int]) -> int:
    return next(
        (k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


# ---- the drafter


def test_the_rules_take_forty_lines() -> None:
    """What the drafter is compared with can be read in one go."""
    functions = (oracles.count_into, oracles.try_tier, oracles.draft)
    lines = [line for each in functions for line in inspect.getsource(each).splitlines()]
    assert len([line for line in lines if line.strip()]) <= 43  # three of them docstrings


def thresholds(rng: random.Random) -> Thresholds:
    """The defaults, or anything that is allowed."""
    if rng.random() < 0.3:
        return Thresholds()

    def four(low: int, high: int) -> tuple[int, int, int, int]:
        return tuple(rng.randint(low, high) for _ in range(4))  # type: ignore[return-value]

    return Thresholds(
        four(1, 4), four(0, 100), four(1, 4), four(0, 100), rng.randint(1, 4), rng.randint(0, 100)
    )


@given(
    seed=st.integers(0, 2**32),
    vocab=st.integers(1, 6),
    n_draft=st.integers(1, 10),
    static_format=st.sampled_from([None, *FORMATS]),
    dynamic=st.booleans(),
)
@settings(max_examples=150)
def test_every_draft_is_what_the_rules_say(
    tmp_path: Path, seed: int, vocab: int, n_draft: int, static_format: str | None, dynamic: bool
) -> None:
    """Random streams over few tokens, where ties abound; any thresholds, lengths and budgets;
    prompts that come and go, answers that follow the draft or do not, histories that are cut."""
    rng = random.Random(seed)
    t = thresholds(rng)
    static = random_counts(rng, vocab**2 // 2 + 1, vocab=vocab) if static_format else {}
    learned = count_documents([random_stream(rng, 60, vocab)], (1, 2, 3, 4)) if dynamic else {}
    write_counts(tmp_path / "static", static, static_format or "constmap")
    write_counts(tmp_path / "dynamic", learned or {(0,): {0: 1}}, "legacy")
    with (
        open_cache(tmp_path / "static") as cache,
        open_cache(tmp_path / "dynamic") as more,
        cache_drafter(
            cache if static_format else None,
            more if dynamic else None,
            n_draft=n_draft,
            **t.params(),
        ) as drafter,
    ):
        history: list[int] = []
        for _ in range(25):
            move = rng.random()
            if move < 0.1:
                history = random_stream(rng, rng.randint(0, 12), vocab)
                drafter.begin(history)
            elif move < 0.3:
                history = history[: rng.randint(0, len(history))] + random_stream(rng, 2, vocab)
                drafter.follow(history)
            context: Counts = {}
            oracles.count_into(context, history)
            budget = rng.choice([None, None, 0, 1, 2, 5, 50])
            room = n_draft if budget is None else min(budget, n_draft)
            rules = [y for y, _ in oracles.draft(history, context, learned, static, t, room)]
            assert drafter.draft(budget).tolist() == rules
            said = rules[: rng.randint(0, n_draft)] + random_stream(rng, rng.randint(0, 3), vocab)
            assert drafter.accept(said) == common_prefix(rules, said)
            history = history + said
            assert drafter.tokens.tolist() == history
