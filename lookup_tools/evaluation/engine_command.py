"""The command line that runs a source in a real engine."""

from __future__ import annotations

import shlex

from lookup_tools.drafting.params import ADAPTIVE, SOURCE_PARAMS, TRACE
from lookup_tools.drafting.source import SourceSpec
from lookup_tools.errors import FormatError
from lookup_tools.formats.sniff import sniff

# What llama-server of b11434 understands; ngram-cache's thresholds are built into it.
SERVER_SOURCES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
_SERVER_CACHE_DRAFT = 8
_LOOKUP_DRAFT = 16  # the longest draft of --spec-type lookup, unless --lookup-n-max says otherwise


def engine_cache(static: str) -> tuple[str, str | None]:
    """The static cache as llama-server reads it: the file's name there, and the command that makes
    it where the file is a constmap, which only our tools open."""
    try:
        if sniff(static) == "legacy":
            return static, None
    except (OSError, FormatError):  # gone since it was replayed; the command says so itself
        return static, None
    converted = f"{static}.legacy"
    names = f"{shlex.quote(static)} -o {shlex.quote(converted)}"
    return converted, f"lookup-merge {names} --format legacy"


def engine_command(
    spec: SourceSpec, *, model: str | None = None, static: str | None = None
) -> str | None:
    """A llama-server command line for this source (bmoe's for ngram-suffix); None where no engine
    has flags for it. ngram-adaptive is in the llama-server that `make engines` builds."""
    kinds = spec.kinds
    name = shlex.quote(model or "MODEL.gguf")
    if kinds == [ADAPTIVE]:
        cache = f" -lcs {shlex.quote(static)}" if static else ""
        return f"llama-server -m {name} --spec-type lookup{cache}"
    if kinds == ["ngram-suffix"]:
        return f"bmoe -m {name} --ngram {_flags(spec)}"
    if TRACE in kinds or not set(kinds) <= set(SERVER_SOURCES):
        return None
    parts = [f"llama-server -m {name} --spec-type {','.join(kinds)}", _flags(spec)]
    before = None
    if "ngram-cache" in kinds and static:
        readable, before = engine_cache(static)
        parts.append(f"-lcs {shlex.quote(readable)}")
    command = " ".join(part for part in parts if part)
    return f"{before} && {command}" if before else command


def engine_notes(spec: SourceSpec, draft_max: int) -> list[str]:
    """Where the engine will not do what was replayed. llama-server bounds each n-gram source by its
    own size-m or n-max, and ngram-cache by 8, whatever --spec-draft-n-max says."""
    notes = []
    if spec.kinds == [ADAPTIVE]:
        notes.append("--spec-type lookup is in the llama-server that `make engines` builds")
        if draft_max != _LOOKUP_DRAFT:
            notes.append(f"add --lookup-n-max {draft_max} for drafts as long as here")
    for kind, values in zip(spec.kinds, spec.member_values(), strict=True):
        own = values.get("size_m", values.get("n_max", 0))
        if kind == "ngram-cache":
            own = _SERVER_CACHE_DRAFT
            if spec.member_values() != SourceSpec(spec.spec_type).member_values():
                notes.append("llama-server has ngram-cache's thresholds built in, as its defaults")
        if kind in SERVER_SOURCES and own > draft_max:
            notes.append(
                f"drafts were cut to {draft_max} tokens here, {kind} in llama-server makes {own}: "
                f"replay with --draft-max {own} for its figures"
            )
        elif kind == "ngram-cache" and own < draft_max:
            notes.append(f"llama-server's ngram-cache drafts up to {own} tokens, not {draft_max}")
    return notes


def off_command(model: str | None = None) -> str:
    return f"llama-server -m {shlex.quote(model or 'MODEL.gguf')} --spec-type none"


def _flags(spec: SourceSpec) -> str:
    """Every parameter in force, except the thresholds of ngram-cache, which engines build in."""
    return " ".join(
        f"{SOURCE_PARAMS[kind][name].flag} {value}"
        for kind, values in zip(spec.kinds, spec.member_values(), strict=True)
        if kind != "ngram-cache"
        for name, value in values.items()
    )


def stats_flags(spec: SourceSpec) -> str:
    """The flags of lookup-stats for parameters that are not the default."""
    return " ".join(
        param.setting(value) for _, param, value in spec.given() if value != param.default
    )
