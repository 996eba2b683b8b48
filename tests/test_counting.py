"""Counting: equal to a Counter whatever the vocabulary, the batches, the threads and the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers import (
    MAX_COUNT,
    Counts,
    batches_of,
    blocks_of,
    count_documents,
    create_from,
    prune,
    read_counts,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tools.counting.counter import NgramCounter, Seam
from lookup_tools.counting.counts import (
    CountsBlock,
    Layout,
    Prune,
    expand_block,
    group_records,
    sort_records,
)
from lookup_tools.counting.runs import (
    SpillDirectory,
    group_runs,
    merge_runs,
    read_run,
    slices,
    write_run,
)
from lookup_tools.errors import CorpusError, FormatError, LookupToolsError, ParameterError
from lookup_tools.system.workers import worker_pool

MAX_TOKENS = [0, 1, 4, 99, 4094, 4095, 4096, 70_000, 2**21 - 1, 2**31 - 1]


def counted(
    documents: Sequence[Sequence[int]],
    order: int,
    max_token: int,
    *,
    cuts: Sequence[int] = (),
    threads: int = 1,
    memory: int | None = None,
    folder: Path | None = None,
    limits: Prune | None = None,
) -> tuple[list[CountsBlock], int]:
    """Blocks of one order, and how many runs were spilled."""
    with worker_pool(threads) as pool, SpillDirectory(folder) as spill:
        counter = NgramCounter(order, max_token, memory=memory, spill=spill, pool=pool)
        seam = Seam(order)
        for batch in batches_of(documents, cuts):
            counter.add(*seam.join(batch))
        return list(counter.blocks(limits or Prune())), len(counter._runs)


def joined(blocks: Sequence[CountsBlock]) -> tuple[bytes, bytes, bytes]:
    """What blocks hold, without where they were cut."""
    return tuple(  # type: ignore[return-value]
        b"".join(np.ascontiguousarray(getattr(block, name)).tobytes() for block in blocks)
        for name in ("ngrams", "lengths", "entries")
    )


def as_counts(blocks: Sequence[CountsBlock]) -> Counts:
    return {ngram: followers for block in blocks for ngram, followers in block.items()}


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Documents over a few ids spread over 0..max_token, and max_token."""
    max_token = draw(st.sampled_from(MAX_TOKENS))
    pool = [*draw(st.lists(st.integers(0, max_token), min_size=1, max_size=6)), 0, max_token]
    documents = draw(st.lists(st.lists(st.sampled_from(pool), max_size=25), min_size=1, max_size=6))
    return documents, max_token


@given(corpus=corpora(), order=st.integers(1, 4), cuts=st.lists(st.integers(0, 150), max_size=6))
def test_counts_equal_the_rule(
    corpus: tuple[list[list[int]], int], order: int, cuts: list[int]
) -> None:
    documents, max_token = corpus
    blocks, _ = counted(documents, order, max_token, cuts=cuts)
    assert as_counts(blocks) == count_documents(documents, [order])
    assert joined(blocks) == joined(blocks_of(count_documents(documents, [order])) or [])


@settings(max_examples=30)
@given(corpus=corpora(), order=st.integers(1, 4), cuts=st.lists(st.integers(0, 150), max_size=6))
def test_neither_threads_nor_memory_nor_batches_change_them(
    tmp_path: Path, corpus: tuple[list[list[int]], int], order: int, cuts: list[int]
) -> None:
    documents, max_token = corpus
    whole, runs = counted(documents, order, max_token)
    assert runs == 0
    for threads in (1, 2):
        for memory in (None, 1, 200):
            again, runs = counted(
                documents,
                order,
                max_token,
                cuts=cuts,
                threads=threads,
                memory=memory,
                folder=tmp_path,
            )
            assert joined(again) == joined(whole)
            if memory == 1 and whole:
                assert runs > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("vocab", [2, 300, 4096, 50_000])
