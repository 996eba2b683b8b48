"""What a llama-server is started with: the command line, and the files it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lookup_tools.cache import open_cache
from lookup_tools.cache.load_cost import require_vocabulary
from lookup_tools.errors import FormatError, ParameterError
from lookup_tools.evaluation.engine_command import engine_cache
from lookup_tools.formats.sniff import sniff
from lookup_tools.tokenizers import open_tokenizer

Role = Literal["static", "dynamic"]
HOST = "127.0.0.1"
LOOKUP = "lookup"  # the source of integrations/llama.cpp, which reads every format
_READ_CACHES = ("ngram-cache", LOOKUP)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a llama-server runs with.

    `spec_type` None means ngram-cache where a cache is given and no drafting where none is;
    `lookup` needs a server with our integration. `n_ctx` is the context of each slot; `extra` is
    added to the command line as it is.
    """

    model: str
    static: str | None = None
    dynamic: str | None = None
    spec_type: str | None = None
    slots: int = 1
    n_ctx: int = 2048
    threads: int | None = None
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.slots < 1 or self.n_ctx < 1:
            raise ParameterError(
                f"found {self.slots} slots of {self.n_ctx} tokens, expected at least 1 of each"
            )
        if (self.static or self.dynamic) and not set(_READ_CACHES) & set(self.drafts.split(",")):
            raise ParameterError(
                f"found a cache with spec_type {self.drafts!r}, expected ngram-cache or lookup in "
                "it: nothing else reads caches; leave the cache out for a baseline"
            )

    @property
    def drafts(self) -> str:
        """The value of --spec-type."""
        if self.spec_type is not None:
            return self.spec_type
        return "ngram-cache" if self.static or self.dynamic else "none"

    @property
    def needs_lookup(self) -> bool:
        """Whether only a server with our integration can run this."""
        return LOOKUP in self.drafts.split(",")

    def arguments(self, port: int) -> list[str]:
        """The command line after the program's name."""
        words = ["-m", self.model, "--host", HOST, "--port", str(port)]
        words += ["-c", str(self.slots * self.n_ctx), "-np", str(self.slots)]
        if self.threads is not None:
            words += ["-t", str(self.threads)]
        words += ["--spec-type", self.drafts]
        for flag, path in (("-lcs", self.static), ("-lcd", self.dynamic)):
            words += [flag, path] if path else []
        return [*words, *self.extra]

    def check_files(self, *, ignore_vocabulary: bool = False) -> None:
        """Refuse now what llama-server would abort on, or take without a word. Our integration
        refuses such files itself, before it loads the model."""
        with open(self.model, "rb"):
            pass
        if "ngram-cache" not in self.drafts.split(","):
            return
        if self.static:
            require_engine_cache(
                self.static, "static", self.model, ignore_vocabulary=ignore_vocabulary
            )
        if self.dynamic:
            require_engine_cache(
                self.dynamic, "dynamic", self.model, ignore_vocabulary=ignore_vocabulary
            )


def require_engine_cache(
    path: str, role: Role, model: str | None = None, *, ignore_vocabulary: bool = False
) -> None:
    """Refuse a file that llama.cpp cannot use as its static (-lcs) or dynamic (-lcd) cache: all of
    it is read and checked.

    Raises:
        FormatError: it is no legacy cache, or damaged; a constmap's message has the command that
            converts it.
        TokenizerMismatchError: it was made with another vocabulary than `model`'s.
        OSError: it cannot be read.
    """
    found = sniff(path)
    if found != "legacy":
        raise FormatError(
            f"{path}: found a {found}, expected a legacy cache, the only format that llama.cpp "
            f"reads; convert it: {engine_cache(path)[1]}"
        )
    with open_cache(path) as cache:
        if role == "static" and 2 not in cache.orders:
            raise FormatError(
                f"{path}: found no 2-grams, expected a static cache; pass this file with -lcd"
            )
        if model is not None and cache.meta is not None:
            tokenizer = open_tokenizer(model)
            ours = tokenizer.fingerprint, tokenizer.name, tokenizer.text_fingerprint
            require_vocabulary(cache, *ours, ignore=ignore_vocabulary)
