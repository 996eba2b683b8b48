"""Several requests in lock step: equal to drafters that are asked in turn, one batch a step."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import random_stream, run, write_counts

import lookup_tools as lt
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.errors import ParameterError

CURVE = CostCurve.of([(1, 1.0), (2, 1.2), (4, 1.5), (8, 3.0), (40, 20.0)])
SPECS = [
    lt.SourceSpec("ngram-cache"),
    lt.SourceSpec("ngram-simple", {"size_n": 2, "size_m": 5}),
    lt.SourceSpec("ngram-suffix", {"min_match": 2}),
    lt.SourceSpec("ngram-mod,ngram-simple", {"n_match": 2, "n_min": 1, "size_n": 1}),
]


def stream(seed: int, n: int = 3000) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(random_stream(random.Random(seed), n, 30), np.int32)


class Lane:
    """One request of the dull model: a Drafter and the chunk it is at."""

    def __init__(self, drafter: lt.Drafter) -> None:
        self.drafter, self.text, self.known = drafter, [], 0

    def begin(self, text: list[int], prompt: int) -> None:
        self.text, self.known = text, prompt + 1
        self.drafter.begin(text[:prompt])
        self.drafter.accept(text[prompt : prompt + 1])

    def step(self, draft: list[int]) -> int:
        right = 0
        while (
            right < len(draft)
            and self.known + right < len(self.text)
            and draft[right] == self.text[self.known + right]
        ):
            right += 1
        end = min(self.known + right + 1, len(self.text))
        self.drafter.accept(self.text[self.known : end])
        self.known = end
        return right


def dull(
    tokens: list[int], spec: lt.SourceSpec, n: int, n_ctx: int, prompt: int, draft_max: int
) -> tuple[float, int, int]:
    """Speedup, drafted, accepted."""
    waiting = [tokens[k * n_ctx : (k + 1) * n_ctx] for k in range(len(tokens) // n_ctx)]
    table = lt.DynamicTable(None) if "ngram-cache" in spec.kinds else None
    lanes = [
        Lane(lt.Drafter(None, table, spec.spec_type, draft_max, **spec.params)) for _ in range(n)
    ]
    for lane in lanes:
        lane.begin(waiting.pop(0), prompt)
    spent, produced, drafted, accepted = 0.0, 0, 0, 0
    while True:
        drafts = [lane.drafter.draft().tolist() for lane in lanes]
        before = sum(lane.known for lane in lanes)
        spent += CURVE.at(n + sum(map(len, drafts)))
        drafted += sum(map(len, drafts))
        accepted += sum(lane.step(draft) for lane, draft in zip(lanes, drafts, strict=True))
        produced += sum(lane.known for lane in lanes) - before
        for lane in lanes:
            if lane.known < n_ctx:
                continue
            if table is not None:
                learn(table, lane.text)
            if not waiting:
                return produced / n * CURVE.at(n) / spent, drafted, accepted
            lane.begin(waiting.pop(0), prompt)


def learn(table: lt.DynamicTable, text: list[int]) -> None:
    from lookup_tools._native import check, i32, lib

    check(lib.lookup_table_update(table.handle, i32(np.array(text, np.int32)), len(text)))
    lib.lookup_table_end_stream(table.handle)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.spec_type)
@pytest.mark.parametrize(("n", "prompt"), [(1, 0), (2, 7), (5, 0), (30, 97)])
def test_requests_equal_drafters_asked_in_turn(spec: lt.SourceSpec, n: int, prompt: int) -> None:
    tokens = stream(n)
    options = lt.ReplayOptions(100, 6, prompt, curve=CURVE, requests=(n,))
    found = lt.replay(tokens, [spec], options=options).sources[0].requests
    expected = dull(tokens.tolist(), spec, n, 100, prompt, 6)
    assert [each.n for each in found] == [n]
    assert (found[0].n_drafted, found[0].n_accept) == expected[1:]
    assert found[0].speedup == pytest.approx(expected[0])


def test_one_request_is_the_replay_itself() -> None:
    options = lt.ReplayOptions(100, 6, state="shared", curve=CURVE, requests=(1,))
    for source in lt.replay(stream(1), SPECS, options=options).sources:
        (alone,) = source.requests
        assert (alone.n_drafted, alone.n_accept) == (source.n_drafted, source.n_accept)


@pytest.mark.parametrize("n", [0, 31])
def test_as_many_requests_as_there_are_chunks(n: int) -> None:
    with pytest.raises(ParameterError, match=f"found {n} requests for 30 chunks, expected 1 to 30"):
        lt.replay(stream(1), options=lt.ReplayOptions(100, requests=(n,)))


def test_the_command_reports_them(tmp_path: Path) -> None:
    stream(3).astype("<u2").tofile(tmp_path / "t.u16")
    write_counts(tmp_path / "c", {(1, 2): {3: 4}})
    common = ["--tokens", tmp_path / "t.u16", "-c", 100, "-lcs", tmp_path / "c"]
    text = run("stats", *common, "--requests", "1,4").stdout
    assert "requests 4    = speedup" in text
    run("stats", *common, "--requests", "1,4", "--csv", tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert [each["n"] for each in json.loads(row["requests"])] == [1, 4]
    body = json.loads(run("stats", *common, "--requests", "1,4", "--json", "-").stdout)
    assert [each["n"] for each in body["sources"][0]["requests"]] == [1, 4]
    assert set(body["sources"][0]["requests"][0]) == {"n", "speedup", "n_drafted", "n_accept"}
    for bad in ("0", "4,x", "-1", ","):
        assert (
            "expected numbers of requests"
            in run("stats", *common, "--requests", bad, code=2).stderr
        )
