"""Memory of our own, on systems that lack something of Linux."""

from __future__ import annotations

import mmap

import numpy as np

from lookup_tools.system.mapping import GrowingWords


class Rigid(mmap.mmap):
    """A mapping where there is no mremap, as Python has it on macOS."""

    def resize(self, size: int, /) -> None:
        raise SystemError("mmap: resizing not available--no mremap()")


def test_words_grow_where_mappings_cannot() -> None:
    rng = np.random.default_rng(3)
    parts = [rng.integers(0, 2**64, n, np.uint64) for n in (10, 100_000, 1, 300_000)]
    grown = []
    for words in (GrowingWords(), GrowingWords()):
        if grown:
            words._mapping = Rigid(-1, len(words._mapping))
        for part in parts:
            words.append(part)
        grown.append(words.words())
    assert np.array_equal(grown[0], np.concatenate(parts))
    assert np.array_equal(grown[1], grown[0])
