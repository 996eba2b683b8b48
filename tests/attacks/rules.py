"""The registry of attacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

Door = Literal["cache", "tokens", "gguf"]


class Variant(NamedTuple):
    """A hostile file: its bytes, its sidecar if it has one, its name, and whom it is meant for."""

    data: bytes
    sidecar: bytes | None = None
    name: str = "cache"
    door: Door = "cache"


Builder = Callable[[], Iterator[bytes | Variant]]
RULES: dict[str, Builder] = {}


def breaks(rule: str) -> Callable[[Builder], Builder]:
    """Enter a builder for one rule of docs/format.md."""

    def enter(builder: Builder) -> Builder:
        assert rule not in RULES, rule
        RULES[rule] = builder
        return builder

    return enter
