"""What people trip over in this job: one small test a row, named after it.

Rows are the 26 kinds of fault collected from public reports. A test of row NN is called
test_row_NN_..., here or in the file of the module it concerns; the last test here finds them all.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import fastconstmap
import numpy as np
import pytest
from helpers import (
    MAX_COUNT,
    SHARED,
    Counts,
    add,
    cache_drafter,
    contents,
    count_documents,
    create_from,
    legacy_bytes,
    merge_unprivileged,
    names,
    random_counts,
    random_stream,
    read_counts,
    run,
    spawn,
    unprivileged_folder,
    write_counts,
)
from test_formats import foreign_constmap
from test_replay import check_identities

from lookup_tools import (
    Drafter,
    ReplayOptions,
    Tokenizer,
    open_cache,
    open_tokenizer,
    replay,
    verify_cache,
)
from lookup_tools.errors import FormatError, ParameterError, TruncatedError
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.tokens import load_tokens


def test_row_01_nothing_of_the_last_request_is_drafted_in_the_next() -> None:
    rng = random.Random(1)
    a = [*random_stream(rng, 300, 20), 30, 31, 32, 33, 30, 31, 32, 33, 30, 31]
    b = [*random_stream(rng, 60, 20), 30, 31]  # ends in what only A went on from

    def figures(drafter: Drafter, text: list[int]) -> list[list[int]]:
        drafter.begin([])
        found = []
        for token in text:
            drafter.accept([token])
            found.append(drafter.draft().tolist())
        return found

    with cache_drafter() as slot, cache_drafter() as alone:
        assert figures(slot, a)[-1][:2] == [32, 33]
        assert figures(slot, b) == figures(alone, b)
        assert slot.draft().tolist() == []


@pytest.mark.parametrize("unreadable", ["live.lcd", "new.lcd"])
def test_row_02_a_refresh_that_may_not_read_touches_nothing(unreadable: str) -> None:
    with unprivileged_folder() as folder:
        live, new = folder / "live.lcd", folder / "new.lcd"
        write_counts(live, {(1,): {2: 1}, (1, 2): {3: 1}}, "legacy")
        write_counts(new, {(1, 2): {3: 4}}, "legacy")
        before = contents(folder)
        for name in before:
            (folder / name).chmod(0o644)
        (folder / unreadable).chmod(0)  # in a folder where it could be replaced
        done = merge_unprivileged(folder, "--update", live, new)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"Error: {folder / unreadable}: Permission denied\n"
        (folder / unreadable).chmod(0o644)
        assert contents(folder) == before
        done = merge_unprivileged(folder, "--update", live, new)
        assert done.returncode == 0, done.stderr
        assert read_counts(live) == {(1,): {2: 1}, (1, 2): {3: 5}}
        assert names(folder) == set(before)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (None, "No such file"),
        (b"", "found an empty file"),
        (b"GGUF" + bytes(60), "found a GGUF model"),
        (gzip.compress(b"x"), "found a gzip file"),
        (b'{"a": [1, 2]}', "found a JSON file"),
    ],
    ids=["missing", "empty", "gguf", "gzip", "json"],
)
@pytest.mark.parametrize("use", ["-lcs", "-lcd", "merge", "inspect"])
def test_row_03_a_foreign_cache_is_one_line(
    tmp_path: Path, model: Path, text: Path, data: bytes | None, found: str, use: str
) -> None:
    path = tmp_path / "cache"
    if data is not None:
        path.write_bytes(data)
    if use.startswith("-"):
        result = run("stats", "-m", model, "-f", text, "-c", 100, use, path, code=1)
    elif use == "merge":
        result = run("merge", path, "-o", tmp_path / "out", code=1)
    else:
        result = run("inspect", path, code=1)
    assert str(path) in result.stderr
    assert found in result.stderr
    assert data is None or ("expected" in result.stderr and ";" in result.stderr)


def test_row_03_a_constmap_serves_where_legacy_is_wanted(
    tmp_path: Path, model: Path, text: Path
) -> None:
    run("create", "-m", model, "-f", text, "-o", tmp_path / "map")
    run("stats", "-m", model, "-f", text, "-c", 100, "-lcd", tmp_path / "map")


def test_row_04_foreign_constmaps_are_merged_or_refused_with_the_share(tmp_path: Path) -> None:
    made = [count_documents([random_stream(random.Random(seed), 1500, 40)]) for seed in (1, 2)]
    for k, counts in enumerate(made):
        (tmp_path / f"foreign-{k}").write_bytes(foreign_constmap(counts))
    result = run(
        "merge",
        tmp_path / "foreign-0",
        tmp_path / "foreign-1",
        "-o",
        tmp_path / "out",
        "--vocab-size",
        40,
    )
    assert read_counts(tmp_path / "out") == add(*made)
    assert result.stdout.count("keys recovered by walk") == 2
    hidden: Counts = {(1, 2): {3: 1, 4: 1}, (2, 3): {1: 1}, (50, 51): {1: 1}}
    (tmp_path / "hidden").write_bytes(foreign_constmap(hidden))
    assert "75.0 %" in run("merge", tmp_path / "hidden", "-o", tmp_path / "o2", code=1).stderr


@pytest.mark.parametrize("hash_name", ["xxh64", "xxh3"])
def test_row_05_both_map_hashes_are_read(tmp_path: Path, hash_name: str) -> None:
    made = random_counts(random.Random(5), 200)
    (tmp_path / "cache").write_bytes(foreign_constmap(made, hash_name=hash_name))
    with open_cache(tmp_path / "cache") as cache:
        assert all(dict(cache.followers(ngram).tolist()) == made[ngram] for ngram in made)


def test_row_05_an_unknown_magic_is_named(tmp_path: Path) -> None:
    data = foreign_constmap({(1, 2): {3: 1}})
    (tmp_path / "cache").write_bytes(data.replace(b"VMAP0001", b"VMAP0009"))
    result = run("inspect", tmp_path / "cache", code=1)
    assert "magic number is unknown" in result.stderr


def test_row_06_fuse_construction_at_a_size_that_mostly_fails(tmp_path: Path) -> None:
    made = random_counts(random.Random(6), 11_480, vocab=5000, followers=1)
    write_counts(tmp_path / "cache", made)
    assert read_counts(tmp_path / "cache") == made
    with open_cache(tmp_path / "cache") as cache:
        assert all(len(cache.followers(ngram)) == 1 for ngram in made)
    data = (tmp_path / "cache").read_bytes()
    theirs = fastconstmap.VerifiedConstMap.from_bytes(data[24 + 8 * 11_480 :])
    assert all(struct.pack("<ii", *ngram) in theirs for ngram in made)


def test_row_07_duplicates_are_summed(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.write_bytes(legacy_bytes([((1, 2), [(3, 4)]), ((1, 2), [(3, 5), (6, 1)])]))
    result = run("merge", path, path, "-o", tmp_path / "out")
    assert read_counts(tmp_path / "out") == {(1, 2): {3: 18, 6: 2}}
    assert "note: " in result.stderr


def test_row_08_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    write_counts(path, {(1, 2): {3: 4}, (5, 6): {7: 8, 9: 1}}, "legacy", CacheMeta())
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(TruncatedError if size != 1 else FormatError):
            open_cache(path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_row_09_a_full_disk_is_named(tmp_path: Path, model: Path, text: Path) -> None:
    result = run("create", "-m", model, "-f", text, "-o", "/dev/full", code=1)
    assert "/dev/full: No space left on device" in result.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"segment_length": 0},
        {"segment_length": 3},
        {"segment_length": 2**31},
        {"segment_count": 0},
        {"data_len": 1},
        {"data_len": -1},
    ],
    ids=str,
)
def test_row_10_a_forged_header_is_refused(tmp_path: Path, change: dict[str, int]) -> None:
    data = bytearray(foreign_constmap(random_counts(random.Random(1), 50)))
    start = 24 + 8 * struct.unpack("<Q", data[8:16])[0]
    at = {"segment_length": 16, "segment_count": 20, "data_len": 24}
    for name, value in change.items():
        (old,) = struct.unpack_from("<I", data, start + at[name])
        struct.pack_into("<I", data, start + at[name], old + value if name == "data_len" else value)
    state = 0xCBF29CE484222325
    for byte in data[start:-8]:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    data[-8:] = struct.pack("<Q", state)
    (tmp_path / "cache").write_bytes(data)
    with pytest.raises(FormatError):
        open_cache(tmp_path / "cache")


def test_row_10_a_span_past_the_entries_is_refused(tmp_path: Path) -> None:
    data = foreign_constmap({(1, 2): {3: 1}, (2, 3): {1: 1}}, spans={(1, 2): (1, 2)})
    (tmp_path / "cache").write_bytes(data)
    with open_cache(tmp_path / "cache") as cache:
        with pytest.raises(FormatError, match="outside the entries"):
            cache.followers((1, 2))
        with cache_drafter(cache) as drafter:  # a draft need not be right, but it must be safe
            drafter.begin([1, 2])
            drafter.draft()


def test_row_11_large_counts_pick_the_right_token(tmp_path: Path) -> None:
    write_counts(tmp_path / "static", {(1, 2): {5: 1, 6: 700_000}})
    text = [1, 2, 5] * 40 + [1, 2, 6] * 40 + [8, 1, 2]
    with open_cache(tmp_path / "static") as static:
        with cache_drafter(static, n_draft=1) as drafter:
            drafter.begin(text)
            assert drafter.draft().tolist() == [6]
        source = replay(
            [*text, 6, 0],
            static=static,
            options=ReplayOptions(n_ctx=len(text) + 2, prompt_tokens=len(text) - 1),
        ).sources[0]
    assert source.tiers is not None
    assert source.tiers["context"].accepted == source.n_accept == 1


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_row_12_short_histories(tmp_path: Path, n: int) -> None:
    made: Counts = {(7,) * k: {7: 9} for k in (1, 2, 3, 4)}
    write_counts(tmp_path / "dynamic", made, "legacy")
    with (
        open_cache(tmp_path / "dynamic") as dynamic,
        cache_drafter(dynamic=dynamic, n_draft=2) as drafter,
    ):
        drafter.begin([7] * n)
        assert drafter.draft().tolist() == ([7, 7] if n >= 2 else [])
    with pytest.raises(ParameterError):
        replay([7] * n, options=ReplayOptions(n_ctx=4))


@pytest.mark.parametrize(("n", "chunks"), [(100, 1), (200, 2), (99, None), (0, None)])
def test_row_13_whole_chunks_and_no_nan(
    tmp_path: Path, model: Path, tokenizer: Tokenizer, n: int, chunks: int | None
) -> None:
    tokens = np.array(random_stream(random.Random(2), n, 20) if n else [], "<u2")
    tokens.tofile(tmp_path / "t.u16")
    common = ["--tokens", tmp_path / "t.u16", "-c", 100]
    if chunks is None:
        result = run("stats", *common, code=1)
        assert n == 0 or f"found {n} tokens, expected at least 100 for one chunk" in result.stderr
        return
    body = json.loads(run("stats", *common, "--json", "-").stdout)
    assert (body["replay"]["n_chunks"], body["replay"]["n_predict"]) == (chunks, 100 * chunks)
    said = run("stats", *common).stdout
    assert "nan" not in said.lower()
    assert f"n_predict    = {100 * chunks}" in said
    if chunks == 1:
        assert (
            "expected at least 101" in run("stats", *common, "--compat", "llama.cpp", code=1).stderr
        )
    else:
        body = json.loads(run("stats", *common, "--compat", "llama.cpp", "--json", "-").stdout)
        assert body["replay"]["n_chunks"] == 1


def test_row_14_acceptance_is_accepted_over_tested() -> None:
    for seed in range(3):
        check_identities(
            replay(
                random_stream(random.Random(seed), 2000, 25),
                options=ReplayOptions(n_ctx=150, draft_max=6),
            )
        )


def test_row_15_text_is_taken_literally(tmp_path: Path, model: Path, tokenizer: Tokenizer) -> None:
    literal = r"one\ntwo <|endoftext|> three </s> four"
    (tmp_path / "text").write_text(literal)
    common = ["-m", model, "-f", tmp_path / "text", "--force", "-o", tmp_path / "o"]
    special = [tokenizer.encode(text, parse_special=True)[0] for text in ("<|endoftext|>", "</s>")]
    result = run("create", *common, "--save-tokens", tmp_path / "literal")
    ids = load_tokens(tmp_path / "literal").ids.tolist()
    assert tokenizer.decode(ids) == literal
    assert not set(special) & set(ids)
    assert "note: 2 special-token texts" in result.stderr
    assert "--parse-special" in result.stderr
    result = run("create", *common, "--save-tokens", tmp_path / "parsed", "--parse-special")
    parsed = load_tokens(tmp_path / "parsed").ids.tolist()
    assert [token for token in parsed if token in special] == special
    assert "special-token" not in result.stderr
    assert run("create", *common, "--quiet").stderr == ""


def test_row_16_no_n_gram_crosses_documents(
    tmp_path: Path, model: Path, tokenizer: Tokenizer
) -> None:
    rows = ["a b", "c d", "", "e", "ff"]
    (tmp_path / "rows").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    common = [
        "-m",
        model,
        "-f",
        tmp_path / "rows",
        "--documents",
        "jsonl:text",
        "--kind",
        "dynamic",
        "-o",
    ]
    documents = [tokenizer.encode(row).tolist() for row in rows]
    run("create", *common, tmp_path / "apart")
    assert read_counts(tmp_path / "apart") == count_documents(documents, (1, 2, 3, 4))
    run("create", *common, tmp_path / "joined", "--concatenate")
    assert read_counts(tmp_path / "joined") == count_documents(
        [list(chain(*documents))], (1, 2, 3, 4)
    )
    b, c = documents[0][-1], documents[1][0]
    assert c not in read_counts(tmp_path / "apart").get((b,), {})
    assert c in read_counts(tmp_path / "joined")[(b,)]


def test_row_17_a_cache_of_another_vocabulary(
    tmp_path: Path, model: Path, other_model: Path, text: Path
) -> None:
    run("create", "-m", other_model, "-f", text, "-o", tmp_path / "theirs")
    run("create", "-m", model, "-f", text, "-o", tmp_path / "ours", "--format", "legacy")
    for arguments in (
        ["stats", "-m", model, "-f", text, "-c", 100, "-lcs", tmp_path / "theirs"],
        ["stats", "-m", model, "-f", text, "-c", 100, "-lcd", tmp_path / "theirs"],
        ["stats", "-m", other_model, "-f", text, "-c", 100, "-lcs", tmp_path / "ours"],
        ["merge", tmp_path / "ours", tmp_path / "theirs", "-o", tmp_path / "both"],
    ):
        result = run(*arguments, code=1)  # type: ignore[arg-type]
        for each in (model, other_model):
            assert open_tokenizer(each).name in result.stderr
        run(*arguments, "--ignore-vocabulary")  # type: ignore[arg-type]


def test_row_17_ids_beyond_the_vocabulary_are_reported(tmp_path: Path) -> None:
    for fmt in ("constmap", "legacy"):
        for counts in ({(1, 2): {50: 1}}, {(1, 50): {2: 1}}):
            write_counts(tmp_path / "cache", counts, fmt, CacheMeta(vocab_size=50, fingerprint="f"))
            with (
                open_cache(tmp_path / "cache") as cache,
                pytest.raises(FormatError, match=r"token id|ids below"),
            ):
                verify_cache(cache)
            assert (
                "50" in run("inspect", tmp_path / "cache", "--verify", code=1).stderr
                or fmt == "constmap"
            )


RESIDENT = """
import sys
import numpy as np
from lookup_tools import Drafter, open_cache
from lookup_tools.system.memory import memory_now
path, n = sys.argv[1], int(sys.argv[2])
cache = open_cache(path, populate=True)
text = np.load(sys.argv[3])
drafters = [Drafter(cache, spec_type="ngram-cache") for _ in range(n)]
for drafter in drafters:
    drafter.begin(text)
    drafter.draft()