def test_a_longer_text_equals_a_counter(tmp_path: Path, order: int, vocab: int) -> None:
    rng = np.random.default_rng(order * vocab)
    # squared: some tokens are frequent, most are rare
    ids = (rng.random(30_000) ** 3 * vocab).astype(int).tolist()
    windows = Counter(zip(*(ids[k:] for k in range(order + 1)), strict=False))
    expected: Counts = {}
    for window, n in windows.items():
        expected.setdefault(window[:-1], {})[window[-1]] = n
    plain, _ = counted([ids], order, vocab - 1, cuts=range(0, 30_000, 7_001))
    assert as_counts(plain) == expected
    spilled, runs = counted(
        [ids],
        order,
        vocab - 1,
        cuts=range(0, 30_000, 1_999),
        threads=2,
        memory=60_000,
        folder=tmp_path,
    )
    assert runs > 2
    assert joined(spilled) == joined(plain)


def test_row_16_n_grams_end_with_their_document() -> None:
    """Documents of 0, 1 and 2 tokens among others."""
    documents: list[list[int]] = [[], [1], [1, 2], [], [3, 4, 5], [6], []]
    for order in (1, 2, 3, 4):
        blocks, _ = counted(documents, order, 9)
        assert as_counts(blocks) == count_documents(documents, [order])
    assert as_counts(counted(documents, 1, 9)[0]) == {(1,): {2: 1}, (3,): {4: 1}, (4,): {5: 1}}


@pytest.mark.parametrize("documents", [[[]], [[], []], [[7]], [[7, 7]]])
def test_texts_too_short_for_any_2_gram(documents: list[list[int]]) -> None:
    assert as_counts(counted(documents, 2, 9)[0]) == {}


@pytest.mark.parametrize(
    ("max_token", "token"), [(9, 10), (9, 2**31 - 1), (9, -1), (4095, 4096), (2**21 - 1, 2**21)]
)
def test_an_id_outside_the_vocabulary_is_refused(max_token: int, token: int) -> None:
    for order in (1, 2, 4):
        with pytest.raises(FormatError, match="token id"):
            counted([[0, 1, 2, 3, token, 0, 1]], order, max_token)


@pytest.mark.parametrize("order", [-1, 0, 5])
def test_orders_beyond_4_are_refused(order: int) -> None:
    with pytest.raises(ParameterError):
        Layout.of(order, 100)


@given(
    corpus=corpora(), order=st.integers(1, 3), min_count=st.integers(1, 4), top_k=st.integers(0, 3)
)
def test_pruning_while_counting(
    corpus: tuple[list[list[int]], int], order: int, min_count: int, top_k: int
) -> None:
    documents, max_token = corpus
    blocks, _ = counted(documents, order, max_token, limits=Prune(min_count, top_k))
    assert as_counts(blocks) == prune(count_documents(documents, [order]), min_count, top_k)


@pytest.mark.parametrize(("min_count", "top_k"), [(0, 0), (2**31, 0), (1, -1), (1, 2**31)])
def test_pruning_limits(min_count: int, top_k: int) -> None:
    with pytest.raises(ParameterError):
        Prune(min_count, top_k)
    Prune(MAX_COUNT, MAX_COUNT)


@pytest.mark.parametrize("memory", [None, 1])
def test_counters_can_be_read_twice(tmp_path: Path, memory: int | None) -> None:
    with SpillDirectory(tmp_path) as spill:
        counter = NgramCounter(2, 9, memory=memory, spill=spill)
        seam = Seam(2)
        for batch in batches_of([[1, 2, 3, 1, 2, 4], [1, 2, 3]], [4]):
            counter.add(*seam.join(batch))
        first = joined(list(counter.blocks(Prune(), keep=True)))
        assert joined(list(counter.blocks(Prune()))) == first
    assert first[0]


# ---- counts saturate, and never wrap


@pytest.mark.parametrize("order", [1, 2, 4])
def test_counts_saturate_when_summed(order: int) -> None:
    ngram = tuple(range(1, order + 1))
    block = blocks_of({ngram: {5: MAX_COUNT, 6: 1, 7: MAX_COUNT - 1}})[0]
    layout = Layout.of(order, 9)
    records = np.concatenate([expand_block(layout, block)] * 3)
    sort_records(layout, records)
    grouped, _ = group_records(layout, records, final=True, prune=Prune())
    assert as_counts([grouped]) == {ngram: {5: MAX_COUNT, 6: 3, 7: MAX_COUNT}}


