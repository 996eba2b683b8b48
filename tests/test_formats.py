"""Files as bytes: what is written comes back, foreign readers see what they know, damage shows."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import struct
from pathlib import Path
from typing import Any

import fastconstmap
import pytest
import zstandard
from helpers import (
    FORMATS,
    MAX_COUNT,
    Counts,
    add,
    legacy_bytes,
    n_pairs,
    random_counts,
    read_counts,
    run,
    write_counts,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tools import open_cache, verify_cache
from lookup_tools.errors import FormatError, LookupToolsError, ParameterError, TruncatedError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.formats.sniff import sniff

META = CacheMeta(
    kind="static",
    fingerprint="f" * 32,
    tokenizer="small",
    vocab_size=50,
    corpora=("a", "b"),
    n_tokens=99,
    options={"min_count": 1},
)
SMALL: Counts = {
    (1, 2): {3: 4, 5: 1},
    (2, 3): {7: 1},
    (2, 9): {0: MAX_COUNT},
    (49, 0): {1: 1, 2: 2, 49: 3},
}


@st.composite
def counts(draw: st.DrawFn, orders: tuple[int, ...] = (2,)) -> Counts:
    token = st.one_of(st.integers(0, 5), st.integers(0, 2**31 - 1))
    ngram = st.one_of(*(st.tuples(*[token] * order) for order in orders))
    followers = st.dictionaries(token, st.integers(1, MAX_COUNT), min_size=1, max_size=5)
    return draw(st.dictionaries(ngram, followers, max_size=12))


# ---- round trips


@given(made=counts(orders=(1, 2, 3, 4)))
def test_legacy_round_trip(tmp_path: Path, made: Counts) -> None:
    path = tmp_path / "cache"
    written = write_counts(path, made, "legacy", META)
    assert path.stat().st_size == 20 * len(made) + 8 * n_pairs(made) == written.file_bytes
    if made:
        assert read_counts(path) == made


@given(
    made=counts(),
    fmt=st.sampled_from(FORMATS[1:]),
    annex=st.booleans(),
    map_hash=st.sampled_from(["xxh64", "xxh3"]),
)
def test_constmap_round_trip(
    tmp_path: Path, made: Counts, fmt: str, annex: bool, map_hash: str
) -> None:
    path = tmp_path / "cache"
    written = write_counts(path, made, fmt, META, annex=annex, map_hash=map_hash)
    data = path.read_bytes()
    assert written.file_bytes == len(data)
    assert (written.n_ngrams, written.n_pairs) == (len(made), n_pairs(made))
    with open_cache(path) as cache:
        assert cache.format == fmt
        assert cache.n_pairs == n_pairs(made)
        for ngram, followers in made.items():
            assert dict(cache.followers(ngram).tolist()) == followers
        if annex or fmt == "constmap2":
            assert {k: v for block in cache.blocks(2) for k, v in block.items()} == made
            assert cache.n_ngrams == len(made)


@pytest.mark.parametrize("fmt", FORMATS)
def test_metadata_comes_back(tmp_path: Path, fmt: str) -> None:
    write_counts(tmp_path / "cache", SMALL, fmt, META)
    with open_cache(tmp_path / "cache") as cache:
        meta = cache.meta
    assert meta is not None
    assert (meta.n_ngrams, meta.n_pairs) == (4, 7)
    for name in (
        "kind",
        "fingerprint",
        "tokenizer",
        "vocab_size",
        "corpora",
        "n_tokens",
        "options",
    ):
        assert getattr(meta, name) == getattr(META, name)
    assert meta.tool.startswith("lookup-tools")


@pytest.mark.parametrize("fmt", FORMATS)
def test_equal_inputs_give_equal_bytes(tmp_path: Path, fmt: str) -> None:
    """No time stamps, no paths, no order of dictionaries."""
    for folder, made in (("a", SMALL), ("b", dict(reversed(SMALL.items())))):
        (tmp_path / folder).mkdir()
        write_counts(tmp_path / folder / f"name-{folder}", made, fmt, META)
    assert (tmp_path / "a/name-a").read_bytes() == (tmp_path / "b/name-b").read_bytes()


def test_legacy_bytes_are_llama_cpps(tmp_path: Path) -> None:
    """Records sorted by size and tokens, followers by token; nothing else."""
    made: Counts = {
        (5,): {1: 2},
        (1, 2): {9: 1, 4: 3},
        (0, 7, 1): {2: 1},
        (3,): {0: 1},
        (1, 1, 1, 1): {1: 1},
    }
    write_counts(tmp_path / "cache", made, "legacy", annex=False)
    order = [(3,), (5,), (1, 2), (0, 7, 1), (1, 1, 1, 1)]
    expected = legacy_bytes([(ngram, sorted(made[ngram].items())) for ngram in order])
    assert (tmp_path / "cache").read_bytes() == expected


@pytest.mark.parametrize("fmt", FORMATS[1:])
def test_constmaps_hold_2_grams_only(tmp_path: Path, fmt: str) -> None:
    with pytest.raises(ParameterError, match="2-grams"):
        write_counts(tmp_path / "cache", {(1, 2, 3): {4: 1}}, fmt)
    assert list(tmp_path.iterdir()) == []


# ---- what foreign readers see


def split_constmap(data: bytes) -> tuple[list[tuple[int, int]], bytes]:
    """The entries and the map section, as a reader that knows nothing of annexes takes them."""
    magic, n_entries, map_size = struct.unpack("<8sQQ", data[:24])
    assert magic == b"ggngcmap"
    assert len(data) == 24 + 8 * n_entries + map_size
    entries = list(struct.iter_unpack("<ii", data[24 : 24 + 8 * n_entries]))
    return entries, data[24 + 8 * n_entries :]


@pytest.mark.parametrize("annex", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 300, 11_480])
def test_the_annex_is_invisible_to_the_original_layout(tmp_path: Path, n: int, annex: bool) -> None:
    made = random_counts(random.Random(n), n, vocab=400)
    write_counts(tmp_path / "cache", made, "constmap", META, annex=annex)
    entries, section = split_constmap((tmp_path / "cache").read_bytes())
    slots = struct.unpack("<I", section[24:28])[0]
    size = 32 + 16 * slots + 8
    theirs = fastconstmap.VerifiedConstMap.from_bytes(section[:size])
    for ngram, followers in made.items():
        value = theirs[struct.pack("<ii", *ngram)]
        offset, length = value >> 24, value & (2**24 - 1)
        assert entries[offset : offset + length] == sorted(followers.items())
    assert (len(section) == size) == (not annex)
    assert section[size : size + 8] == (b"ltannex1" if annex else b"")
    for absent in ((400, 400), (0, 2**31 - 1), (1, 401)):
        assert struct.pack("<ii", *absent) not in theirs


def test_fastconstmap_ignores_what_follows_the_map(tmp_path: Path) -> None:
    """The reader in the field hands the whole section over, annex and all."""
    write_counts(tmp_path / "cache", SMALL, "constmap", META)
    _, section = split_constmap((tmp_path / "cache").read_bytes())
    theirs = fastconstmap.VerifiedConstMap.from_bytes(section)
    assert all(struct.pack("<ii", *ngram) in theirs for ngram in SMALL)


def test_entries_are_laid_out_by_key(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", SMALL, "constmap")
    entries, _ = split_constmap((tmp_path / "cache").read_bytes())
    assert entries == [pair for ngram in sorted(SMALL) for pair in sorted(SMALL[ngram].items())]


def test_the_annex_stays_small(tmp_path: Path) -> None:
    made = random_counts(random.Random(1), 20_000, vocab=2000, followers=8)
    sizes = [
        write_counts(tmp_path / "cache", made, "constmap", annex=annex).file_bytes
        for annex in (True, False)
    ]
    assert sizes[0] <= 1.04 * sizes[1] + 2000


def test_constmap2_has_its_key_records(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", SMALL, "constmap2", META)
    data = (tmp_path / "cache").read_bytes()
    magic, n_entries, map_size, n_keys = struct.unpack("<8sQQQ", data[:32])
    assert (magic, n_entries, n_keys) == (b"ggngcmp2", 7, 4)
    assert len(data) == 32 + 8 * n_entries + map_size + 16 * n_keys
    records = list(struct.iter_unpack("<iiQ", data[-16 * n_keys :]))
    assert [(t0, t1) for t0, t1, _ in records] == sorted(SMALL)
    assert [span & (2**24 - 1) for *_, span in records] == [
        len(SMALL[ngram]) for ngram in sorted(SMALL)
    ]


def test_a_foreign_constmap2_needs_no_annex(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", SMALL, "constmap2", annex=False)
    with open_cache(tmp_path / "cache") as cache:
        assert cache.meta is None
        verify_cache(cache)
    assert read_counts(tmp_path / "cache") == SMALL


def foreign_constmap(
    made: Counts,
    *,
    hash_name: str = "xxh64",
    order: list[tuple[int, ...]] | None = None,
    spans: dict[tuple[int, ...], tuple[int, int]] | None = None,
) -> bytes:
    """A keyless file as the original writer makes it: fastconstmap's map, any order of spans."""
    entries, values = b"", {}
    for ngram in order or list(made):
        values[ngram] = (len(entries) // 8, len(made[ngram]))
        entries += b"".join(struct.pack("<ii", *pair) for pair in sorted(made[ngram].items()))
    values |= spans or {}
    pairs = {
        struct.pack("<ii", *ngram): offset << 24 | length
        for ngram, (offset, length) in values.items()
    }
    section = fastconstmap.VerifiedConstMap(pairs, hash=hash_name).to_bytes()
    return struct.pack("<8sQQ", b"ggngcmap", len(entries) // 8, len(section)) + entries + section


@pytest.mark.parametrize("hash_name", ["xxh64", "xxh3"])
def test_row_05_foreign_files_answer_the_same(tmp_path: Path, hash_name: str) -> None:
    """Both map hashes that are in use."""
    made = random_counts(random.Random(3), 500)
    order = sorted(made, key=lambda ngram: hash(ngram))
    (tmp_path / "cache").write_bytes(foreign_constmap(made, hash_name=hash_name, order=order))
    with open_cache(tmp_path / "cache") as cache:
        assert cache.n_ngrams is None
        for ngram, followers in made.items():
            assert dict(cache.followers(ngram).tolist()) == followers
        assert len(cache.followers((0, 999))) == 0


@pytest.mark.parametrize("span", [(7, 1), (6, 2), (0, 8), (2**39, 1), (2**40 - 1, 2**24 - 1)])
def test_row_10_a_span_past_the_entries_is_refused_where_it_is_used(
    tmp_path: Path, span: tuple[int, int]
) -> None:
    """What comes out of the payload is hostile until it is checked."""
    (tmp_path / "cache").write_bytes(foreign_constmap(SMALL, spans={(1, 2): span}))
    with open_cache(tmp_path / "cache") as cache:
        with pytest.raises(FormatError, match="outside the entries"):
            cache.followers((1, 2))
        assert dict(cache.followers((2, 3)).tolist()) == {7: 1}
        with pytest.raises(FormatError):
            verify_cache(cache)


# ---- damage


def test_row_08_every_prefix_of_a_vouched_for_file_is_refused(tmp_path: Path) -> None:
    """The sidecar tells a cut file from a whole one, even at a record's edge."""
    path = tmp_path / "cache"
    write_counts(path, SMALL, "legacy", META)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        # a first byte alone is text as far as anyone can tell
        with pytest.raises(FormatError if size == 1 else TruncatedError):
            open_cache(path)
    path.write_bytes(data)
    assert read_counts(path) == SMALL


def test_without_a_sidecar_only_whole_records_pass(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    write_counts(path, SMALL, "legacy", annex=False)
    data = path.read_bytes()
    edges = {20 * k + 8 * sum(len(SMALL[n]) for n in sorted(SMALL)[:k]): k for k in range(5)}
    for size in range(1, len(data) + 1):
        path.write_bytes(data[:size])
        if size in edges:
            assert set(read_counts(path)) == set(sorted(SMALL)[: edges[size]])
        else:
            with pytest.raises(FormatError if size == 1 else TruncatedError):
                open_cache(path)


def survives(path: Path) -> Counts | None:
    """What a file holds after opening and verifying, or None if either refuses. Uses it as a
    drafter would before that, because nobody has to verify."""
    try:
        with open_cache(path) as cache:
            for ngram in [*SMALL, (0, 0), (3, 3)]:
                with contextlib.suppress(FormatError):
                    cache.followers(ngram)
            # enumerating a damaged file without keys means trying all pairs of ids: another test
            if not getattr(cache, "has_keys", True):
                return {ngram: dict(cache.followers(ngram).tolist()) for ngram in SMALL}
            verify_cache(cache)
        return read_counts(path)
    except LookupToolsError:
        return None


@settings(max_examples=100)
@given(
    fmt=st.sampled_from(FORMATS),
    annex=st.booleans(),
    changes=st.lists(
        st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4
    ),
)
def test_overwritten_files_never_crash(
    tmp_path: Path, fmt: str, annex: bool, changes: list[tuple[int, bytes]]
) -> None:
    path = tmp_path / "cache"
    write_counts(path, SMALL, fmt, META, annex=annex)
    data = bytearray(path.read_bytes())
    for at, new in changes:
        at %= len(data)
        data[at : at + len(new)] = new
    path.write_bytes(data)
    survives(path)


@settings(max_examples=100)
@given(head=st.sampled_from([b"", b"ggngcmap", b"ggngcmp2"]), data=st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(tmp_path: Path, head: bytes, data: bytes) -> None:
    (tmp_path / "any").write_bytes(head + data)
    survives(tmp_path / "any")


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (struct.pack("<5i", -1, -1, -1, -1, 1) + struct.pack("<2i", 1, 1), "no n-gram"),
        (struct.pack("<5i", 1, -1, 2, -1, 1) + struct.pack("<2i", 1, 1), "a gap in the n-gram"),
        (struct.pack("<5i", 1, -2, -1, -1, 1) + struct.pack("<2i", 1, 1), "a token of -2"),
        (struct.pack("<5i", 1, 2, -1, -1, 0), "no followers"),
        (struct.pack("<5i", 1, 2, -1, -1, -3), "a negative number of followers"),
        (
            struct.pack("<5i", 1, 2, -1, -1, 2**31 - 1) + struct.pack("<2i", 1, 1),
            "too many followers",
        ),
        (struct.pack("<5i", 1, 2, -1, -1, 1) + struct.pack("<2i", -1, 1), "a negative follower"),
        (struct.pack("<5i", 1, 2, -1, -1, 1) + struct.pack("<2i", 1, 0), "a count of 0"),
        (struct.pack("<5i", 1, 2, -1, -1, 1) + struct.pack("<2i", 1, -5), "a negative count"),
        (struct.pack("<5i", 1, 2, -1, -1, 2) + struct.pack("<4i", 7, 1, 7, 1), "a follower twice"),
        (
            struct.pack("<5i", 1, 2, -1, -1, 3) + struct.pack("<6i", 9, 1, 7, 1, 9, 1),
            "a follower twice, apart",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_record_is_refused(tmp_path: Path, record: bytes, what: str) -> None:
    path = tmp_path / "cache"
    path.write_bytes(legacy_bytes([((1, 1), [(2, 2)])]) + record)
    with pytest.raises(FormatError, match="28") as caught:
        open_cache(path)
    assert str(path) in str(caught.value)


def test_row_07_duplicate_records_are_summed_and_told(tmp_path: Path) -> None:
    """Stock readers keep the first and drop the other."""
    path, out = tmp_path / "cache", tmp_path / "out"
    records: list[Any] = [
        ((1, 2), [(3, 4)]),
        ((5,), [(6, 1)]),
        ((1, 2), [(3, 1), (0, 2)]),
        ((1, 2), [(9, MAX_COUNT)]),
    ]
    path.write_bytes(legacy_bytes(records))
    expected: Counts = {(1, 2): {0: 2, 3: 5, 9: MAX_COUNT}, (5,): {6: 1}}
    assert read_counts(path) == expected
    with open_cache(path) as cache:
        assert dict(cache.followers((1, 2)).tolist()) == expected[1, 2]
        assert any("more than one record" in line for line in verify_cache(cache).checked)
    result = run("merge", path, "-o", out)
    assert "2 n-grams stood in more than one record; their counts were summed" in result.stderr
    assert read_counts(out) == expected


# ---- telling files apart


FOREIGN = [
    ("empty", b"", "an empty file"),
    ("gguf", b"GGUF\x03\0\0\0" + bytes(100), "a GGUF model"),
    ("gzip", gzip.compress(b"x" * 100), "a gzip file"),
    ("zstd", zstandard.compress(b"x" * 100), "a zstd file"),
    ("xz", b"\xfd7zXZ\x00" + bytes(100), "an xz file"),
    ("zip", b"PK\x03\x04" + bytes(100), "a zip file"),
    ("json", b'{"a": 1}\n' * 9, "a JSON file"),
    ("text", b"The quick brown fox\n" * 9, "a text file"),
    ("utf8", "Zwölf Boxkämpfer\n".encode() * 400, "a text file"),
    ("map", b"VMAP0001" + bytes(100), "a bare constmap"),
    ("map3", b"VCMP0002" + bytes(100), "a bare constmap"),
    ("tokens", b"lttokens" + bytes(100), "a token file"),
    ("parquet", b"PAR1" + bytes(100), "a parquet file"),
]


@pytest.mark.parametrize(("name", "data", "what"), FOREIGN, ids=[name for name, *_ in FOREIGN])
def test_row_03_foreign_files_are_named(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    """Found, expected, what to do; one line and exit code 1."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(FormatError, match=f"{path}: found {what}, expected a cache"):
        open_cache(path)
    for arguments in (["inspect", path], ["merge", path, "-o", tmp_path / "out"]):
        result = run(*arguments, code=1)  # type: ignore[arg-type]
        assert f"found {what}, expected a cache" in result.stderr
        assert ";" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"ggngcmap", "constmap"), (b"ggngcmp2", "constmap2"), (b"\0\1", "legacy")],
)
def test_a_magic_decides(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "x").write_bytes(data)
    assert sniff(tmp_path / "x") == expected
    with pytest.raises(FormatError):
        open_cache(tmp_path / "x")


@pytest.mark.parametrize(
    "first", [0, 1, 0x8B1F, 0x1F8B, 0xB528, 0x4B50, 0x4747, 48_000, 151_000, 262_143]
)
def test_no_token_makes_a_legacy_file_look_like_something_else(tmp_path: Path, first: int) -> None:
    """Stock files begin with any n-gram; 35615, 1 has gzip's two magic bytes."""
    path = tmp_path / "cache"
    path.write_bytes(legacy_bytes([((first, 1), [(2, 3)])]))
    assert read_counts(path) == {(first, 1): {2: 3}}


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_cache(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        open_cache(tmp_path)
    for path, said in ((tmp_path / "missing", "No such file"), (tmp_path, "directory")):
        assert said in run("inspect", path, code=1).stderr
        assert str(path) in run("merge", path, "-o", tmp_path / "o", code=1).stderr


# ---- sidecars


def sidecar(path: Path) -> dict[str, Any]:
    return dict(json.loads(Path(f"{path}.meta.json").read_text()))


def test_a_sidecar_says_whose_ids_they_are(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    write_counts(path, SMALL, "legacy", META)
    files = sidecar(path)["files"]
    assert [each["size"] for each in files] == [path.stat().st_size]
    assert files[0]["meta"]["fingerprint"] == META.fingerprint


def test_no_annex_means_no_sidecar(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", SMALL, "legacy", META, annex=False)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_sidecar_never_survives_a_bare_file_of_its_name(tmp_path: Path) -> None:
    """A file written without annex over one with a sidecar must open all the same."""
    path = tmp_path / "cache"
    write_counts(path, SMALL, "legacy", META)
    write_counts(path, add(SMALL, SMALL), "legacy", annex=False)
    assert read_counts(path) == add(SMALL, SMALL)


def test_while_a_file_is_replaced_both_are_vouched_for(tmp_path: Path) -> None:
    """Killed between sidecar and rename, or after it: the pair fits together either way."""
    path = tmp_path / "cache"
    write_counts(path, SMALL, "legacy", META)
    old = path.read_bytes()
    write_counts(path, add(SMALL, SMALL), "legacy", META)
    new = path.read_bytes()
    assert len(sidecar(path)["files"]) == 2
    for data, expected in ((old, SMALL), (new, add(SMALL, SMALL))):
        path.write_bytes(data)
        assert read_counts(path) == expected
    third: Counts = {(1, 2): {3: 1}}
    write_counts(path, third, "legacy", META)
    path.write_bytes(new)
    assert read_counts(path) == add(SMALL, SMALL)
    path.write_bytes(old)
    with pytest.raises(FormatError):
        read_counts(path)


def test_contents_that_differ_from_the_sidecar_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    write_counts(path, SMALL, "legacy", META)
    changed = add(SMALL)
    changed[1, 2] = {3: 5, 5: 1}
    data = legacy_bytes([(ngram, sorted(changed[ngram].items())) for ngram in sorted(changed)])
    assert len(data) == path.stat().st_size
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"meta\.json"):
        open_cache(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "3",
        '{"format": "other", "files": [1]}',
        '{"format": "lookup-tools sidecar 1", "files": []}',
        "\udcff",
        "[" * 5000,
    ],
)
def test_a_broken_sidecar_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cache"
    write_counts(path, SMALL, "legacy", META)
    Path(f"{path}.meta.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(FormatError, match=r"meta\.json"):
        open_cache(path)
    assert "meta.json" in run("inspect", path, code=1).stderr


def test_a_constmap_over_a_legacy_file_leaves_no_false_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    write_counts(path, SMALL, "legacy", META)
    write_counts(path, SMALL, "constmap", META)
    assert read_counts(path) == SMALL
