"""Cutting and routing never change ids: property tests for every pre-tokenizer family.

The vocabularies are made up so that any two bytes of the alphabet merge, in a shuffled order: every
wrong split then shows in the ids.
"""

from __future__ import annotations

import random
import re
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lookup_tools.tokenizers.bytelevel import BYTE_TO_CHAR, to_chars
from lookup_tools.tokenizers.native import NativeBackend
from lookup_tools.tokenizers.pretokenizers import all_rows
from lookup_tools.tokenizers.tokenizer import Tokenizer
from lookup_tools.tokenizers.vocabulary import BYTE, CONTROL, NORMAL, USER_DEFINED, Vocabulary

pytest.importorskip("tokenizers")

SPECIAL, USER = "<|end of x|>", "z z"
# Torture: letters, digits, spaces of every kind, apostrophes, marks, CJK, combining, emoji.
UNITS = [
    "a",
    "b",
    "Z",
    "é",
    "ß",
    "я",
    "中",
    "文",
    "あ",
    "한",
    "क",
    "\u0301",
    "\u200d",
    "👍",
    "0",
    "12",
    "²",
    "Ⅷ",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\xa0",
    "\u3000",
    "\x85",
    "\u2028",
    "\x0b",
    "'",
    "'s",
    "'S",
    "'ll",
    "’",
    '"',
    ".",
    ",",
    "/",
    "-",
    "$",
    "|",
    "。",
    "，",
    " the",
    "the",
    "a b",
    "b a",
    "a\nb",
    "中，文",
    "中。文",
    "the the",
    "z z",
    "z",
    SPECIAL,
    "<|end",
    "x|>",
]
TEXTS = st.lists(st.sampled_from(UNITS), max_size=40).map("".join)
FAMILIES = [row.family for row in all_rows()]
CORE = [name for name in FAMILIES if name != "superbpe"]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cache
def byte_level(family: str) -> Tokenizer:
    """Every pair of the alphabet's bytes merges; one user-defined and one control token."""
    row = next(row for row in all_rows() if row.family == family)
    chars = sorted(set(to_chars("".join(UNITS).encode())))
    pairs = [(a, b) for a in chars for b in chars]
    random.Random(family).shuffle(pairs)
    tokens = [*BYTE_TO_CHAR.values(), *(a + b for a, b in pairs), USER, SPECIAL]
    kinds = np.full(len(tokens), NORMAL, np.int32)
    kinds[-2:] = USER_DEFINED, CONTROL
    return Tokenizer(
        Vocabulary(
            "made up",
            "gpt2",
            row.names[0],
            family,
            tokens,
            kinds,
            [f"{a} {b}" for a, b in pairs],
            bos_id=len(tokens) - 1,
        )
    )


@cache
def sentencepiece(prefix: bool) -> Tokenizer:
    """A ``llama`` vocabulary: bytes, single characters and scored pieces."""
    words = [
        "▁t",
        "he",
        "▁the",
        "▁▁",
        "▁▁▁▁",
        "ab",
        "ba",
        "▁a",
        "▁b",
        "aa",
        "bb",
        "..",
        "中文",
        "12",
    ]
    singles = list(dict.fromkeys("▁abtheZ中文12.,'"))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words, *singles]
    kinds = np.full(len(tokens), NORMAL, np.int32)
    kinds[0], kinds[1:3], kinds[3:259] = 2, CONTROL, BYTE
    scores = -np.arange(len(tokens), dtype=np.float32)
    return Tokenizer(
        Vocabulary(
            "made up",
            "llama",
            "default",
            "spm",
            tokens,
            kinds,
            [],
            scores,
            bos_id=1,
            eos_id=2,
            unk_id=0,
            add_space_prefix=prefix,
        )
    )


def whole(tokenizer: Tokenizer, text: str, parse_special: bool = False) -> list[int]:
    """The ids of the uncut text."""
    return list(tokenizer._encoders.run([text], parse_special)[0].tolist())


def reference(tokenizer: Tokenizer, text: str, parse_special: bool = False) -> list[int]:
    """The same by ``tokenizers``."""
    ids, _ = tokenizer._encoders.reference(parse_special).encode([text])
    return list(ids.tolist())


