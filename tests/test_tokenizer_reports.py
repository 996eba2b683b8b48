"""What users of other tools reported, each kind with several examples: the tokenizer's part.

The engine's own word on the same kinds is in test_tokenizer_engine.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_tokenizers import LETTERS, SHARED, VOCABULARIES, needs_shared, write_gguf

from lookup_tools.tokenizers import Tokenizer, open_tokenizer
from lookup_tools.tokenizers.bytelevel import BYTE_TO_CHAR
from lookup_tools.tokenizers.synthesis import document

LITERAL = "literal text must not give this id"


def with_tokens(path: Path, texts: list[str], kind: int, **more: Any) -> tuple[Tokenizer, int]:
    """A small byte-level vocabulary that ends with these texts, and the id of the first."""
    base = [*BYTE_TO_CHAR.values(), *(m.replace(" ", "") for m in LETTERS)]
    tokens = [*base, *texts]
    kinds = [1] * len(base) + [kind] * len(texts)
    write_gguf(path, tokens=tokens, types=kinds, bos=0, **more)
    return open_tokenizer(path), len(base)


ENDS = [
    "<|im_end|>",
    "</s>",
    "<|eom_id|>",
    "<|fim_prefix|>",
    "<fim_suffix>",
    "<|endoftext|>",
    "[EOS]",
]


@pytest.mark.parametrize("kind", [1, 3, 4])
@pytest.mark.parametrize("text", ENDS)
def test_report_02_ends_are_control_tokens_whatever_the_file_says(
    tmp_path: Path, text: str, kind: int
) -> None:
    tokenizer, first = with_tokens(tmp_path / "v.gguf", [text], kind)
    assert first not in tokenizer.encode(f"a{text}b"), LITERAL
    assert first in tokenizer.encode(f"a{text}b", parse_special=True)
    assert tokenizer.count_special(f"a{text}b") == 1


@pytest.mark.parametrize("kind", [1, 3, 4])
@pytest.mark.parametrize("text", ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"])
def test_report_02_the_frame_of_messages_is_user_defined(
    tmp_path: Path, text: str, kind: int
) -> None:
    tokenizer, first = with_tokens(tmp_path / "v.gguf", [text], kind)
    assert first in tokenizer.encode(f"a{text}b")


@pytest.mark.parametrize(
    ("texts", "literal"),
    [
        (["<|end|>"], False),
        (["<|end|>", "<|return|>"], False),
        (["<|end|>", "<|return|>", "<|call|>"], True),
        (["<|end|>", "<|flush|>", "<|calls|>"], True),
        (["</s>", "<|tool_response>"], False),
    ],
)
def test_report_02_ends_beside_other_ends(tmp_path: Path, texts: list[str], literal: bool) -> None:
    tokenizer, first = with_tokens(tmp_path / "v.gguf", texts, 3)
    assert (first in tokenizer.encode(f"a{texts[0]}b")) == literal
    plain = texts[0] == "</s>"
    assert (first in tokenizer.encode(f"a{texts[0]}b", parse_special=True)) != plain


@needs_shared
def test_report_05_circled_letters() -> None:
    refact = open_tokenizer(VOCABULARIES / "ggml-vocab-refact.gguf")
    assert refact.encode("<b>Ⓐ</b>").tolist() == [46, 84, 48, 175, 245, 27079, 84, 48]
    for text in ("(ⓩ)", "'🄰'", "<🅰>", "Ⓐ's", "«Ⓜ»"):
        reference = refact._encoders.reference(False).encode([text])[0]
        assert refact.encode(text).tolist() == reference.tolist()


@needs_shared
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("\u2029 ", ["\u2029 "]),
        ("\u2003\u2003\u3000", ["\u2003\u2003\u3000"]),
        ("a\u3000", ["a", "\u3000"]),
        ("\u3000。", ["\u3000。"]),
        ("\xa0 \u2028", ["\xa0 \u2028"]),
    ],
)
def test_report_06_white_space_is_folded_before_the_rules(text: str, pieces: list[str]) -> None:
    tokenizer = open_tokenizer(VOCABULARIES / "ggml-vocab-deepseek-llm.gguf")
    # Only a piece of its own has a merge across it; the engine's ids are in the engine's test.
    assert tokenizer.decode(tokenizer.encode(text)) == "".join(pieces)
    apart = [i for piece in pieces for i in tokenizer.encode(piece).tolist()]
    assert tokenizer.encode(text).tolist() == apart


REPORTS = SHARED / "data" / "reports"


@pytest.mark.skipif(not REPORTS.is_dir(), reason="no shared test data here")
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("unigram.json", "a</s>b"),
        ("bpe2.json", "the </s> cat"),
        ("bpe2.json", "</s>"),
        ("bpe2.json", "cat</s></s>mat"),
    ],
)
def test_report_09_literal_text_never_gives_a_control_token(file: str, text: str) -> None:
    """But for the token of text that the model does not know."""
    tokenizer = open_tokenizer(REPORTS / file)
    control = [i for i in tokenizer._vocabulary.of_kind(3) if tokenizer.token_bytes(i) != b"<unk>"]
    assert not set(tokenizer.encode(text).tolist()) & set(control), LITERAL
    assert set(tokenizer.encode(text, parse_special=True).tolist()) & set(control)


ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@pytest.mark.parametrize("model", ["WordLevel", "WordPiece", "BPE"])
def test_report_09_for_every_kind_of_model(tmp_path: Path, model: str) -> None:
    vocab = {"</s>": 0, "[UNK]": 1, "the": 2, "cat": 3}
    more = {"merges": []} if model == "BPE" else {"max_input_chars_per_word": 100}
    extra = {"continuing_subword_prefix": "##"} if model == "WordPiece" else {}
    path = tmp_path / "tokenizer.json"
    definition = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": t, "special": True, **ADDED}
            for i, t in enumerate(["</s>", "[UNK]"])
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {
            "type": model,
            "vocab": vocab,
            "unk_token": "[UNK]",
            **(more if model != "WordLevel" else {}),
            **extra,
            **({"ignore_merges": True} if model == "BPE" else {}),
        },
    }
    path.write_text(json.dumps(definition))
    tokenizer = open_tokenizer(path)
    assert 0 not in tokenizer.encode("the </s> cat")
    assert tokenizer.encode("the </s> cat", parse_special=True).tolist() == [2, 0, 3]
    assert tokenizer.encode("the dog").tolist()[:2] == [2, 1]


@pytest.mark.parametrize("text", ["<|note|>", "<｜fim▁x｜>", "<pad>", "<unused7>", "<|a b|>"])
def test_report_12_added_tokens_that_only_look_special(tmp_path: Path, text: str) -> None:
    gguf, first = with_tokens(tmp_path / "v.gguf", [text, "plain"], 3)
    data = json.loads(document(gguf._vocabulary, parse_special=False))
    data["added_tokens"] = [
        {"id": first + i, "content": t, "special": False, **ADDED}
        for i, t in enumerate([text, "++"])
    ]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data))
    tokenizer = open_tokenizer(path)
    assert first not in tokenizer.encode(f"a{text}b"), LITERAL
    assert tokenizer.encode(f"a{text}b").tolist() == gguf.encode(f"a{text}b").tolist()
    parsed = tokenizer.encode(f"a{text}b", parse_special=True).tolist()
    assert parsed == gguf.encode(f"a{text}b", parse_special=True).tolist()
    assert tokenizer.count_special(f"a{text}b") == 1
    assert first + 1 in tokenizer.encode("a++b")  # this one is user-defined


@pytest.mark.parametrize("pre", [None, ""])
def test_report_15_a_file_without_pre_tokenizer_is_warned_of(
    tmp_path: Path, pre: str | None
) -> None:
    tokenizer, _ = with_tokens(tmp_path / "v.gguf", ["<|x|>"], 3, pre=pre)
    assert tokenizer.pre == "default"
    assert tokenizer.note is not None
    assert "convert the model again" in tokenizer.note


@pytest.mark.parametrize("pre", ["gpt-2", "default", "qwen2"])
def test_report_15_no_word_where_it_is_named(tmp_path: Path, pre: str) -> None:
    assert with_tokens(tmp_path / "v.gguf", ["<|x|>"], 3, pre=pre)[0].note is None
