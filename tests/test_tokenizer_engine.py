"""Ids are those of the engine's own tokenizer: libllama of the installed llama-cpp-python.

Real vocabularies, and made-up ones for every family in which any two bytes merge, so that a wrong
split shows. ``LOOKUP_TEXTS`` sets how many texts each gets (make long-test: 20,000).
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from engine_tokenizer import EngineTokenizer
from test_tokenizers import NINE, VOCABULARIES, needs_shared, smollm2, write_gguf
from texts_hostile import PIECES, texts

from lookup_tools.tokenizers import open_tokenizer
from lookup_tools.tokenizers.bytelevel import BYTE_TO_CHAR, to_chars
from lookup_tools.tokenizers.pretokenizers import all_rows

pytestmark = pytest.mark.engine
COUNT = int(os.environ.get("LOOKUP_TEXTS", "300"))
CORE = [row for row in all_rows() if row.family != "superbpe"]


def differences(path: Path, count: int, seed: str) -> list[tuple[str, bool]]:
    """The texts for which the engine gives other ids, literal and parsed."""
    ours, engine = open_tokenizer(path), EngineTokenizer(path)
    literals = ours._vocabulary.literals(parse_special=True)[:400]
    found = [
        (text, special)
        for text in texts(random.Random(seed), count, literals)
        for special in (False, True)
        if ours.encode(text, parse_special=special).tolist()
        != engine.encode(text, parse_special=special)
    ]
    engine.close()
    return found


def made_up(path: Path, pre: str) -> Path:
    """Any two bytes that occur in the texts merge, in a shuffled order; some literal tokens."""
    randomly = random.Random(pre)
    chars = sorted(set(to_chars("".join(PIECES).encode("utf-8", "replace"))))
    pairs = [f"{a} {b}" for a in chars for b in chars]
    randomly.shuffle(pairs)
    longer = [f"{m.replace(' ', '')} {c}" for m in pairs[:2000] for c in randomly.sample(chars, 2)]
    merges = [*pairs, *dict.fromkeys(longer)]
    tokens = list(dict.fromkeys([*BYTE_TO_CHAR.values(), *(m.replace(" ", "", 1) for m in merges)]))
    added = ["<|end|>", "<|x|>", "</s>", "  ", "   ", "ab", "b<|", "<|message|>", "中文"]
    added = [text for text in added if text not in set(tokens)]
    kinds = [1] * len(tokens) + [3, 4, 1, 4, 4, 4, 4, 3, 4][: len(added)]
    tokens += added
    return write_gguf(path, pre=pre, tokens=tokens, types=kinds, merges=merges, bos=0)


@needs_shared
@pytest.mark.parametrize("name", [*NINE, "SmolLM2"])
def test_real_vocabularies_equal_the_engine(name: str) -> None:
    path = smollm2() if name == "SmolLM2" else VOCABULARIES / f"ggml-vocab-{name}.gguf"
    assert differences(path, COUNT, name) == []


@pytest.mark.parametrize("row", CORE, ids=lambda row: row.family)
def test_made_up_vocabularies_equal_the_engine(row, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    name = next(name for name in row.names if name)
    path = made_up(tmp_path / "made-up.gguf", name)
    assert open_tokenizer(path).backend == "core"
    assert differences(path, COUNT, name) == []


def test_every_name_of_a_family_is_split_alike(tmp_path: Path) -> None:
    for name in [name for row in CORE for name in row.names if name]:
        path = write_gguf(tmp_path / f"{name}.gguf", pre=name)
        assert differences(path, 20, name) == [], name