def merged_by_score(text: str, vocabulary: Vocabulary) -> list[int]:
    """The rule itself, slowly: join the best-scored neighbours, leftmost first, until none are."""
    if not text:
        return []
    prefix = " " if vocabulary.add_space_prefix else ""
    symbols = list((prefix + text).replace(" ", "▁"))
    while True:
        joined = [vocabulary.ids.get(a + b) for a, b in pairwise(symbols)]
        found = [(-float(vocabulary.scores[t]), i) for i, t in enumerate(joined) if t is not None]
        if not found:
            break
        at = min(found)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids: list[int] = []
    for symbol in symbols:
        known = vocabulary.ids.get(symbol)
        ids += (
            [known]
            if known is not None
            else [vocabulary.ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
        )
    return ids


@pytest.mark.parametrize("family", FAMILIES)
@QUICK
@given(text=TEXTS, target=st.integers(1, 12), parse_special=st.booleans())
def test_pieces_give_the_ids_of_the_whole(
    family: str, text: str, target: int, parse_special: bool
) -> None:
    tokenizer = byte_level(family)
    expected = whole(tokenizer, text, parse_special)
    pieces = tokenizer.split(text, target, parse_special=parse_special)
    assert "".join(pieces) == text
    apart = [i for piece in pieces for i in whole(tokenizer, piece, parse_special)]
    assert apart == expected, pieces
    large = tokenizer.encode_large(text, piece_chars=target, parse_special=parse_special)
    assert large.tolist() == expected
    assert tokenizer.encode(text, parse_special=parse_special).tolist() == expected


@pytest.mark.parametrize("prefix", [True, False])
@QUICK
@given(text=TEXTS, target=st.integers(1, 12), parse_special=st.booleans())
def test_sentencepiece_pieces_give_the_ids_of_the_whole(
    prefix: bool, text: str, target: int, parse_special: bool
) -> None:
    tokenizer = sentencepiece(prefix)
    text = text.replace(SPECIAL, "</s>")
    expected = whole(tokenizer, text, parse_special)
    large = tokenizer.encode_large(text, piece_chars=target, parse_special=parse_special)
    assert large.tolist() == expected
    if not parse_special:
        assert expected == merged_by_score(text, tokenizer._vocabulary)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "superbpe"])
def test_prose_is_cut_near_every_target(family: str) -> None:
    text = "the cat sat on the mat and looked at the moon\n" * 50
    cuts = byte_level(family).safe_cuts(text, 100)
    assert cuts is not None
    steps = np.diff([0, *cuts])
    assert steps.min() >= 100
    assert steps.max() < 110


def test_a_family_whose_words_span_spaces_is_not_cut() -> None:
    assert byte_level("superbpe").safe_cuts("a b c d e f", 2) is None
    assert byte_level("superbpe").split("a b c d e f", 2) == ["a b c d e f"]


def test_no_cut_falls_inside_a_literal_token() -> None:
    tokenizer = byte_level("gpt-2")
    assert tokenizer.safe_cuts("az ab", 1) == [2]
    assert tokenizer.safe_cuts("xz zx", 1) == []
    inside = f"a{SPECIAL}b"
    assert tokenizer.safe_cuts(inside, 1) == [6, 9]
    assert tokenizer.safe_cuts(inside, 1, parse_special=True) == []


def test_text_without_a_safe_place_stays_whole() -> None:
    tokenizer = byte_level("smollm")
    text = "-" * 30_000
    assert tokenizer.safe_cuts(text, 100) == []
    assert tokenizer.encode(text).tolist() == whole(tokenizer, text)


# llama.cpp turns white space beyond ASCII into a vertical tab before it looks for these families.
FOLDED = re.compile("[\x85\xa0\u2028\u3000]")


@pytest.mark.parametrize("family", CORE)
@QUICK
@given(text=TEXTS, parse_special=st.booleans())
def test_the_core_equals_tokenizers(family: str, text: str, parse_special: bool) -> None:
    if "deepseek" in family:
        text = FOLDED.sub(" ", text)
    tokenizer = byte_level(family)
    assert tokenizer.backend == "core"
    assert tokenizer.encode(text, parse_special=parse_special).tolist() == reference(
        tokenizer, text, parse_special
    )


@pytest.mark.parametrize("family", CORE)
@QUICK
@given(text=TEXTS, bits=st.integers(2, 4))
def test_a_tiny_memo_gives_the_same_ids(family: str, text: str, bits: int) -> None:
    tokenizer = byte_level(family)
    small = NativeBackend(tokenizer._vocabulary, memo_bits=bits)
    texts = [text, text[::-1], text]
    assert small.encode(texts, False)[0].tolist() == tokenizer.encode_batch(texts)[0].tolist()


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_change_nothing(threads: int) -> None:
    randomly = random.Random(threads)
    texts = ["".join(randomly.choices(UNITS, k=randomly.randint(0, 9000))) for _ in range(60)]
    for family in ("qwen2", "deepseek-llm"):
        tokenizer = byte_level(family)
        native = NativeBackend(tokenizer._vocabulary)
        native.threads = threads
        ids, lengths = native.encode(texts, False)
        assert ids.tolist() == [i for text in texts for i in tokenizer.encode(text).tolist()]
        assert lengths.tolist() == [len(tokenizer.encode(text)) for text in texts]
