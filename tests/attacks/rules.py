"""The registry of attacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Variant(NamedTuple):
    """A hostile cache file, and its sidecar if it has one."""

    data: bytes
    sidecar: bytes | None = None


Builder = Callable[[], Iterator[bytes | Variant]]
RULES: dict[str, Builder] = {}


def breaks(rule: str) -> Callable[[Builder], Builder]:
    """Enter a builder for one rule of docs/format.md."""

    def enter(builder: Builder) -> Builder:
        assert rule not in RULES, rule
        RULES[rule] = builder
        return builder

    return enter
