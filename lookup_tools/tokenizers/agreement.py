"""Where tokie may be trusted: it is some twenty times faster, and wrong in a few rare places.

tokie 0.1.4 was compared with tokenizers 0.23.3 family by family: the published llama.cpp vectors,
English prose, Python sources, every assigned code point in two dozen contexts, all short strings
over a hostile alphabet, long random ones, with real vocabularies and with made-up ones in which
any two bytes merge, so that every wrong split shows. Texts without the places named here gave the
same ids throughout; a text (or a piece of one) that has such a place goes to ``tokenizers``.
"""

from __future__ import annotations

import re

from lookup_tools.tokenizers.bytelevel import (
    BYTE_TO_CHAR,
    code_points_of,
    missing_bytes,
    to_bytes,
)
from lookup_tools.tokenizers.pretokenizers import TokieRule
from lookup_tools.tokenizers.vocabulary import NORMAL, Vocabulary

#: tokie splits longer texts by itself, not always where it may.
MAX_BYTES = 9_999
_GROUP_CHARS = 2_400
# Tokens of 256 bytes and more come out wrong; stay well below.
_LONG_TOKEN = 200
# Alphabetic characters that are not letters: an apostrophe after one is no contraction to tokie.
_BEFORE_APOSTROPHE = "\u24b6-\u24e9\U00010000-\U0010ffff"
# Letter-like numbers that tokie takes for letters, and letters so new that the libraries' Unicode
# versions differ about them.
_RARE_LETTERS = (
    "\u16ee-\u16f0\u2160-\u2188\u3007\u3021-\u3029\u3038-\u303a\ua6e6-\ua6ef"
    "\u088f\u0897\u0c5c\u0cdc\ua7ce-\ua7d5\ua7f1"
)
# Beyond U+FFFF all of it but mathematical letters, pictures and the older Chinese characters.
_RARE_PLANES = "\U00010000-\U0001cfff\U0001e000-\U0001efff\U000323b0-\U0010ffff"
_ODD_SPACES = "\x0b\x0c\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# Every pattern begins with a literal or is a single set: ``re`` scans those fast.
# Sets that reach beyond U+FFFF are slow, so those are apart.
_RARE = {"gpt2": _RARE_LETTERS, "words": f"{_ODD_SPACES}\u24b6-\u24e9{_RARE_LETTERS}"}
_ASTRAL = {"gpt2": _RARE_PLANES, "words": f"{_RARE_PLANES}\U0001f130-\U0001f189"}
_PLACES: dict[TokieRule, tuple[re.Pattern[str], ...]] = {
    "gpt2": (
        re.compile(f"'(?<=[\t{_BEFORE_APOSTROPHE}]')"),
        re.compile(r"\xa0(?:(?<=\s\xa0)|(?=\s))"),
    ),
    # Beyond those: a tab before a mark, and blank lines that hold spaces unless a space came first.
    "words": (
        re.compile(f"'(?<=[{_BEFORE_APOSTROPHE}]')"),
        re.compile("\t(?=[^ \t\r\nA-Za-z0-9])"),
        re.compile(r"\n(?<!\s\n)[\r\n]*[ \t]+[\r\n]"),
        re.compile(r"\r[\r\n]*[ \t]+[\r\n]"),
    ),
}
# tokie joins a tab or an apostrophe to the letters after it under the "gpt2" rule, which is
# harmless as long as the vocabulary has no token that spans the place.
_JOINED = re.compile(
    # Bytes E2 80 begin punctuation only, EE private characters; the rest may begin a letter.
    rb"\t[^\s\0]|'(?!(?:s|t|re|ve|m|ll|d)\0)(?:[A-Za-z\xc3-\xe1\xe3-\xed\xef-\xf4]|\xe2(?!\x80))"
)


class Doubt:
    """Decides for one vocabulary which texts tokie may encode."""

    def __init__(self, rule: TokieRule, vocabulary: Vocabulary) -> None:
        absent = list(map(code_points_of, missing_bytes(vocabulary.ids)))
        self._rare = re.compile(f"[{_RARE[rule]}{_ranges(absent, 0x80, 0xFFFF)}]")
        self._astral = re.compile(f"[{_ASTRAL[rule]}{_ranges(absent, 0x10000, 0x10FFFF)}]")
        self._places = _PLACES[rule]
        lacking = [chr(low) for low, _ in absent if low < 0x80]
        self._texts = ["\x0b", "\x0c", *lacking, *_long_tokens(vocabulary)]

    def __call__(self, text: str) -> bool:
        """Whether ``text`` has to go to ``tokenizers``.

        Cost: about 1 to 2 ns a character of ASCII text, 5 ns of other text.
        """
        if len(text) > MAX_BYTES // 4 and len(text.encode("utf-8", "replace")) > MAX_BYTES:
            return True
        return self._has_place(text)

    def indices(self, texts: list[str]) -> list[int]:
        """The positions of the doubtful texts; many short ones are tested in groups."""
        size = max(1, _GROUP_CHARS * len(texts) // (1 + sum(map(len, texts))))
        found = []
        for start in range(0, len(texts), size):
            group = texts[start : start + size]
            # A zero byte between texts hides no place: each needs no more than a space beside it.
            if (
                len(group) == 1
                or max(map(len, group)) > MAX_BYTES // 4
                or self._has_place("\0".join(group))
            ):
                found += [start + i for i, text in enumerate(group) if self(text)]
        return found

    def _has_place(self, text: str) -> bool:
        if not text.isascii() and self._rare.search(text):
            return True
        beyond_bmp = len(text.encode("utf-16-le", "surrogatepass")) > 2 * len(text)
        if beyond_bmp and self._astral.search(text):
            return True
        return any(other in text for other in self._texts) or any(
            place.search(text) for place in self._places
        )


def _ranges(found: list[tuple[int, int]], low: int, high: int) -> str:
    """The inside of a character set: those of the ranges that lie between two code points."""
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in found if low <= a and b <= high)


def trusted(rule: TokieRule, vocabulary: Vocabulary) -> bool:
    """Whether tokie may be used with this vocabulary at all."""
    if rule == "no" or any(byte in range(0x80, 0xC0) for byte in missing_bytes(vocabulary.ids)):
        return False
    return rule != "gpt2" or not _JOINED.search(_spelled(vocabulary))


def _spelled(vocabulary: Vocabulary) -> bytes:
    """All ordinary tokens that hold a tab or an apostrophe, each followed by a zero byte."""
    tab = BYTE_TO_CHAR[9]
    found = [
        to_bytes(token)
        for token, kind in zip(vocabulary.tokens, vocabulary.kinds.tolist(), strict=True)
        if kind == NORMAL and ("'" in token or tab in token)
    ]
    return b"\0".join([*found, b""])


def _long_tokens(vocabulary: Vocabulary) -> list[str]:
    """The shortest texts that every overlong token contains."""
    texts = sorted(
        (
            to_bytes(token).decode("utf-8", "replace")
            for token in vocabulary.tokens
            if len(token) >= _LONG_TOKEN
        ),
        key=len,
    )
    kept: list[str] = []
    for text in texts:
        if not any(other in text for other in kept):
            kept.append(text)
    return kept
