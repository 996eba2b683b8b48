"""Parameters of the draft sources: one table of names, flags, places, ranges and defaults.

Free of the C core, so that a command can list its options without loading it.
"""

from __future__ import annotations

from typing import NamedTuple

from lookup_tools.errors import ParameterError

MAX_LENGTH = 1024  # llama.cpp's own bound for n-gram and draft lengths
_MAX_INT = 2**31 - 1
_MAX_HITS = 16_380  # where ngram-map's counts stop
TRACE = "trace"
ADAPTIVE = "ngram-adaptive"
CACHE_USERS = ("ngram-cache", ADAPTIVE)  # draft from static and dynamic caches
THRESHOLD = "--threshold"  # one flag for all of ngram-cache's: --threshold NAME=VALUE


class Param(NamedTuple):
    """One parameter of one source."""

    name: str
    flag: str
    place: tuple[str | int, ...]  # member of the C struct, and inside it
    default: int
    help: str
    least: int
    largest: int

    @property
    def stem(self) -> str:
        """The flag as a Python name; no two sources share one."""
        return self.flag.removeprefix(THRESHOLD).strip(" -").replace("-", "_")

    def setting(self, value: int) -> str:
        """The flag with a value, as it stands on a command line."""
        return f"{self.flag}{'=' if self.flag.startswith(THRESHOLD) else ' '}{value}"

    def check(self, value: int) -> int:
        """The value as given.

        Raises:
            ParameterError: not an integer, or outside the range.
        """
        if isinstance(value, bool) or not isinstance(value, int):
            raise ParameterError(f"{self.name}: found {value!r}, expected an integer")
        if not self.least <= value <= self.largest:
            raise ParameterError(
                f"{self.name}: found {value}, expected {self.least} to {self.largest}"
            )
        return value


def _by_name(*params: Param) -> dict[str, Param]:
    return {param.name: param for param in params}


def _cache_tier(tier: str, samples: tuple[int, ...], percent: tuple[int, ...]) -> list[Param]:
    found = []
    for kind, defaults, least, largest, says in (
        ("samples", samples, 1, _MAX_INT, "followers counted in all"),
        ("percent", percent, 0, 100, "share of the best follower"),
    ):
        for n, default in enumerate(defaults, 1):
            name = f"{tier}_{kind}_{n}"
            text = f"ngram-cache: least {says} for a {n}-gram of the {tier} tier."
            flag = f"{THRESHOLD} {name.replace('_', '-')}"
            found.append(Param(name, flag, (tier, kind, n - 1), default, text, least, largest))
    return found


def _sized(kind: str, flag: str, *names: tuple[str, int, int, int, str]) -> dict[str, Param]:
    return _by_name(
        *(
            Param(
                name, f"--{flag}-{name.replace('_', '-')}", (name,), default, f"{kind}: {text}.",
                least, largest,
            )
            for name, default, least, largest, text in names
        )
    )  # fmt: skip


def _map_params(kind: str, hits: str) -> dict[str, Param]:
    return _sized(
        kind,
        f"spec-{kind}",
        ("size_n", 12, 1, MAX_LENGTH, "tokens that must match"),
        ("size_m", 48, 1, MAX_LENGTH, "most tokens in a draft"),
        ("min_hits", 1, 1, _MAX_HITS, hits),
    )


# Source: drafting.md, section 2; llama.cpp's defaults.
CACHE_PARAMS: dict[str, Param] = _by_name(
    *_cache_tier("context", (2, 2, 1, 1), (66, 50, 50, 50)),
    *_cache_tier("dynamic", (4, 3, 2, 2), (75, 66, 66, 66)),
    Param(
        "static_samples", f"{THRESHOLD} static-samples", ("static_samples",), 2,
        "ngram-cache: least followers counted in all for the static tier.", 1, _MAX_INT,
    ),
    Param(
        "static_percent", f"{THRESHOLD} static-percent", ("static_percent",), 50,
        "ngram-cache: least share of the best follower for the static tier.", 0, 100,
    ),
)  # fmt: skip

# Source: drafting.md, section 3; llama.cpp's flags and defaults, bmoe's for ngram-suffix.
SOURCE_PARAMS: dict[str, dict[str, Param]] = {
    "ngram-cache": CACHE_PARAMS,
    "ngram-simple": _sized(
        "ngram-simple",
        "spec-ngram-simple",
        ("size_n", 12, 1, MAX_LENGTH, "tokens that must match"),
        ("size_m", 48, 1, MAX_LENGTH, "most tokens in a draft"),
    ),
    "ngram-map-k": _map_params("ngram-map-k", "as llama.cpp's flag, without effect"),
    "ngram-map-k4v": _map_params("ngram-map-k4v", "matches of a key before it drafts"),
    "ngram-mod": _sized(
        "ngram-mod",
        "spec-ngram-mod",
        ("n_match", 24, 1, MAX_LENGTH, "tokens that must match; below 16 chance matches abound"),
        ("n_min", 48, 0, MAX_LENGTH, "shorter drafts are not made"),
        ("n_max", 64, 1, MAX_LENGTH, "most tokens in a draft"),
    ),
    "ngram-suffix": _by_name(
        Param("draft", "--draft", ("draft",), 3, "ngram-suffix: most tokens in a draft.", 1, 8),
        Param(
            "min_match", "--ngram-min-match", ("min_match",), 3,
            "ngram-suffix: shorter matches are declined.", 1, MAX_LENGTH,
        ),
        Param(
            "max_match", "--ngram-max-match", ("max_match",), 64,
            "ngram-suffix: where matches stop being compared.", 1, MAX_LENGTH,
        ),
    ),
    ADAPTIVE: _by_name(
        Param(
            "memory", "--spec-ngram-adaptive-memory", ("dynamic_bytes",), 256,
            "ngram-adaptive: MiB for what earlier texts said.", 0, 1 << 16,
        ),
    ),
    TRACE: {},
}  # fmt: skip

ALL_PARAMS: dict[str, Param] = {
    param.stem: param for params in SOURCE_PARAMS.values() for param in params.values()
}


def member_kinds(spec_type: str) -> list[str]:
    """The kinds of a chain's members: `a,b` -> [a, b]; `trace:FILE` is a `trace`.

    Raises:
        ParameterError: an unknown kind, one that stands twice, or a trace without a file.
    """
    kinds = []
    for name in (part.strip() for part in spec_type.split(",")):
        kind, colon, file = name.partition(":")
        if kind not in SOURCE_PARAMS or (kind == TRACE) != bool(colon and file):
            known = ", ".join(TRACE + ":FILE" if each == TRACE else each for each in SOURCE_PARAMS)
            raise ParameterError(f"found spec type {name!r}, expected one of {known}")
        if kind in kinds and kind != TRACE:
            raise ParameterError(f"found {kind} twice in {spec_type!r}, expected it once")
        kinds.append(kind)
    return kinds


def find_param(kinds: list[str], name: str) -> tuple[int, Param]:
    """Which member of a chain a parameter belongs to: by its flag, or by its short name where only
    one member has it.

    Raises:
        ParameterError: nobody's, or several members'.
    """
    wanted = name.removeprefix("--").replace("-", "_")
    own = [(at, param) for at, kind in enumerate(kinds) for param in SOURCE_PARAMS[kind].values()]
    found = [each for each in own if each[1].stem == wanted]
    found = found or [each for each in own if each[1].name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        flags = " or ".join(param.flag for _, param in found)
        raise ParameterError(f"found parameter {name!r} of several sources, expected {flags}")
    names = ", ".join(param.name for _, param in own) or "none"
    raise ParameterError(f"found parameter {name!r}, expected one of {names}")
