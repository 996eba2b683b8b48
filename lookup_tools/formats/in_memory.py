"""A constmap file in memory: what a legacy cache is turned into before drafting from it."""

from __future__ import annotations

import io
from collections.abc import Iterable

from lookup_tools.counting.counts import CountsBlock
from lookup_tools.formats.constmap import ConstmapWriter
from lookup_tools.formats.meta import CacheMeta


def static_in_memory(blocks: Iterable[CountsBlock]) -> memoryview:
    """The bytes of a constmap file without annex, from sorted blocks of 2-grams."""
    file = io.BytesIO()
    writer = ConstmapWriter(file, annex=False)
    for block in blocks:
        writer.write(block)
    writer.finish(CacheMeta())
    return file.getbuffer()
