"""Merging: an addition of counts, whatever the formats, the order, the threads and the memory."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest
from helpers import (
    FORMATS,
    MAX_COUNT,
    Counts,
    add,
    batches_of,
    create_from,
    legacy_bytes,
    n_pairs,
    prune,
    random_counts,
    random_stream,
    read_counts,
    run,
    write_counts,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tools import merge_caches, open_cache
from lookup_tools.building.merge import MergeOptions, MergeReport
from lookup_tools.counting.counts import Prune
from lookup_tools.errors import FormatError, ParameterError, TokenizerMismatchError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.tokens import TokenInfo

INFO = TokenInfo(100, "a" * 32, "small", ("corpus",))


def merge(inputs: list[Path], output: Path, **options: Any) -> MergeReport:
    return merge_caches(inputs, output, MergeOptions(**{"threads": 1, "force": True, **options}))


def files(folder: Path, parts: list[Counts], formats: list[str]) -> list[Path]:
    paths = []
    for k, (part, fmt) in enumerate(zip(parts, formats, strict=True)):
        paths.append(folder / f"in-{k}")
        write_counts(paths[-1], part, fmt)
    return paths


@st.composite
def parts(draw: st.DrawFn, orders: tuple[int, ...] = (2,)) -> list[Counts]:
    token = st.integers(0, 6)
    ngram = st.one_of(*(st.tuples(*[token] * order) for order in orders))
    followers = st.dictionaries(token, st.integers(1, 20), min_size=1, max_size=4)
    one = st.dictionaries(ngram, followers, min_size=1, max_size=15)
    return draw(st.lists(one, min_size=1, max_size=4))


# ---- sums


@settings(max_examples=40)
@given(
    made=parts(),
    formats=st.lists(st.sampled_from(FORMATS), min_size=4, max_size=4),
    out=st.sampled_from(FORMATS),
)
def test_any_mix_of_formats_is_summed(
    tmp_path: Path, made: list[Counts], formats: list[str], out: str
) -> None:
    inputs = files(tmp_path, made, formats[: len(made)])
    report = merge(inputs, tmp_path / "out", fmt=out)
    expected = add(*made)
    assert read_counts(tmp_path / "out") == expected
    assert (report.n_ngrams, report.n_pairs) == (len(expected), n_pairs(expected))
    assert [(each.n_ngrams, each.n_pairs) for each in report.inputs] == [
        (len(p), n_pairs(p)) for p in made
    ]
    assert report.file_bytes == (tmp_path / "out").stat().st_size


@settings(max_examples=25)
@given(made=parts(orders=(1, 2, 3, 4)))
def test_all_orders_are_summed(tmp_path: Path, made: list[Counts]) -> None:
    merge(files(tmp_path, made, ["legacy"] * len(made)), tmp_path / "out")
    assert read_counts(tmp_path / "out") == add(*made)


@pytest.mark.parametrize("fmt", FORMATS)
def test_merging_is_commutative_to_the_byte(tmp_path: Path, fmt: str) -> None:
    rng = random.Random(2)
    streams = [random_stream(rng, 400, 30) for _ in range(3)]
    inputs = [tmp_path / name for name in "abc"]
    for path, stream, kind in zip(inputs, streams, FORMATS, strict=True):
        create_from(path, [stream], TokenInfo(100, "a" * 32, "small", (path.name,)), fmt=kind)
    outputs = set()
    for k, order in enumerate(permutations(inputs)):
        merge(list(order), tmp_path / f"out-{k}", fmt=fmt)
        outputs.add((tmp_path / f"out-{k}").read_bytes())
    assert len(outputs) == 1


def test_merging_is_associative(tmp_path: Path) -> None:
    made = [random_counts(random.Random(seed), 60, vocab=9) for seed in range(3)]
    a, b, c = files(tmp_path, made, ["constmap", "legacy", "constmap2"])
    merge([a, b], tmp_path / "ab")
    merge([tmp_path / "ab", c], tmp_path / "left")
    merge([b, c], tmp_path / "bc")
    merge([a, tmp_path / "bc"], tmp_path / "right")
    assert read_counts(tmp_path / "left") == read_counts(tmp_path / "right") == add(*made)


@pytest.mark.parametrize("fmt", FORMATS[1:])
def test_an_empty_cache_changes_nothing(tmp_path: Path, fmt: str) -> None:
    made = random_counts(random.Random(5), 50)
    a, empty = files(tmp_path, [made, {}], ["constmap", fmt])
    for inputs in ([a, empty], [empty, a]):
        merge(inputs, tmp_path / "out")
        assert read_counts(tmp_path / "out") == made
    merge([empty, empty], tmp_path / "none")
    assert read_counts(tmp_path / "none") == {}


@pytest.mark.parametrize("fmt", FORMATS)
def test_row_07_a_file_merged_with_itself_doubles_its_counts(tmp_path: Path, fmt: str) -> None:
    """The same keys on both sides are added, neither dropped nor a reason to hang."""
    made = random_counts(random.Random(7), 80)
    (path,) = files(tmp_path, [made], [fmt])
    merge([path, path], tmp_path / "out")
    assert read_counts(tmp_path / "out") == add(made, made)


def test_counts_saturate(tmp_path: Path) -> None:
    made: Counts = {(1, 2): {3: MAX_COUNT, 4: 2**30}}
    for fmt in FORMATS:
        (path,) = files(tmp_path, [made], [fmt])
        merge([path] * 3, tmp_path / "out")
        assert read_counts(tmp_path / "out") == {(1, 2): {3: MAX_COUNT, 4: MAX_COUNT}}


def test_the_largest_id_may_stand_in_a_key(tmp_path: Path) -> None:
    """The first token of a text follows nothing."""
    made: Counts = {(9, 0): {0: 1}, (0, 0): {0: 2}}
    for fmt in FORMATS:
        (path,) = files(tmp_path, [made], [fmt])
        merge([path, path], tmp_path / "out")
        assert read_counts(tmp_path / "out") == add(made, made)


def test_ids_of_any_size(tmp_path: Path) -> None:
    big = 2**31 - 1
    made: Counts = {(big, big): {big: 1}, (0, big): {0: 1, big: 2}, (big, 0): {big - 1: 3}}
    for fmt in FORMATS:
        (path,) = files(tmp_path, [made], [fmt])
        merge([path, path], tmp_path / "out")
        assert read_counts(tmp_path / "out") == add(made, made)


# ---- against building in one go


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    n=st.lists(st.integers(1, 200), min_size=2, max_size=4),
    kind=st.sampled_from(["static", "dynamic"]),
)
def test_merged_parts_equal_the_whole(tmp_path: Path, seed: int, n: list[int], kind: str) -> None:
    """create(A + B as two documents) = merge(create(A), create(B)), byte for byte."""
    rng = random.Random(seed)
    documents = [random_stream(rng, size + 4, 12) for size in n]
    create_from(tmp_path / "whole", documents, INFO, kind=kind)
    inputs = []
    for k, document in enumerate(documents):
        inputs.append(tmp_path / f"part-{k}")
        create_from(inputs[-1], [document], INFO, kind=kind)
    merge(inputs, tmp_path / "merged")
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("via", FORMATS)
def test_conversions_come_back(tmp_path: Path, via: str) -> None:
    made = random_counts(random.Random(8), 300, vocab=80)
    write_counts(
        tmp_path / "a", made, "legacy", CacheMeta(vocab_size=80, fingerprint="f", tokenizer="t")
    )
    merge([tmp_path / "a"], tmp_path / "b", fmt=via)
    merge([tmp_path / "b"], tmp_path / "c", fmt="legacy")
    assert (tmp_path / "c").read_bytes() == (tmp_path / "a").read_bytes()
    assert read_counts(tmp_path / "b") == made


# ---- weights and limits


@settings(max_examples=40)
@given(
    made=parts(),
    weights=st.lists(st.fractions(Fraction(1, 50), 50, max_denominator=50), min_size=4, max_size=4),
    formats=st.lists(st.sampled_from(FORMATS), min_size=4, max_size=4),
)
def test_weights(
    tmp_path: Path, made: list[Counts], weights: list[Fraction], formats: list[str]
) -> None:
    """Rational, rounded half up, never below 1, input by input."""
    weights = weights[: len(made)]
    merge(files(tmp_path, made, formats[: len(made)]), tmp_path / "out", weights=tuple(weights))
    assert read_counts(tmp_path / "out") == add(*made, weights=weights)


@pytest.mark.parametrize("weights", [(1,), (1, 1, 1)])
def test_a_weight_for_each_input(tmp_path: Path, weights: tuple[int, ...]) -> None:
    inputs = files(tmp_path, [{(1, 2): {3: 1}}] * 2, ["legacy", "constmap"])
    with pytest.raises(
        ParameterError, match=f"found {len(weights)} weights, expected one for each of the 2 inputs"
    ):
        merge(inputs, tmp_path / "out", weights=tuple(map(Fraction, weights)))


@pytest.mark.parametrize("weight", [Fraction(0), Fraction(-1), Fraction(2**31), Fraction(1, 2**31)])
def test_weights_out_of_range(tmp_path: Path, weight: Fraction) -> None:
    inputs = files(tmp_path, [{(1, 2): {3: 1}}], ["legacy"])
    with pytest.raises(ParameterError, match="expected a fraction above 0"):
        merge(inputs, tmp_path / "out", weights=(weight,))


@settings(max_examples=40)
@given(
    made=parts(),
    min_count=st.integers(1, 12),
    top_k=st.integers(0, 4),
    out=st.sampled_from(FORMATS),
)
def test_min_count_and_top_k_apply_to_the_sum(
    tmp_path: Path, made: list[Counts], min_count: int, top_k: int, out: str
) -> None:
    inputs = files(tmp_path, made, ["legacy", "constmap", "constmap2", "legacy"][: len(made)])
    merge(inputs, tmp_path / "out", prune=Prune(min_count, top_k), fmt=out)
    expected = prune(add(*made), min_count, top_k)
    if expected or out != "legacy":  # a legacy file of nothing is an empty file
        assert read_counts(tmp_path / "out") == expected


# ---- the same bytes however it is done


@pytest.mark.parametrize("fmt", FORMATS)
def test_neither_threads_nor_memory_change_the_bytes(tmp_path: Path, fmt: str) -> None:
    rng = random.Random(9)
    made = [random_counts(rng, 3000, vocab=300, followers=6) for _ in range(3)]
    inputs = files(tmp_path, made, ["legacy", "legacy", "constmap"])
    spill = tmp_path / "spill"
    spill.mkdir()
    outputs = set()
    for threads, memory in product((1, 2), (None, 30_000)):
        merge(inputs, tmp_path / "out", fmt=fmt, threads=threads, memory=memory, tmpdir=str(spill))
        outputs.add((tmp_path / "out").read_bytes())
    assert len(outputs) == 1
    assert read_counts(tmp_path / "out") == add(*made)
    assert list(spill.iterdir()) == []


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_neither_threads_nor_memory_change_what_is_created(tmp_path: Path, kind: str) -> None:
    rng = random.Random(10)
    documents = [random_stream(rng, 2500, 200) for _ in range(40)]
    cuts = range(0, 100_000, 9_000)
    spill = tmp_path / "spill"
    spill.mkdir()
    outputs = set()
    for threads, memory in product((1, 2), (None, 100_000)):
        options = {"threads": threads, "memory": memory, "tmpdir": str(spill), "kind": kind}
        create_from(tmp_path / "out", documents, INFO_200, cuts, **options)
        outputs.add((tmp_path / "out").read_bytes())
    assert len(outputs) == 1
    assert list(spill.iterdir()) == []
    assert len(batches_of(documents, cuts)) > 10


INFO_200 = TokenInfo(200, "b" * 32, "two hundred", ("synthetic",))


def test_legacy_records_in_any_order(tmp_path: Path) -> None:
    """Stock files stand in hash-map order, followers too."""
    rng = random.Random(4)
    made = random_counts(rng, 2000, vocab=100, followers=5)
    records = [(ngram, rng.sample(sorted(made[ngram].items()), len(made[ngram]))) for ngram in made]
    rng.shuffle(records)
    (tmp_path / "stock").write_bytes(legacy_bytes(records))
    for memory in (None, 10_000):
        merge([tmp_path / "stock"], tmp_path / "out", memory=memory, tmpdir=str(tmp_path))
        assert read_counts(tmp_path / "out") == made
    write_counts(tmp_path / "sorted", made, "legacy")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "sorted").read_bytes()


def test_duplicates_in_different_spilled_parts_are_summed(tmp_path: Path) -> None:
    made = random_counts(random.Random(6), 500, vocab=40)
    records = [(ngram, sorted(made[ngram].items())) for ngram in made]
    (tmp_path / "twice").write_bytes(legacy_bytes(records + records))
    report = merge([tmp_path / "twice"], tmp_path / "out", memory=6000, tmpdir=str(tmp_path))
    assert read_counts(tmp_path / "out") == add(made, made)
    assert any("500 n-grams stood in more than one record" in note for note in report.notes)


def test_duplicates_are_told_once(tmp_path: Path) -> None:
    """Fitting a size reads the inputs twice."""
    (tmp_path / "twice").write_bytes(legacy_bytes([((k, 1), [(2, 1)]) for k in (1, 2, 3)] * 2))
    report = merge([tmp_path / "twice"], tmp_path / "out", max_size=80)
    assert any("3 n-grams stood in more than one record" in note for note in report.notes)


# ---- what is refused


def test_row_17_caches_of_different_vocabularies(tmp_path: Path) -> None:
    """Both names are given; --ignore-vocabulary goes on, and the file names no vocabulary. --force
    overwrites and no more: it once let two vocabularies into an existing file without a word."""
    for name, fingerprint, fmt in (("qwen", "1" * 32, "constmap"), ("llama", "2" * 32, "legacy")):
        meta = CacheMeta(fingerprint=fingerprint, tokenizer=f"{name} vocabulary", vocab_size=50)
        write_counts(tmp_path / name, {(1, 2): {3: 1}}, fmt, meta)
    inputs = [tmp_path / "qwen", tmp_path / "llama"]
    for order in (inputs, inputs[::-1]):
        with pytest.raises(TokenizerMismatchError) as caught:
            merge(order, tmp_path / "out", force=True)
        assert "qwen vocabulary" in str(caught.value)
        assert "llama vocabulary" in str(caught.value)
    assert not (tmp_path / "out").exists()
    for order in (inputs, inputs[::-1]):
        merge(order, tmp_path / "out", ignore_vocabulary=True, force=True)
        assert read_counts(tmp_path / "out") == {(1, 2): {3: 2}}
        with open_cache(tmp_path / "out") as mixed:
            assert mixed.meta is not None
            assert (mixed.meta.fingerprint, mixed.meta.tokenizer) == (None, None)


def test_a_cache_that_names_no_vocabulary_joins_any(tmp_path: Path) -> None:
    meta = CacheMeta(fingerprint="1" * 32, tokenizer="known", vocab_size=50)
    write_counts(tmp_path / "a", {(1, 2): {3: 1}}, "constmap", meta)
    write_counts(tmp_path / "b", {(1, 2): {3: 1}}, "legacy", annex=False)
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out", force=False)
    assert read_counts(tmp_path / "out") == {(1, 2): {3: 2}}


@pytest.mark.parametrize("fmt", FORMATS[1:])
def test_other_orders_need_a_legacy_file(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "a", {(1,): {2: 1}, (1, 2): {3: 1}}, "legacy")
    with pytest.raises(ParameterError, match="1-grams, expected 2-grams only"):
        merge([tmp_path / "a"], tmp_path / "out", fmt=fmt)


def test_outputs_are_not_overwritten(tmp_path: Path) -> None:
    inputs = files(tmp_path, [{(1, 2): {3: 1}}], ["legacy"])
    (tmp_path / "out").write_bytes(b"precious")
    with pytest.raises(ParameterError, match="exists: choose another name or pass --force"):
        merge(inputs, tmp_path / "out", force=False)
    assert (tmp_path / "out").read_bytes() == b"precious"


def test_one_damaged_input_leaves_no_output(tmp_path: Path) -> None:
    inputs = files(tmp_path, [{(1, 2): {3: 1}}, {(2, 3): {4: 1}}], ["legacy", "constmap"])
    data = bytearray(inputs[1].read_bytes())
    data[24:28] = b"\xff\xff\xff\xff"  # a negative follower
    inputs[1].write_bytes(data)
    with pytest.raises(FormatError):
        merge(inputs, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir() if "in-" not in p.name) == []


def test_nothing_to_merge(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="found no inputs"):
        merge([], tmp_path / "out")
    run("merge", "-o", tmp_path / "out", code=2)


def test_the_output_may_be_an_input(tmp_path: Path) -> None:
    """A refresh in place: the old file is read while the new one is written beside it."""
    for fmt in FORMATS:
        a, b = files(tmp_path, [{(1, 2): {3: 1}}, {(1, 2): {3: 4}}], [fmt, "legacy"])
        merge([a, b], a, fmt=fmt)
        assert read_counts(a) == {(1, 2): {3: 5}}


def test_merged_metadata_says_where_it_is_from(tmp_path: Path) -> None:
    for name in "ab":
        info = TokenInfo(100, "a" * 32, "small", (f"corpus {name}",))
        create_from(tmp_path / name, [[1, 2, 3, 4]], info)
    merge([tmp_path / "b", tmp_path / "a"], tmp_path / "out")
    result = run("inspect", tmp_path / "out")
    assert "from 8 tokens of corpus a, corpus b" in result.stdout
    assert "for small (100 ids)" in result.stdout
