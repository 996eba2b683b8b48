"""What `ngram-adaptive` drafters share: caches, what was learned, the cost curve, the budget."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lookup_tools._native import check, ffi, lib, owned, u8
from lookup_tools.cache import Cache
from lookup_tools.drafting.cost_curve import CostCurve
from lookup_tools.errors import FormatError, TokenizerMismatchError
from lookup_tools.system.atomic import atomic_output

PRIOR = Path(__file__).with_name("prior.bin")
PRIOR_TRIALS = 40  # a prior's rates weigh as much as so many observations
_WIDEST = 64  # a curve of one point says nothing of further tokens
_LEAST_IN_BIN = 30


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Drafted tokens whose probability was said to be in [low, low + 0.1): how many, their mean
    probability, and the share that was accepted. Only tokens whose predecessors were all accepted
    count: of the others nothing is known."""

    low: float
    n: int
    predicted: float
    found: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Predicted against found; `mean_gap` is the mean difference of bins with 30 tokens or more."""

    mean_gap: float
    bins: list[CalibrationBin]


class AdaptiveGroup:
    """A `lookup_adaptive` of the C core. Its members are used from one thread at a time.

    Args:
        static, dynamic: caches or None; `dynamic` is read here, `static` must stay open.
        memory: bound of the dynamic tier in MiB, 0 for none.
        learned: a file of `save`; without one the prior that comes with the package.
        vocabulary: fingerprint to check `learned` against.

    Raises:
        FormatError: `learned` is no such file, or damaged.
        TokenizerMismatchError: it was learned with another vocabulary.
    """

    def __init__(
        self,
        static: Cache | None = None,
        dynamic: Cache | None = None,
        *,
        memory: int = 256,
        curve: CostCurve | None = None,
        learned: str | os.PathLike[str] | None = None,
        vocabulary: str | None = None,
    ) -> None:
        params = ffi.new("lookup_adaptive_params *")
        lib.lookup_adaptive_defaults(params)
        params.draft_max, params.dynamic_bytes = lib.LOOKUP_MAX_DRAFT, memory << 20
        view = static.static_view() if static is not None else ffi.NULL
        table = dynamic.table() if dynamic is not None else ffi.NULL
        self.handle = owned(
            "lookup_adaptive",
            lib.lookup_adaptive_free,
            lambda out: lib.lookup_adaptive_new(params, view, table, out),
            "ngram-adaptive",
        )
        self._static = static
        self.set_curve(curve or CostCurve.example("dense"))
        if learned is not None:
            self._load(Path(learned), 0, vocabulary)
        elif PRIOR.exists():
            self._load(PRIOR, PRIOR_TRIALS, None)

    def set_curve(self, curve: CostCurve) -> None:
        """Drafts are as long as pays by this curve, from the next one on."""
        points = curve.points if len(curve.points) > 1 else ((1, 1.0), (_WIDEST, float(_WIDEST)))
        widths = ffi.new("int32_t[]", [width for width, _ in points])
        costs = ffi.new("double[]", [cost for _, cost in points])
        check(lib.lookup_adaptive_set_costs(self.handle, widths, costs, len(points)), curve.name)

    def join(self) -> Any:
        """A further member, as a source."""
        return owned(
            "lookup_source",
            lib.lookup_source_free,
            lambda out: lib.lookup_adaptive_join(self.handle, out),
            "ngram-adaptive",
        )

    def draft(self, members: Sequence[tuple[Any, Any, int, int]], widest: int) -> list[list[int]]:
        """One draft for each member of the next batch.

        Args:
            members: source, pointer to its tokens, their number, most tokens to draft.
            widest: the largest of these bounds.
        """
        n = len(members)
        sources = ffi.new("lookup_source *[]", [each[0] for each in members])
        tokens = ffi.new("int32_t *[]", [each[1] for each in members])
        lengths = ffi.new("size_t[]", [each[2] for each in members])
        bounds = ffi.new("size_t[]", [each[3] for each in members])
        drafts, n_drafts = ffi.new("int32_t[]", n * widest + 1), ffi.new("size_t[]", n)
        status = lib.lookup_adaptive_draft(
            self.handle, sources, tokens, lengths, bounds, n, 0, drafts, widest, n_drafts
        )
        check(status, "ngram-adaptive")
        return [list(drafts[i * widest : i * widest + n_drafts[i]]) for i in range(n)]

    def calibration(self) -> Calibration:
        counts = ffi.new("lookup_adaptive_counts *")
        check(lib.lookup_adaptive_counters(self.handle, counts))
        bins, gaps = [], []
        for k in range(lib.LOOKUP_ADAPTIVE_BINS):
            n = counts.trials[k]
            predicted = counts.predicted[k] / 65536 / n if n else 0.0
            found = counts.accepted[k] / n if n else 0.0
            bins.append(CalibrationBin(k / lib.LOOKUP_ADAPTIVE_BINS, n, predicted, found))
            if n >= _LEAST_IN_BIN:
                gaps.append(abs(predicted - found))
        return Calibration(sum(gaps) / len(gaps) if gaps else 0.0, bins)

    def state(self, *, prior: bool = False, vocabulary: str | None = None) -> bytes:
        """What was learned, as `save` writes it; `prior` leaves out what is about single tokens."""
        kind = lib.LOOKUP_STATE_PRIOR if prior else lib.LOOKUP_STATE_LEARNED
        size = ffi.new("size_t *")
        check(lib.lookup_adaptive_state_size(self.handle, kind, size))
        data = np.empty(size[0], np.uint8)
        number = _number(vocabulary)
        check(lib.lookup_adaptive_state_save(self.handle, kind, number, u8(data), len(data)))
        return data.tobytes()

    def save(
        self, path: str | os.PathLike[str], *, vocabulary: str | None = None, force: bool = False
    ) -> None:
        """Write what was learned to a file, whole or not at all.

        Raises:
            ParameterError: the file exists and `force` is false.
        """
        with atomic_output(path, force=force) as file:
            file.write(self.state(vocabulary=vocabulary))

    def _load(self, path: Path, cap: int, vocabulary: str | None) -> None:
        data = np.frombuffer(path.read_bytes(), np.uint8)
        if not len(data):
            raise FormatError(f"{path}: found an empty file, expected what a drafter learned")
        info = ffi.new("lookup_adaptive_state_info *")
        check(lib.lookup_adaptive_state_check(u8(data), len(data), info), str(path))
        known = _number(vocabulary)
        if known and info.vocabulary and info.vocabulary != known:
            raise TokenizerMismatchError(
                f"{path}: found what was learned with another vocabulary, expected this one; "
                "learn anew without it"
            )
        check(lib.lookup_adaptive_state_load(self.handle, u8(data), len(data), cap), str(path))


def _number(fingerprint: str | None) -> int:
    """The first 64 bits of a fingerprint in hexadecimal, 0 for none."""
    return int(fingerprint[:16], 16) if fingerprint else 0
