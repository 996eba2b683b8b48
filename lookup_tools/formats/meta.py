"""What a cache file says about itself: kept in a constmap's annex or in a legacy file's sidecar."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from lookup_tools.errors import FormatError, TokenizerMismatchError

_FINGERPRINT = re.compile("[0-9a-f]{16}")


@functools.cache
def tool_name() -> str:
    """This tool and its version, as files record it."""
    try:
        return f"lookup-tools {version('lookup-tools')}"
    except PackageNotFoundError:
        return "lookup-tools"


@dataclass(frozen=True, slots=True)
class CacheMeta:
    """Facts about a cache: no time stamps and no paths, so that equal inputs give equal bytes."""

    kind: str = "static"
    fingerprint: str | None = None
    tokenizer: str | None = None
    text_fingerprint: str | None = None
    vocab_size: int | None = None
    corpora: tuple[str, ...] = ()
    n_tokens: int | None = None
    n_ngrams: int = 0
    n_pairs: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    tool: str = field(default_factory=tool_name)

    def to_json(self) -> bytes:
        return json.dumps(
            self.recorded(), sort_keys=True, ensure_ascii=False, separators=(",", ":")
        ).encode()

    def recorded(self) -> dict[str, Any]:
        """What files hold of it. A text fingerprint that is not known is left out, as in files from
        before there was one."""
        body = asdict(self)
        if self.text_fingerprint is None:
            del body["text_fingerprint"]
        return body

    @classmethod
    def from_json(cls, data: bytes | str | dict[str, Any], where: str) -> CacheMeta:
        """The reverse; unknown keys are ignored.

        Raises:
            FormatError: not such a JSON object.
        """
        try:
            found = data if isinstance(data, dict) else json.loads(data)
            if not isinstance(found, dict):
                raise TypeError(f"a {type(found).__name__}")
            known = {f.name: found[f.name] for f in fields(cls) if f.name in found}
            require_type(known.get("corpora", []), list, "corpora")
            meta = cls(**{"tool": "", **known, "corpora": tuple(known.get("corpora", ()))})
            meta._require_types()
            meta.to_json()  # a lone surrogate could neither be written again nor shown
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(
                f"{where}: found metadata that is no JSON of ours ({error}); rebuild the cache"
            ) from None
        return meta

    def _require_types(self) -> None:
        for name in ("fingerprint", "text_fingerprint", "tokenizer"):
            require_type(getattr(self, name), (str, type(None)), name)
        if self.text_fingerprint is not None and not _FINGERPRINT.fullmatch(self.text_fingerprint):
            raise ValueError(f"text_fingerprint is {self.text_fingerprint!r:.80}")
        for text in (self.kind, self.tool, *self.corpora):
            require_type(text, str, "a name")
        require_type(self.options, dict, "options")
        require_count(self.n_ngrams, 0, "n_ngrams")
        require_count(self.n_pairs, 0, "n_pairs")
        if self.n_tokens is not None:
            require_count(self.n_tokens, 0, "n_tokens")
        if self.vocab_size is not None:
            require_count(self.vocab_size, 1, "vocab_size", most=2**31)

    @property
    def tokenizer_name(self) -> str:
        return self.tokenizer or self.fingerprint or "an unnamed vocabulary"


def require_type(value: object, kinds: type | tuple[type, ...], name: str) -> None:
    """TypeError unless `value` is of one of the kinds (a bool is no int)."""
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r:.80}")


def require_count(value: object, least: int, name: str, most: int = 2**63 - 1) -> None:
    """TypeError or ValueError unless `value` is an int in a range."""
    require_type(value, int, name)
    if not least <= cast(int, value) <= most:
        raise ValueError(f"{name} is {value!r:.80}")


def require_same_tokenizer(
    path: str,
    meta: CacheMeta | None,
    fingerprint: str | None,
    name: str,
    text_fingerprint: str | None = None,
) -> None:
    """Refuse a cache that was made with another vocabulary; files that do not say pass. Of a file
    that an engine saved only the text fingerprint is known.

    Raises:
        TokenizerMismatchError: both fingerprints are known and differ; both names are given.
    """
    if meta is None:
        return
    ours, theirs = fingerprint, meta.fingerprint
    if ours is None or theirs is None:
        ours, theirs = text_fingerprint, meta.text_fingerprint
    if ours is not None and theirs is not None and ours != theirs:
        raise TokenizerMismatchError(
            f"{path}: found a cache made with {meta.tokenizer_name}, expected {name}: its ids "
            "mean other text here; rebuild it with this vocabulary, or pass --ignore-vocabulary"
        )
