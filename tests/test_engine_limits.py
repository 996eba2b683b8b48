"""What a draft must respect in an engine: no engine and no torch needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookup_tools import Drafter
from lookup_tools.engine.limits import Limits
from lookup_tools.engine.restrictions import Restrictions
from lookup_tools.engine.transformers import LookupCandidateGenerator
from lookup_tools.errors import EngineError, ParameterError

HISTORY = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]


def drafted(limits: Limits, history: list[int] = HISTORY) -> np.ndarray[Any, Any]:
    """What a drafter says after `history`, which is [4, 5, 6, 7, 8, 9, 1, 2] after HISTORY."""
    with Drafter(spec_type="ngram-suffix", n_draft=8, draft=8) as drafter:
        drafter.begin(history)
        return limits.crop(drafter.draft(limits.room(len(history))))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), [4, 5, 6, 7, 8, 9, 1, 2]),
        (Limits(max_length=1000), [4, 5, 6, 7, 8, 9, 1, 2]),
        (Limits(max_length=len(HISTORY) + 3), [4, 5]),
        (Limits(max_length=len(HISTORY) + 2), [4]),
        (Limits(max_length=len(HISTORY) + 1), []),
        (Limits(max_length=len(HISTORY)), []),
        (Limits(max_length=3), []),
        (Limits(refused=frozenset({6})), [4, 5]),
        (Limits(refused=frozenset({8, 7, 100})), [4, 5, 6]),
        (Limits(refused=frozenset({4})), []),
        (Limits(vocab_size=8), [4, 5, 6, 7]),
        (Limits(max_length=len(HISTORY) + 4, refused=frozenset({5}), vocab_size=6), [4]),
    ],
)
def test_drafts_within_limits(limits: Limits, expected: list[int]) -> None:
    found = drafted(limits)
    assert found.dtype == np.int32
    assert found.tolist() == expected


def test_nothing_to_draft_is_an_empty_array() -> None:
    found = drafted(Limits(), [1, 2, 3, 4])
    assert found.dtype == np.int32
    assert found.shape == (0,)


@pytest.mark.parametrize(
    ("eos", "expected"), [(None, set()), (7, {7}), ([7, 9], {7, 9}), (np.array([7, 9]), {7, 9})]
)
def test_ends_are_none_one_or_several(eos: Any, expected: set[int]) -> None:
    assert Restrictions(eos_token_id=eos).limits.refused == expected


def test_processors_need_the_vocabulary() -> None:
    with pytest.raises(ParameterError, match="expected vocab_size"):
        Restrictions(logits_processor=[object()])


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_package_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = {"torch", "transformers"} - {missing}
    for name in others:
        monkeypatch.setitem(sys.modules, name, object())
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(EngineError, match=rf"found no {missing}, .* lookup-tools\[transformers\]"):
        LookupCandidateGenerator(static=tmp_path / "nothing.lcs")