print(memory_now().resident)
"""


def test_row_18_one_copy_for_all_slots(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    create_from(tmp_path / "cache", [rng.integers(0, 3000, 1_500_000).tolist()], threads=2)
    assert (tmp_path / "cache").stat().st_size > 30_000_000
    np.save(tmp_path / "text.npy", rng.integers(0, 3000, 500).astype(np.int32))
    resident = []
    for n in (1, 8):
        command = [
            sys.executable,
            "-c",
            RESIDENT,
            str(tmp_path / "cache"),
            str(n),
            str(tmp_path / "text.npy"),
        ]
        resident.append(
            int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        )
    if not resident[0]:
        pytest.skip("this system does not tell resident memory")
    assert resident[1] <= 1.05 * resident[0]


@pytest.mark.parametrize(
    ("name", "least", "largest"), [("static_percent", 0, 100), ("context_samples_4", 1, MAX_COUNT)]
)
def test_row_22_options_at_their_bounds(name: str, least: int, largest: int) -> None:
    for value in (least, largest):
        arguments: dict[str, Any] = {name: value}
        cache_drafter(**arguments).close()
    for value in (least - 1, largest + 1):
        arguments = {name: value}
        with pytest.raises(ParameterError, match=f"{name}: found {value}, expected {least} to"):
            cache_drafter(**arguments)


@pytest.mark.parametrize("spec_type", ["ngram-cache", "ngram-simple", "ngram-suffix"])
def test_row_23_never_past_the_budget_and_nothing_is_an_empty_array(spec_type: str) -> None:
    """What an engine adds, the end of the text, is in test_engine_*."""
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14] * 8
    small = {"ngram-simple": {"size_n": 3, "size_m": 8}}.get(spec_type, {})
    with Drafter(spec_type=spec_type, **small) as drafter:
        drafter.begin(text)
        whole = drafter.draft().tolist()
        assert len(whole) > 2
        for budget in (-1, 0, 1, 2, 1000):
            found = drafter.draft(budget)
            assert found.dtype == np.int32
            assert found.tolist() == whole[: max(budget, 0)]
        drafter.begin([1, 2, 3, 4])
        assert (drafter.draft().dtype, drafter.draft().shape) == (np.int32, (0,))


def test_row_24_an_estimate_before_building(tmp_path: Path, model: Path, text: Path) -> None:
    said = run("create", "-m", model, "-f", text, "-o", tmp_path / "out", "--dry-run").stdout
    assert "a file of about" in said
    assert "of memory" in said
    assert not (tmp_path / "out").exists()


def test_row_25_temporary_files_are_removed(tmp_path: Path) -> None:
    np.random.default_rng(3).integers(0, 2000, 1_500_000).astype("<u2").tofile(tmp_path / "t.u16")
    spill = tmp_path / "spill"
    spill.mkdir()
    process = spawn(
        "create",
        "--tokens",
        tmp_path / "t.u16",
        "-o",
        tmp_path / "o",
        "--memory",
        "4M",
        "--tmpdir",
        spill,
    )
    while process.poll() is None and not any(spill.glob("*/*")):
        pass
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert names(spill) == set()
    assert not (tmp_path / "o").exists()


def test_every_row_has_a_test_that_names_it() -> None:
    files = list(Path(__file__).parent.glob("test_*.py"))
    named = [
        row
        for path in files
        for row in re.findall(r"^ *def test_row_(\d+)_", path.read_text(encoding="utf-8"), re.M)
    ]
    assert set(named) == {f"{row:02d}" for row in range(1, 27)}
    listed = SHARED / "design" / "pitfalls.md"
    if listed.exists():
        rows = re.findall(r"^\| (\d+) \|", listed.read_text(encoding="utf-8"), re.M)
        assert sorted(map(int, rows)) == sorted(set(map(int, named)))
