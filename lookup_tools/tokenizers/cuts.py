"""Where a large text may be cut so that its pieces give the ids of the whole.

A cut is safe where every pre-tokenizer of the family certainly starts a new piece, and where
neither side's splitting looks across it:

* between a letter and a space (or a Chinese comma or full stop) before a letter: a run of letters
  ends there whatever came before, nothing looks back, and the lookahead of the space rules never
  starts inside a word;
* between a newline and a letter, when the newline follows something that is not space: the
  whitespace run is that newline alone, so ``\\s+(?!\\S)`` takes it whole on both readings.

``llama`` vocabularies have no pre-tokenizer, but where no token has a space after another
character, no merge crosses the start of a word: words may be cut apart before their space.
Tokens recognised literally (user-defined ones, control tokens when parsed) must not span a cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lookup_tools.tokenizers.pretokenizers import CutKind

# Letters in every Unicode version that any of the libraries was built with.
_LETTERS = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0391-\u03a1\u03a3-\u03ce\u0410-\u044f"
    "\u05d0-\u05ea\u0621-\u063a\u0641-\u064a\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
)
_PATTERNS: dict[str, str] = {
    "letters": rf"[{_LETTERS}](?=[ \uff0c\u3002\u3001][{_LETTERS}])|\S\n(?=[{_LETTERS}])",
    "ascii": r"[A-Za-z](?= [A-Za-z])",
    "words": rf"[^\s\u2581](?= [{_LETTERS}])",
}
# A literal can span a safe place only if it holds the two characters at it.
_MAY_SPAN = re.compile(rf"[{_LETTERS}][ \uff0c\u3002\u3001]|\n[{_LETTERS}]")


class Cutter:
    """Finds safe cuts for one vocabulary.

    ``kind`` is the pre-tokenizer's, or "words" for a ``llama`` vocabulary whose merges stay inside
    words; ``literals`` are the token texts recognised before any splitting.
    """

    def __init__(self, kind: CutKind | str, literals: Iterable[str]) -> None:
        self._pattern = re.compile(_PATTERNS[kind]) if kind in _PATTERNS else None
        # In the "words" kind a literal must not even touch the cut: it decides about the space.
        self._touch = kind == "words"
        texts = [text for text in literals if text and (self._touch or _MAY_SPAN.search(text))]
        self._reach = max(map(len, texts), default=0)
        longest_first = sorted(texts, key=len, reverse=True)
        self._literal = re.compile("|".join(map(re.escape, longest_first))) if texts else None

    def find(self, text: str, target: int) -> list[int] | None:
        """Ascending cut positions, each at least ``target`` characters after the last.

        None where this vocabulary allows no cuts at all. Cost: a search of a few characters at
        every cut; without any safe place the rest of the text is scanned once.
        """
        if self._pattern is None:
            return None
        cuts: list[int] = []
        at = 0
        while at + target < len(text):
            cut = self._next(text, at + target - 1)
            if cut is None:
                break
            cuts.append(cut)
            at = cut
        return cuts

    def _next(self, text: str, start: int) -> int | None:
        assert self._pattern is not None
        while True:
            match = self._pattern.search(text, start)
            if match is None:
                return None
            if not self._inside_literal(text, match.end()):
                return match.end()
            start = match.end()

    def _inside_literal(self, text: str, cut: int) -> bool:
        """Whether some literal's occurrence spans the cut (or touches it, or the next space)."""
        if self._literal is None:
            return False
        slack = 1 if self._touch else 0
        at = max(0, cut - self._reach)
        end = cut + self._reach + slack
        while (match := self._literal.search(text, at, end)) is not None:
            if match.start() < cut + 2 * slack and match.end() > cut - slack:
                return True
            at = match.start() + 1
        return False
