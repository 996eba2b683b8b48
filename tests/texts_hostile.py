"""Texts that tokenizers get wrong: every kind of character side by side, lengths around the sizes
of buffers, literal tokens cut and overlapping, runs."""

from __future__ import annotations

import random
from collections.abc import Iterator

_BLANK = (
    "20 20,20 20,20,20,20 09 0a 0d 0d,0a 0a,0a 0b 0c 00 1f 7f 85 a0 1680 2003 2028 2029 202f 3000"
)
_VISIBLE = r"""
a b z A Z 0 9 ' " ! $ < > | ` _ - / . , ; : ( ) [ ] { } ~ ^ = + * & % # @ ? \
's 'S 'll 'LL 're 'Ve 'd ’s 'ſ The hello word WORD camelCase HTML5 123 4567 https://a.b/c?d=e
é É ß ñ é я Ж ѐ α Ω ǅ ª ʰ µ 中 文 中文字 龥 龦 㐀 𠀀 豈 、 。 ， ！ … ‘ “ あ ゟ ア ・ 한 국어 ㄱ ㄅ
ก ำ क ि ্ আ ა Ⴀ ᏸ ا ؟ ۔ א ߀ ꦀ ² ½ Ⅷ ① Ⓐ ⓩ 🄰 🅰 〇 〡 ٣ १ 𝟘 𝒜 👍 🇩🇪 € ∑ → © $5 ▁ ▁▁ Ġ Ċ
<0x0A> <| |> </s> <s> <unk>
"""
_JOINED = (
    "\u0301 \u0488 e\u0301 \u200b \u200d \ufeff \u00ad \ue000 \u0378 \uffff \U000e0041 👩\u200d💻"
)
PIECES = [
    *("".join(chr(int(c, 16)) for c in each.split(",")) for each in _BLANK.split()),
    *_VISIBLE.split(),
    *_JOINED.split(),
    *(" the", " World", "12 34", "def f(x):\n    return x\n"),
]
LENGTHS = (1, 2, 3, 7, 8, 14, 15, 16, 17, 30, 31, 32, 33, 63, 64, 65, 66, 127, 255)


def _mixed(randomly: random.Random) -> str:
    return "".join(randomly.choices(PIECES, k=randomly.randint(1, 24)))


def _few_kinds(randomly: random.Random) -> str:
    kinds = randomly.sample(PIECES, randomly.randint(1, 4))
    return "".join(randomly.choices(kinds, k=randomly.randint(1, 60)))


def _run(randomly: random.Random) -> str:
    size = randomly.choice(LENGTHS)
    return randomly.choice(PIECES)[:1] * size + randomly.choice(PIECES)


def _letters(randomly: random.Random) -> str:
    size = randomly.choice(LENGTHS) + randomly.randint(-1, 1)
    return " " + "".join(randomly.choices("etaoinshrdlu", k=size)) + randomly.choice(PIECES)


def _code_points(randomly: random.Random) -> str:
    points = [randomly.choice((0x250, 0x3000, 0x10000, 0x20000)) for _ in range(20)]
    chars = (chr(randomly.randrange(limit)) for limit in points)
    return "".join(c for c in chars if not "\ud800" <= c <= "\udfff")


def texts(randomly: random.Random, count: int, literals: list[str]) -> Iterator[str]:
    """``count`` texts; a third of them hold some of the ``literals``, whole and cut."""
    makers = (_mixed, _mixed, _few_kinds, _run, _letters, _code_points)
    for _ in range(count):
        text = randomly.choice(makers)(randomly)
        if literals and randomly.random() < 0.3:
            for _ in range(randomly.randint(1, 3)):
                literal, at = randomly.choice(literals), randomly.randint(0, len(text))
                if randomly.random() < 0.3:
                    literal = literal[
                        randomly.randint(0, 1) : len(literal) - randomly.randint(0, 1)
                    ]
                text = text[:at] + literal + text[at:]
        yield text
