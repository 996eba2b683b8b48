"""The commands end to end: arguments, outputs, exit codes."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import subprocess
import sys
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from helpers import (
    COMMANDS,
    FORMATS,
    SENTENCES,
    TEXT,
    count_documents,
    names,
    prune,
    read_counts,
    run,
    spawn,
    write_counts,
)
from test_report import CACHE_KEYS, CREATE_KEYS, MERGE_KEYS, REPLAY_KEYS, SOURCE_KEYS

from lookup_tools import Tokenizer, open_cache, open_tokenizer
from lookup_tools.drafting.params import CACHE_PARAMS
from lookup_tools.formats.meta import CacheMeta
from lookup_tools.tokens import TokenInfo, TokenStream, load_tokens, save_tokens

ALL = sorted(COMMANDS)


@pytest.fixture
def cache(tmp_path: Path, model: Path, text: Path) -> Path:
    run("create", "-m", model, "-f", text, "-o", tmp_path / "cache.lcs")
    return tmp_path / "cache.lcs"


# ---- every command


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", ALL)
def test_help_has_an_example(command: str, flag: str) -> None:
    said = run(command, flag).stdout
    assert f"Example: lookup-{command} " in " ".join(said.split())
    for option in ("--json", "--quiet", "--threads", "--force", "--version", "-h, --help"):
        assert option in said


@pytest.mark.parametrize("command", ALL)
def test_version(command: str) -> None:
    assert version("lookup-tools") in run(command, "--version").stdout


@pytest.mark.parametrize("command", ALL)
def test_usage_errors_exit_with_2(command: str) -> None:
    run(command, "--no-such-option", code=2)
    run(command, code=2)
    run(command, "--threads", 0, code=2)


@pytest.mark.parametrize("command", ALL)
def test_commands_run_as_installed(command: str) -> None:
    """In a process of their own; what that imports is in test_imports.py."""
    program = Path(sys.executable).with_name(f"lookup-{command}")
    arguments = (
        [str(program)]
        if program.exists()
        else [sys.executable, "-m", f"lookup_tools.cli.{command}"]
    )
    done = subprocess.run([*arguments, "--help"], capture_output=True, text=True, check=True)
    assert "Example" in done.stdout


# ---- JSON


def test_json_keys(tmp_path: Path, model: Path, text: Path, cache: Path) -> None:
    create = json.loads(
        run("create", "-m", model, "-f", text, "-o", tmp_path / "a", "--json", "-").stdout
    )
    assert create.keys() >= CREATE_KEYS
    assert create["seconds"].keys() == {"tokenize", "count", "build", "write", "total"}
    assert create["tokenizer"]["vocab_size"] == open_tokenizer(model).vocab_size
    assert create["tokenizer"]["fingerprint"] == open_tokenizer(model).fingerprint
    merge = json.loads(
        run("merge", cache, tmp_path / "a", "-o", tmp_path / "b", "--json", "-").stdout
    )
    assert merge.keys() >= MERGE_KEYS
    assert len(merge["inputs"]) == 2
    run("merge", cache, "-o", tmp_path / "d.lcd", "--format", "legacy")
    options = [
        "-m",
        model,
        "-f",
        text,
        "-c",
        100,
        "-lcs",
        cache,
        "-lcd",
        tmp_path / "d.lcd",
        "--json",
        "-",
    ]
    stats = json.loads(run("stats", *options).stdout)
    assert stats.keys() >= {"static", "dynamic", "replay", "sources"}
    assert stats["static"].keys() >= CACHE_KEYS
    assert stats["dynamic"].keys() >= CACHE_KEYS
    assert stats["replay"].keys() >= REPLAY_KEYS
    assert stats["sources"][0].keys() >= SOURCE_KEYS
    assert stats["static"]["load_mode"] == "mmap"
    inspect = json.loads(
        run("inspect", cache, "--json", "-", "--verify", "--top", 3, "--query", "1 2").stdout
    )
    assert inspect.keys() >= {
        "path",
        "format",
        "file_bytes",
        "n_ngrams",
        "n_pairs",
        "meta",
        "verify",
        "overview",
        "query",
    }


@pytest.mark.parametrize("target", ["-", "file"])
@pytest.mark.parametrize("command", ["create", "merge", "stats", "inspect"])
def test_json_goes_where_it_is_sent(
    tmp_path: Path, model: Path, text: Path, cache: Path, command: str, target: str
) -> None:
    arguments: dict[str, list[object]] = {
        "create": ["-m", model, "-f", text, "-o", tmp_path / "out"],
        "merge": [cache, "-o", tmp_path / "out"],
        "stats": ["-m", model, "-f", text, "-c", 100],
        "inspect": [cache],
    }
    place = tmp_path / "report.json"
    result = run(command, *arguments[command], "--json", "-" if target == "-" else place)
    if target == "-":
        json.loads(result.stdout)  # the JSON alone
    else:
        json.loads(place.read_text())
        assert len(result.stdout) > 20
        place.write_text("precious")
        (tmp_path / "out").unlink(missing_ok=True)
        run(command, *arguments[command], "--json", place, code=1)
        assert place.read_text() == "precious"


def test_json_to_the_terminal_leaves_notes_on_stderr(tmp_path: Path, model: Path) -> None:
    (tmp_path / "t").write_text("a b </s> a b c d e\n")
    result = run("create", "-m", model, "-f", tmp_path / "t", "-o", tmp_path / "o", "--json", "-")
    assert json.loads(result.stdout)["n_special"] == 1
    assert "note: 1 special-token" in result.stderr


# ---- lookup-create


def test_create_counts_the_tokens_of_the_text(
    tmp_path: Path, model: Path, text: Path, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode(TEXT).tolist()
    for kind, orders in (("static", [2]), ("context", [1, 2, 3, 4]), ("dynamic", [1, 2, 3, 4])):
        run("create", "-m", model, "-f", text, "-o", tmp_path / kind, "--kind", kind)
        assert read_counts(tmp_path / kind) == count_documents([ids], orders)
    with open_cache(tmp_path / "static") as made:
        assert made.format == "constmap"
    with open_cache(tmp_path / "dynamic") as made:
        assert made.format == "legacy"
        assert made.meta is not None
        assert (made.meta.kind, made.meta.fingerprint) == ("dynamic", tokenizer.fingerprint)


@pytest.mark.parametrize("fmt", FORMATS)
def test_create_formats(tmp_path: Path, model: Path, text: Path, fmt: str) -> None:
    run("create", "-m", model, "-f", text, "-o", tmp_path / "out", "--format", fmt)
    with open_cache(tmp_path / "out") as made:
        assert made.format == fmt
    run("create", "-m", model, "-f", text, "-o", tmp_path / "bare", "--format", fmt, "--no-annex")
    assert (tmp_path / "bare").stat().st_size <= (tmp_path / "out").stat().st_size
    assert "bare.meta.json" not in names(tmp_path)
    with open_cache(tmp_path / "bare") as made:
        assert made.meta is None


def test_ngram_sizes(tmp_path: Path, model: Path, text: Path, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT).tolist()
    common = ["-m", model, "-f", text, "--kind", "dynamic", "--force", "-o", tmp_path / "out"]
    for low, high in ((1, 1), (2, 3), (4, 4)):
        run("create", *common, "--ngram-min", low, "--ngram-max", high)
        assert read_counts(tmp_path / "out") == count_documents([ids], range(low, high + 1))
    assert (
        "expected 1 <= min <= max <= 4"
        in run("create", *common, "--ngram-min", 3, "--ngram-max", 2, code=1).stderr
    )
    run("create", *common, "--ngram-max", 5, code=2)
    result = run("create", "-m", model, "-f", text, "-o", tmp_path / "x", "--ngram-max", 3, code=1)
    assert "--format legacy" in result.stderr


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".gz", gzip.compress), (".zst", zstandard.compress), (".xz", lzma.compress), ("", bytes)],
)
def test_text_may_be_compressed(
    tmp_path: Path, model: Path, tokenizer: Tokenizer, suffix: str, pack: Any
) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(pack(TEXT.encode()))
    run("create", "-m", model, "-f", path, "-o", tmp_path / "out")
    assert read_counts(tmp_path / "out") == count_documents([tokenizer.encode(TEXT).tolist()])


def test_text_from_stdin(tmp_path: Path, model: Path, tokenizer: Tokenizer) -> None:
    run("create", "-m", model, "-f", "-", "-o", tmp_path / "out", stdin=TEXT)
    assert read_counts(tmp_path / "out") == count_documents([tokenizer.encode(TEXT).tolist()])


def test_several_files_and_concatenation(tmp_path: Path, model: Path, tokenizer: Tokenizer) -> None:
    for k, sentence in enumerate(SENTENCES):
        (tmp_path / f"{k}.txt").write_text(sentence)
    files = [argument for k in range(len(SENTENCES)) for argument in ("-f", tmp_path / f"{k}.txt")]
    documents = [tokenizer.encode(sentence).tolist() for sentence in SENTENCES]
    run("create", "-m", model, *files, "-o", tmp_path / "apart")
    assert read_counts(tmp_path / "apart") == count_documents(documents)
    run("create", "-m", model, *files, "-o", tmp_path / "joined", "--concatenate")
    assert read_counts(tmp_path / "joined") == count_documents([list(chain(*documents))])


def test_documents_of_lines_and_fields(tmp_path: Path, model: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "lines").write_text("\n".join(SENTENCES) + "\n")
    (tmp_path / "rows").write_text(
        "".join(json.dumps({"body": s, "n": 1}) + "\n" for s in SENTENCES)
    )
    documents = [tokenizer.encode(sentence).tolist() for sentence in SENTENCES]
    run(
        "create",
        "-m",
        model,
        "-f",
        tmp_path / "rows",
        "--documents",
        "jsonl:body",
        "-o",
        tmp_path / "b",
    )
    assert read_counts(tmp_path / "b") == count_documents(documents)
    run(
        "create", "-m", model, "-f", tmp_path / "lines", "--documents", "line", "-o", tmp_path / "a"
    )
    by_line = read_counts(tmp_path / "a")
    assert by_line.keys() >= count_documents(documents).keys()
    assert (
        "jsonl"
        in run(
            "create",
            "-m",
            model,
            "-f",
            tmp_path / "rows",
            "--documents",
            "pages",
            "-o",
            tmp_path / "c",
            code=1,
        ).stderr
    )


def test_chats_go_through_the_models_template(tmp_path: Path, gguf: Path) -> None:
    chats = [
        [{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": "Hi!"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    common = ["-m", gguf, "-f", path, "--documents", "chat", "-o", tmp_path / "out", "--force"]
    tokenizer = open_tokenizer(gguf)
    special = {
        text: tokenizer.encode(text, parse_special=True).tolist()
        for text in ("<|im_start|>", "<|im_end|>")
    }
    assert all(len(ids) == 1 for ids in special.values())
    run("create", *common, "--save-tokens", tmp_path / "t")
    documents = [document.tolist() for document in load_tokens(tmp_path / "t").documents()]
    said = [tokenizer.decode(document) for document in documents]
    assert len(said) == 2
    assert (
        "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\nHi!<|im_end|>" in said[0]
    )
    assert said[1].startswith(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>"
    )
    assert documents[0].count(special["<|im_end|>"][0]) >= 2


def test_a_model_without_a_template_is_named(tmp_path: Path, model: Path) -> None:
    (tmp_path / "c").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    result = run(
        "create",
        "-m",
        model,
        "-f",
        tmp_path / "c",
        "--documents",
        "chat",
        "-o",
        tmp_path / "o",
        code=1,
    )
    assert "found no chat template" in result.stderr


def test_bos_begins_every_document(tmp_path: Path, model: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "lines").write_text("a b c\nd e f\n")
    common = [
        "-m",
        model,
        "-f",
        tmp_path / "lines",
        "--documents",
        "line",
        "--force",
        "-o",
        tmp_path / "o",
    ]
    run("create", *common, "--save-tokens", tmp_path / "with", "--bos")
    run("create", *common, "--save-tokens", tmp_path / "without")
    plain = [document.tolist() for document in load_tokens(tmp_path / "without").documents()]
    assert [d.tolist() for d in load_tokens(tmp_path / "with").documents()] == [
        [tokenizer.bos_id, *d] for d in plain
    ]


@pytest.mark.parametrize(("min_count", "top_k"), [(2, 0), (1, 1), (3, 2)])
def test_create_prunes(
    tmp_path: Path, model: Path, text: Path, tokenizer: Tokenizer, min_count: int, top_k: int
) -> None:
    run(
        "create",
        "-m",
        model,
        "-f",
        text,
        "-o",
        tmp_path / "o",
        "--min-count",
        min_count,
        "--top-k",
        top_k,
    )
    expected = prune(count_documents([tokenizer.encode(TEXT).tolist()]), min_count, top_k)
    assert read_counts(tmp_path / "o") == expected


def test_max_tokens(tmp_path: Path, model: Path, text: Path, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT).tolist()
    for n in (1, 2, 3, 100, len(ids), len(ids) + 1):
        result = run(
            "create",
            "-m",
            model,
            "-f",
            text,
            "-o",
            tmp_path / "o",
            "--max-tokens",
            n,
            "--force",
            "--json",
            "-",
        )
        assert json.loads(result.stdout)["n_tokens"] == min(n, len(ids))
        assert read_counts(tmp_path / "o") == count_documents([ids[:n]])


def test_bytes_that_are_not_utf_8(tmp_path: Path, model: Path) -> None:
    (tmp_path / "bad").write_bytes(b"fine so far \xff\xfe and on")
    common = ["-m", model, "-f", tmp_path / "bad", "-o", tmp_path / "out"]
    result = run("create", *common, code=1)
    assert str(tmp_path / "bad") in result.stderr
    assert "12" in result.stderr
    run("create", *common, "--errors", "replace")


def test_the_default_corpus(tmp_path: Path, model: Path) -> None:
    run(
        "create",
        "-m",
        model,
        "--dataset",
        "python-topics",
        "--split",
        "test",
        "-o",
        tmp_path / "out",
    )
    with open_cache(tmp_path / "out") as made:
        assert made.meta is not None
        assert made.meta.corpora[0].startswith("python-topics")


def test_all_ways_to_say_what_to_read(tmp_path: Path, model: Path, text: Path) -> None:
    out = ["-o", tmp_path / "out"]
    for arguments in (
        ["-m", model],
        ["-f", text],
        ["-m", model, "-f", text, "--dataset", "python-topics"],
        ["-f", text, "--tokens", text],
        ["--dataset", "python-topics"],
        ["--split", "test"],
    ):
        run("create", *arguments, *out, code=2)
    run("create", "-m", model, "-f", tmp_path / "missing", *out, code=1)
    run("create", "-m", tmp_path / "missing", "-f", text, *out, code=1)
    assert (
        "nope"
        in run(
            "create", "-m", model, "--dataset", "python-topics", "--split", "nope", *out, code=1
        ).stderr
    )
    assert not (tmp_path / "out").exists()


def test_an_empty_text(tmp_path: Path, model: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert (
        "found no tokens"
        in run("create", "-m", model, "-f", tmp_path / "empty", "-o", tmp_path / "o", code=1).stderr
    )
    assert names(tmp_path) == {"empty"}


@pytest.mark.parametrize("value", ["0", "-1", "x", "1Q", "", "1e3"])
def test_sizes_that_are_none(tmp_path: Path, model: Path, text: Path, value: str) -> None:
    run("create", "-m", model, "-f", text, "-o", tmp_path / "o", "--memory", value, code=2)


@pytest.mark.parametrize("value", ["1000000", "1M", "1.5m", "2GiB", "64 KB", "1t"])
def test_sizes(tmp_path: Path, model: Path, text: Path, value: str) -> None:
    run("create", "-m", model, "-f", text, "-o", tmp_path / "o", "--memory", value)


# ---- token files


@pytest.mark.parametrize("name", ["t", "t.u16", "t.zst", "t.u16.zst"])
def test_saved_tokens_give_the_same_cache(
    tmp_path: Path, model: Path, text: Path, name: str
) -> None:
    run("create", "-m", model, "-f", text, "-o", tmp_path / "a", "--save-tokens", tmp_path / name)
    run("create", "--tokens", tmp_path / name, "-o", tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    text_stats = run("stats", "-m", model, "-f", text, "-c", 200, "--json", "-").stdout
    token_stats = run("stats", "--tokens", tmp_path / name, "-c", 200, "--json", "-").stdout
    figures = [json.loads(each)["sources"][0]["n_accept"] for each in (text_stats, token_stats)]
    assert figures[0] == figures[1] > 0


def test_saved_tokens_keep_documents(tmp_path: Path, model: Path) -> None:
    (tmp_path / "lines").write_text("\n".join(SENTENCES))
    common = ["-m", model, "-f", tmp_path / "lines", "--documents", "line"]
    run("create", *common, "-o", tmp_path / "a", "--save-tokens", tmp_path / "t")
    run("create", "--tokens", tmp_path / "t", "-o", tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    run("create", "--tokens", tmp_path / "t", "-o", tmp_path / "c", "--concatenate")
    run("create", *common, "-o", tmp_path / "d", "--concatenate")
    assert (tmp_path / "c").read_bytes() == (tmp_path / "d").read_bytes()
    assert read_counts(tmp_path / "c") != read_counts(tmp_path / "a")


def test_raw_ids(tmp_path: Path, model: Path) -> None:
    ids = [1, 2, 3, 1, 2, 4]
    for name, dtype in (("raw.u16", "<u2"), ("raw.u32", "<u4")):
        np.array(ids, dtype).tofile(tmp_path / name)
        run("create", "--tokens", tmp_path / name, "-o", tmp_path / f"{name}.lcs")
        assert read_counts(tmp_path / f"{name}.lcs") == count_documents([ids])
    (tmp_path / "raw.u16.zst").write_bytes(zstandard.compress((tmp_path / "raw.u16").read_bytes()))
    run("create", "--tokens", tmp_path / "raw.u16.zst", "-m", model, "-o", tmp_path / "named.lcs")
    with open_cache(tmp_path / "named.lcs") as made:
        assert made.meta is not None
        assert made.meta.fingerprint == open_tokenizer(model).fingerprint


def test_text_options_with_tokens_are_refused(tmp_path: Path) -> None:
    np.arange(9, dtype="<u2").tofile(tmp_path / "raw.u16")
    for flag in ("--bos", "--parse-special"):
        result = run("create", "--tokens", tmp_path / "raw.u16", "-o", tmp_path / "o", flag, code=1)
        assert flag in result.stderr


def test_tokens_of_another_vocabulary(
    tmp_path: Path, model: Path, other_model: Path, text: Path
) -> None:
    run("create", "-m", model, "-f", text, "-o", tmp_path / "a", "--save-tokens", tmp_path / "t")
    for command, more in (("create", ["-o", tmp_path / "b"]), ("stats", ["-c", 100])):
        result = run(command, "-m", other_model, "--tokens", tmp_path / "t", *more, code=1)
        assert open_tokenizer(model).name in result.stderr
        assert open_tokenizer(other_model).name in result.stderr
    ignored = ["--tokens", tmp_path / "t", "-c", 100, "--ignore-vocabulary"]
    run("stats", "-m", other_model, *ignored)


# ---- overwriting


def test_nothing_is_overwritten_without_force(
    tmp_path: Path, model: Path, text: Path, cache: Path
) -> None:
    (tmp_path / "keep").write_bytes(b"precious")
    common = ["-m", model, "-f", text]
    for arguments in (
        ["create", *common, "-o", tmp_path / "keep"],
        ["create", *common, "-o", tmp_path / "new", "--save-tokens", tmp_path / "keep"],
        ["merge", cache, "-o", tmp_path / "keep"],
        ["stats", *common, "-c", 100, "--csv", tmp_path / "keep"],
        ["stats", *common, "-c", 100, "--json", tmp_path / "keep"],
    ):
        result = run(*arguments, code=1)  # type: ignore[arg-type]
        assert "pass --force" in result.stderr
        assert (tmp_path / "keep").read_bytes() == b"precious"
        assert not (tmp_path / "new").exists()
    run("merge", cache, "-o", tmp_path / "keep", "--force")
    assert (tmp_path / "keep").read_bytes() == cache.read_bytes()


# ---- lookup-merge


def test_merge_weights_by_flag(tmp_path: Path) -> None:
    write_counts(tmp_path / "a", {(1, 2): {3: 4}})
    write_counts(tmp_path / "b", {(1, 2): {3: 3}}, "legacy")
    run(
        "merge",
        tmp_path / "a",
        tmp_path / "b",
        "-o",
        tmp_path / "o",
        "--weight",
        "0.5",
        "--weight",
        "5/3",
    )
    assert read_counts(tmp_path / "o") == {(1, 2): {3: 7}}
    for weight in ("0", "-1", "x", "1/0", "nan", "inf"):
        run("merge", tmp_path / "a", "-o", tmp_path / "p", "--weight", weight, code=2)
    assert (
        "found 1 weights"
        in run(
            "merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "p", "--weight", 1, code=1
        ).stderr
    )


def test_merge_picks_a_format(tmp_path: Path) -> None:
    write_counts(tmp_path / "a", {(1, 2): {3: 4}}, "legacy")
    write_counts(tmp_path / "b", {(1, 2): {3: 4}}, "constmap")
    for inputs, expected in (
        (["a"], "legacy"),
        (["a", "a"], "legacy"),
        (["b"], "constmap"),
        (["a", "b"], "constmap"),
    ):
        run("merge", *[tmp_path / name for name in inputs], "-o", tmp_path / "o", "--force")
        with open_cache(tmp_path / "o") as made:
            assert made.format == expected


# ---- lookup-stats


def test_stats_prints_llamas_lines(model: Path, text: Path, cache: Path) -> None:
    said = run("stats", "-m", model, "-f", text, "-c", 100, "-lcs", cache).stdout
    for name in (
        "n_draft",
        "n_predict",
        "n_drafted",
        "t_draft_flat",
        "t_draft",
        "n_accept",
        "accept",
    ):
        assert re.search(rf"^{name} += \S", said, re.MULTILINE)


@pytest.mark.parametrize("load", ["mmap", "read"])
def test_load_modes(model: Path, text: Path, cache: Path, load: str) -> None:
    for more in ([], ["--populate"]):
        result = run(
            "stats",
            "-m",
            model,
            "-f",
            text,
            "-c",
            100,
            "-lcs",
            cache,
            "--load",
            load,
            *more,
            "--json",
            "-",
        )
        body = json.loads(result.stdout)
        assert body["static"]["load_mode"] == load
        assert body["sources"][0]["tiers"]["static"]["drafted"] > 0


def test_row_22_every_threshold_has_a_flag(model: Path, text: Path) -> None:
    """Inside its bounds a value comes back as given, outside it is a usage error."""
    common = ["-m", model, "-f", text, "-c", 100, "--json", "-"]
    flags: list[object] = []
    expected = {}
    for name, param in CACHE_PARAMS.items():
        flags += param.setting(param.least).split()
        expected[name] = param.least
        for outside in (param.least - 1, param.largest + 1):
            run("stats", *common, *param.setting(outside).split(), code=2)
    body = json.loads(run("stats", *common, *flags).stdout)
    assert body["sources"][0]["params"] == expected
    assert "--threshold" in run("stats", "--help").stdout


@pytest.mark.parametrize(
    "setting", ["static-percent", "static-percent=x", "percent=5", "=5", "n_match=3"]
)
def test_row_22_a_threshold_that_is_none(setting: str) -> None:
    said = run("stats", "--tokens", "x", "--threshold", setting, code=2).stderr
    assert "--threshold" in said
    assert "expected" in said


@pytest.mark.parametrize("words", [["--static-percent", "30"], ["--dynamic-samples-2=3"]])
def test_a_flag_that_is_gone_names_its_successor(words: list[str]) -> None:
    name = words[0].partition("=")[0]
    assert f"--threshold {name[2:]}=VALUE" in run("stats", "--tokens", "x", *words, code=2).stderr


@pytest.mark.parametrize(
    ("flag", "low", "high"), [("--draft-max", 1, 1024), ("-c", 2, None), ("--prompt-tokens", 0, 99)]
)
def test_numbers_at_their_bounds(
    model: Path, text: Path, flag: str, low: int, high: int | None
) -> None:
    common = ["-m", model, "-f", text, *([] if flag == "-c" else ["-c", 100])]
    run("stats", *common, flag, low - 1, code=2)
    run("stats", *common, flag, low)
    if high is not None:
        run("stats", *common, flag, high)
        result = run("stats", *common, flag, high + 1, code=2 if flag == "--draft-max" else 1)
        assert str(high) in result.stderr


def test_csv(tmp_path: Path, model: Path, text: Path) -> None:
    run("stats", "-m", model, "-f", text, "-c", 100, "--csv", tmp_path / "rows.csv")
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(rows) == 2
    assert rows[1].startswith("ngram-cache,")


def test_stats_from_stdin(model: Path) -> None:
    assert "n_accept" in run("stats", "-m", model, "-f", "-", "-c", 100, stdin=TEXT).stdout


def test_stats_on_too_short_a_text(model: Path, text: Path) -> None:
    result = run("stats", "-m", model, "-f", text, code=1)
    assert re.search(r"found \d+ tokens, expected at least 4096 for one chunk", result.stderr)


def test_a_static_cache_needs_2_grams(tmp_path: Path, model: Path, text: Path) -> None:
    write_counts(tmp_path / "ones", {(1,): {2: 3}}, "legacy")
    result = run("stats", "-m", model, "-f", text, "-c", 100, "-lcs", tmp_path / "ones", code=1)
    assert "found no 2-grams" in result.stderr
    run("stats", "-m", model, "-f", text, "-c", 100, "-lcd", tmp_path / "ones")


def test_no_cache_is_written_by_stats(tmp_path: Path, model: Path, text: Path, cache: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    run("stats", "-m", model, "-f", text, "-c", 100, "-lcs", cache, "-lcd", cache)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


# ---- lookup-inspect


@pytest.mark.parametrize("fmt", FORMATS)
def test_inspect(tmp_path: Path, fmt: str) -> None:
    counts = {(1, 2): {3: 4, 5: 6}, (2, 2): {7: 1}}
    write_counts(
        tmp_path / "c",
        counts,
        fmt,
        CacheMeta(tokenizer="small", fingerprint="f", vocab_size=9, corpora=("x",), n_tokens=12),
    )
    said = run("inspect", tmp_path / "c", "--verify", "--top", 1, "--query", "1 2").stdout
    assert f"{fmt}, {(tmp_path / 'c').stat().st_size:,} bytes, 2 n-grams, 3 pairs" in said
    assert "static cache by lookup-tools" in said
    assert "from 12 tokens of x" in said
    assert "checked: " in said
    assert re.search(r"6 x 5 \(5\)\n +4 x 3 \(3\)", said)
    dumped = run("inspect", tmp_path / "c", "--dump").stdout.splitlines()
    assert dumped == ["1 2\t3\t4", "1 2\t5\t6", "2 2\t7\t1"]


def test_queries_in_words(model: Path, cache: Path, tokenizer: Tokenizer) -> None:
    result = run("inspect", cache, "-m", model, "--query", "end of the", "--json", "-")
    found = json.loads(result.stdout)["query"]
    assert found["ngram"] == tokenizer.encode("end of the").tolist()[-2:]
    assert found["followers"]
    assert "nothing" in run("inspect", cache, "-m", model, "--query", "zzzz").stdout
    assert "expected -m MODEL" in run("inspect", cache, "--query", "of the", code=1).stderr
    assert "found 1 tokens in the query" in run("inspect", cache, "--query", "5", code=1).stderr


def test_inspect_with_another_vocabulary(other_model: Path, cache: Path) -> None:
    run("inspect", cache, "-m", other_model, code=1)
    run("inspect", cache, "-m", other_model, "--force", code=1)
    run("inspect", cache, "-m", other_model, "--ignore-vocabulary")


def test_a_damaged_file_does_not_verify(cache: Path) -> None:
    data = bytearray(cache.read_bytes())
    data[28] ^= 1
    cache.write_bytes(data)
    assert "entries with hash" in run("inspect", cache, "--verify", code=1).stderr


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    """lookup-inspect --dump | head"""
    write_counts(
        tmp_path / "c", {(a, b): dict.fromkeys(range(20), 1) for a in range(60) for b in range(60)}
    )
    process = spawn("inspect", tmp_path / "c", "--dump")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    process.wait(timeout=30)
    assert "Traceback" not in said
    assert "Exception ignored" not in said


# ---- the same bytes


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_threads_and_memory_do_not_change_the_bytes(tmp_path: Path, model: Path, kind: str) -> None:
    (tmp_path / "text").write_text(
        "\n\n".join(f"{k} {s} {k * k}" for k in range(4000) for s in SENTENCES)
    )
    outputs = set()
    for k, more in enumerate(
        (
            ["--threads", 1],
            ["--threads", 2],
            ["--threads", 2, "--memory", "1M", "--tmpdir", tmp_path],
        )
    ):
        run(
            "create",
            "-m",
            model,
            "-f",
            tmp_path / "text",
            "-o",
            tmp_path / f"o{k}",
            "--kind",
            kind,
            *more,
        )
        outputs.add((tmp_path / f"o{k}").read_bytes())
    assert len(outputs) == 1


def test_documents_of_a_saved_stream_match_its_bytes(tmp_path: Path) -> None:
    """A stream saved through the API is read by the command."""
    documents = [np.array(d, np.int32) for d in ([1, 2, 3], [], [4], [5, 6, 7, 5, 6])]
    save_tokens(
        tmp_path / "t", TokenStream.from_documents(documents, TokenInfo(10, "f" * 32, "x", ("y",)))
    )
    run("create", "--tokens", tmp_path / "t", "-o", tmp_path / "o")
    assert read_counts(tmp_path / "o") == count_documents([d.tolist() for d in documents])
