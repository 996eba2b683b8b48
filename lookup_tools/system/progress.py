"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

# Called with a phase, what is done, and the total or None; cheap enough for every batch.
Progress = Callable[[str, int, "int | None"], None]
