"""ngram-adaptive: drafts what pays, shares a batch, keeps what it learned."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from helpers import random_stream

import lookup_tools as lt
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.drafting.drafter import draft_together
from lookup_tools.drafting.group import AdaptiveGroup
from lookup_tools.errors import FormatError, ParameterError, TokenizerMismatchError
from lookup_tools.evaluation.verify_cost import project
from lookup_tools.evaluation.verify_cost_files import read_cost

DEAR = CostCurve.of([(1, 1.0), (64, 64.0)])  # a token in a batch costs what a step of its own does
VOCABULARY = "ab" * 32


def copying(seed: int, n: int = 6000) -> list[int]:
    """Pieces of new tokens, each said three times."""
    rng = random.Random(seed)
    tokens: list[int] = []
    while len(tokens) < n:
        tokens += [rng.randrange(2000) for _ in range(40)] * 3
    return tokens[:n]


def speedup(tokens: list[int], curve: CostCurve, n_ctx: int = 1500, most: int = 16) -> float:
    options = lt.ReplayOptions(n_ctx=n_ctx, draft_max=most, curve=curve)
    ids = np.array(tokens, np.int32)
    source = lt.replay(ids, [lt.SourceSpec("ngram-adaptive")], options=options).sources[0]
    return project(source, curve).speedup


def told(group: AdaptiveGroup, tokens: list[int]) -> None:
    """Let a member say a whole text, token by token."""
    with lt.Drafter(group=group) as drafter:
        for token in tokens:
            drafter.draft()
            drafter.accept([token])
        drafter.end()


# ---- what pays


@pytest.mark.parametrize("curve", ["dense", "moe", "1:1,2:1.77,4:2.94,9:5.83,17:10.3", "1:1,2:2"])
@pytest.mark.parametrize("kind", ["random", "few tokens", "one token", "shuffled", "copies"])
@pytest.mark.parametrize("n_ctx", [512, 3000])
def test_no_text_gets_slower(curve: str, kind: str, n_ctx: int) -> None:
    rng = random.Random(kind)
    tokens = {
        "random": [rng.randrange(40_000) for _ in range(6000)],
        "few tokens": [rng.randrange(5) for _ in range(6000)],
        "one token": [7] * 6000,
        "shuffled": rng.sample(copying(2), 6000),
        "copies": copying(3),
    }[kind]
    assert speedup(tokens, read_cost(curve), n_ctx) >= 0.995


def test_copies_pay_where_batches_are_cheap_and_nothing_where_they_are_not() -> None:
    text = copying(1)
    assert speedup(text, read_cost("dense")) > 2
    assert speedup(text, read_cost("moe")) > 1.2
    assert speedup(text, DEAR) == pytest.approx(1, abs=0.001)


def test_a_changed_curve_changes_the_next_draft() -> None:
    text = copying(4, 2400)
    with lt.Drafter(curve=CostCurve.of([(1, 1.0), (64, 1.01)])) as drafter:
        drafter.begin(text[:2310])  # in the last repetition of a piece
        assert len(drafter.draft()) > 8
        drafter.set_curve(DEAR)
        assert len(drafter.draft()) == 0


def test_what_ended_is_an_earlier_text_for_the_next() -> None:
    piece = random_stream(random.Random(5), 300, 5000)
    for end in (True, False):
        with lt.Drafter(curve=CostCurve.of([(1, 1.0), (64, 1.01)])) as drafter:
            for _ in range(3):
                for token in piece:
                    drafter.draft()
                    drafter.accept([token])
                if end:
                    drafter.end()
                else:
                    drafter.begin([])
            drafter.begin(piece[:100])
            right = drafter.draft().tolist()
            assert right
            assert (right == piece[100 : 100 + len(right)]) == end


# ---- several requests


def test_one_member_of_a_group_is_the_source_itself() -> None:
    text = copying(6, 1500)
    with lt.Drafter() as alone, lt.Drafter(group=AdaptiveGroup()) as member:
        for token in text:
            [together] = draft_together([member])
            assert alone.draft().tolist() == together.tolist()
            assert alone.accept([token]) == member.accept([token])


def test_members_share_one_batch() -> None:
    """Alone each drafts more than its share of a batch that many take part in."""
    group = AdaptiveGroup(curve=read_cost("moe"))
    texts = [copying(seed, 2350) for seed in range(8)]
    drafters = [lt.Drafter(group=group) for _ in texts]
    try:
        for drafter, text in zip(drafters, texts, strict=True):
            drafter.begin(text)
        alone = [len(draft_together([drafter])[0]) for drafter in drafters]
        shared = draft_together(drafters)
        few = draft_together(drafters, [0, 1, *[16] * 6])
        assert sum(map(len, shared)) <= sum(alone)
        assert (len(few[0]), len(few[1]) <= 1) == (0, True)
        assert all(len(draft) <= 16 for draft in shared)
    finally:
        for drafter in drafters:
            drafter.close()
    with lt.Drafter() as stranger, pytest.raises(ParameterError, match="without one group"):
        draft_together([stranger, stranger, lt.Drafter(group=group)])


# ---- what was learned


def test_what_was_learned_is_kept_in_a_file(tmp_path: Path) -> None:
    group, text = AdaptiveGroup(), copying(7)
    told(group, text[:3000])
    group.save(tmp_path / "learned", vocabulary=VOCABULARY)
    drafts = []
    for _ in range(2):
        again = AdaptiveGroup(learned=tmp_path / "learned", vocabulary=VOCABULARY)
        assert again.state(vocabulary=VOCABULARY) == (tmp_path / "learned").read_bytes()
        with lt.Drafter(group=again) as drafter:
            drafter.begin(text[3000:3100])
            drafts.append(drafter.draft().tolist())
    assert drafts[0] == drafts[1]
    with pytest.raises(TokenizerMismatchError, match="another vocabulary"):
        AdaptiveGroup(learned=tmp_path / "learned", vocabulary="cd" * 32)
    with pytest.raises(ParameterError):
        group.save(tmp_path / "learned")


def test_damaged_files_of_what_was_learned_are_refused(tmp_path: Path) -> None:
    group = AdaptiveGroup()
    told(group, copying(8, 600))
    whole = group.state(prior=True)
    file = tmp_path / "learned"
    rng = random.Random(1)
    damaged = [whole[:n] for n in (0, 1, 7, 8, 40, len(whole) // 2, len(whole) - 1)]
    damaged.append(whole + b"\0")
    for at in [*range(64), *(rng.randrange(len(whole)) for _ in range(200))]:
        damaged.append(whole[:at] + bytes([whole[at] ^ (1 + rng.randrange(255))]) + whole[at + 1 :])
    for data in damaged:
        file.write_bytes(data)
        with pytest.raises(FormatError):
            AdaptiveGroup(learned=file)


def test_calibration_counts_what_was_drafted() -> None:
    group = AdaptiveGroup()
    told(group, copying(9))
    found = group.calibration()
    assert sum(each.n for each in found.bins) > 1000
    assert found.mean_gap < 0.15
    for each in found.bins:
        assert 0 <= each.found <= 1
        assert not each.n or each.low <= each.predicted <= each.low + 0.1
