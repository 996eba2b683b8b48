"""The table of pre-tokenizers: how each named one splits a text before byte-pair merging.

A row holds the regular expressions applied one after the other, each isolating its matches inside
the pieces the previous one left. llama.cpp's names are the keys (``tokenizer.ggml.pre``); several
names share a row. The expressions are facts about published models; where llama.cpp departs from
a model's own expression, the table follows llama.cpp, because the drafts run beside it.

Source: llama.cpp, ``src/llama-vocab.cpp``, ``llm_tokenizer_bpe`` and ``llama_vocab::impl::load``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lookup_tools.errors import TokenizerError

#: Where a text may be cut (see ``cuts.py``): any letters, ASCII letters only, or nowhere.
CutKind = Literal["letters", "ascii", "none"]


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One row: ``family`` names it, ``names`` are llama.cpp's names for it."""

    family: str
    names: tuple[str, ...]
    splits: tuple[str, ...]
    ignore_merges: bool = False  # a piece that is a whole token is never merged up
    cuts: CutKind = "letters"


_SPACES = r"\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + _SPACES
_SHORT = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
_LLAMA3 = rf"(?:{_SHORT})|{_WORD}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_QWEN2 = rf"(?:{_SHORT})|{_WORD}|\p{{N}}|{_MARKS}|{_SPACES}"
# Upper-case-ish letters, then lower-case-ish ones: llama.cpp looks at ASCII case only.
_UPPER, _LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}|{_SLASH}|{_SPACES}"
)
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?:{_SHORT})?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?:{_SHORT})?"
    rf"|\p{{N}}{{1,3}}|{_SLASH}|{_SPACES}"
)
_ASCII_MARK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_DEEPSEEK3 = (
    _ASCII_MARK
    + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|"
    + _SPACES
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_CJK_HANGUL = "[一-龥ࠀ-一가-퟿]+"
# DeepSeek LLM lists the letters of alphabets with two cases, and the punctuation, range by range.
_DEEPSEEK_LETTERS = (
    r"\s?[A-Za-z"
    "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+"
)
_DEEPSEEK_MARKS = r"\s?[!-/:-~！-／：-～‘-‟　-。]+"

_TABLE = (
    PreTokenizer(
        "gpt-2",
        (
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ),
        (_GPT2,),
    ),
    PreTokenizer(
        "smollm",
        (
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ),
        (r"\p{N}", _GPT2),
    ),
    PreTokenizer(
        "llama-bpe",
        (
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ),
        (_LLAMA3,),
        ignore_merges=True,
    ),
    PreTokenizer("dbrx", ("dbrx", "smaug-bpe", "chatglm-bpe"), (_LLAMA3,)),
    PreTokenizer("glm4", ("glm4", "glm5"), (_LLAMA3,), ignore_merges=True),
    PreTokenizer(
        "qwen2",
        (
            "qwen2",
            "stablelm2",
            "megrez",
            "deepseek-r1-qwen",
            "hunyuan",
            "solar-open",
            "kormo",
            "f2llmv2",
            "grok-2",
        ),
        (_QWEN2,),
    ),
    PreTokenizer(
        "qwen35",
        ("qwen35",),
        (
            rf"(?:{_SHORT})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}",
        ),
    ),
    PreTokenizer(
        "falcon",
        ("falcon",),
        (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    ),
    PreTokenizer(
        "default",
        ("default", ""),
        (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    ),
    PreTokenizer(
        "deepseek-llm",
        ("deepseek-llm",),
        (r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_MARKS, r"\s+$", _CJK_HANGUL, r"\p{N}+"),
        cuts="ascii",
    ),
    PreTokenizer(
        "deepseek-coder",
        ("deepseek-coder",),
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_HANGUL, r"\p{N}"),
        cuts="ascii",
    ),
    PreTokenizer(
        "deepseek-v3",
        ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
        (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK3),
        cuts="ascii",
    ),
    PreTokenizer("tekken", ("tekken",), (_TEKKEN,), ignore_merges=True),
    PreTokenizer("gpt-4o", ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), (_GPT4O,)),
    PreTokenizer(
        "seed-coder",
        ("seed-coder",),
        (rf"(?:{_SHORT})|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|{_SPACES}",),
    ),
    PreTokenizer(
        "bailingmoe",
        ("bailingmoe", "bailingmoe2", "llada-moe"),
        (
            rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|{_SPACES}",
        ),
        cuts="ascii",
    ),
    PreTokenizer("bloom", ("bloom", "poro-chat", "gpt3-finnish"), (_BLOOM,), cuts="ascii"),
    PreTokenizer("viking", ("viking",), (_BLOOM, r"\p{N}"), cuts="ascii"),
    # Words may span spaces, so no place is sure to be a break.
    PreTokenizer("superbpe", ("superbpe",), (r"\p{N}+", r"(?=(\d{3})+(?!\d))"), cuts="none"),
)

_BY_NAME = {name: row for row in _TABLE for name in row.names}


def supported_names() -> list[str]:
    """Every pre-tokenizer name that is understood, sorted."""
    return sorted(name for name in _BY_NAME if name)


def pre_tokenizer(name: str) -> PreTokenizer:
    """Return the row of one of llama.cpp's names; the empty name is ``default``.

    Raises:
        TokenizerError: the name is not supported; the message lists those that are.
    """
    row = _BY_NAME.get(name)
    if row is None:
        raise TokenizerError(
            f"found the pre-tokenizer {name!r}, expected one of: {', '.join(supported_names())}; "
            "use a tokenizer.json of the same model instead"
        )
    return row


def all_rows() -> tuple[PreTokenizer, ...]:
    """The whole table, for tests and the documentation."""
    return _TABLE