def test_counts_saturate_when_weighted() -> None:
    block = blocks_of({(1, 2): {3: MAX_COUNT, 4: 2}})[0]
    layout = Layout.of(2, 9)
    records = expand_block(layout, block, Fraction(MAX_COUNT, 1))
    grouped, _ = group_records(layout, records, final=True, prune=Prune())
    assert as_counts([grouped]) == {(1, 2): {3: MAX_COUNT, 4: MAX_COUNT}}


@given(
    count=st.integers(1, MAX_COUNT),
    weight=st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=1000),
)
def test_weights_round_half_up_and_never_to_nothing(count: int, weight: Fraction) -> None:
    block = blocks_of({(1, 2): {3: count}})[0]
    layout = Layout.of(2, 9)
    grouped, _ = group_records(
        layout, expand_block(layout, block, weight), final=True, prune=Prune()
    )
    expected = min(MAX_COUNT, max(1, int(count * weight + Fraction(1, 2))))
    assert as_counts([grouped]) == {(1, 2): {3: expected}}


# ---- runs: sorted records on disk and their merge


@given(data=st.data(), order=st.integers(1, 4), size=st.sampled_from([1, 2, 3, 1000]))
def test_runs_merge_to_the_sum(tmp_path: Path, data: st.DataObject, order: int, size: int) -> None:
    token = st.integers(0, 3)
    ngram = st.tuples(*[token] * order)
    followers = st.dictionaries(token, st.integers(1, 9), min_size=1)
    parts = data.draw(st.lists(st.dictionaries(ngram, followers, max_size=12), max_size=5))
    layout = Layout.of(order, 3)
    runs = []
    for k, part in enumerate(parts):
        records = np.concatenate(
            [expand_block(layout, block) for block in blocks_of(part)] or [np.empty(0, np.uint64)]
        )
        if k % 2:
            path = tmp_path / f"run-{k}"
            write_run(path, layout, slices(records, layout, size))
            runs.append(read_run(path, layout))
        else:
            runs.append(slices(records, layout, size))
    total: Counts = {}
    for part in parts:
        for key, added in part.items():
            mine = total.setdefault(key, {})
            for follower, count in added.items():
                mine[follower] = mine.get(follower, 0) + count
    assert as_counts(list(group_runs(merge_runs(runs, layout), layout, Prune()))) == total


def test_a_full_disk_is_noticed_before_writing(tmp_path: Path) -> None:
    with (
        SpillDirectory(tmp_path) as spill,
        pytest.raises(LookupToolsError, match="MiB free, expected at least"),
    ):
        spill.new_run(2**62)
    assert list(tmp_path.iterdir()) == []


def test_spilled_runs_go_when_the_work_fails(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        counted([[1, 2, 3, 4, 99]], 2, 9, cuts=[2, 3, 4], memory=1, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- the whole build


@settings(max_examples=20)
@given(corpus=corpora(), concatenate=st.booleans(), cuts=st.lists(st.integers(0, 100), max_size=4))
def test_a_built_file_holds_the_counts(
    tmp_path: Path, corpus: tuple[list[list[int]], int], concatenate: bool, cuts: list[int]
) -> None:
    documents, _ = corpus
    documents = [[token % 2**21 for token in document] for document in documents]
    if not any(documents):
        with pytest.raises(CorpusError, match="found no tokens"):
            create_from(tmp_path / "c", documents)
        return
    streams = (
        [[token for document in documents for token in document]] if concatenate else documents
    )
    for kind, orders in (("static", [2]), ("dynamic", [1, 2, 3, 4])):
        path = tmp_path / kind
        report = create_from(path, documents, cuts=cuts, kind=kind, concatenate=concatenate)
        expected = count_documents(streams, orders)
        assert read_counts(path) == expected if path.stat().st_size else not expected
        assert report.n_ngrams == len(expected)
        assert report.n_pairs == sum(map(len, expected.values()))
        assert report.n_tokens == sum(map(len, documents))
