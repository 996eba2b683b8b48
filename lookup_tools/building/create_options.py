"""What to count and how to write it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lookup_tools.counting.counts import ORDERS, Prune
from lookup_tools.errors import ParameterError
from lookup_tools.formats.sniff import CacheFormat
from lookup_tools.formats.write_cache import KIND_ORDERS, KINDS, WriteOptions, default_format


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """What to count and how to write it; see `lookup-create --help`."""

    kind: str = "static"
    fmt: CacheFormat | None = None
    ngram_min: int | None = None
    ngram_max: int | None = None
    concatenate: bool = False
    bos: bool = False
    parse_special: bool = False
    prune: Prune = field(default_factory=Prune)
    max_size: int | None = None
    max_tokens: int | None = None
    memory: int | None = None
    tmpdir: str | None = None
    save_tokens: str | None = None
    annex: bool = True
    map_hash: str = "xxh64"
    threads: int | None = None
    force: bool = False

    @property
    def orders(self) -> tuple[int, ...]:
        if self.kind not in KINDS:
            raise ParameterError(f"found kind {self.kind!r}, expected one of {', '.join(KINDS)}")
        usual = KIND_ORDERS[self.kind]
        low = self.ngram_min if self.ngram_min is not None else usual[0]
        high = self.ngram_max if self.ngram_max is not None else max(usual[-1], low)
        if not 1 <= low <= high <= max(ORDERS):
            raise ParameterError(
                f"found n-gram sizes {low} to {high}, expected 1 <= min <= max <= {max(ORDERS)}"
            )
        return tuple(range(low, high + 1))

    @property
    def format(self) -> CacheFormat:
        return self.fmt or default_format(self.kind)

    @property
    def write(self) -> WriteOptions:
        return WriteOptions(self.format, self.annex, self.map_hash, self.force)

    def recorded(self) -> dict[str, object]:
        """The options that change counts, for the file's metadata."""
        return {
            "bos": self.bos,
            "concatenate": self.concatenate,
            "max_tokens": self.max_tokens,
            "max_size": self.max_size,
            "min_count": self.prune.min_count,
            "top_k": self.prune.top_k,
            "orders": list(self.orders),
            "parse_special": self.parse_special,
        }
