"""Expected calibration error: how far confidences are from the share of right outputs.

ECE = Σ_b n_b / n · |confidence_b − accuracy_b| over bins of equally many outputs, sorted by
confidence (Naeini et al. 2015; Nguyen & O'Connor 2015). Outputs of the same confidence are in the
same bin, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

BINS = 10
DRAWS, SEED = 200, 12_345  # of outcomes, to estimate the floor

Confidences = Float[np.ndarray, " output"]
Outcomes = Bool[np.ndarray, " output"]


@dataclass(frozen=True)
class CalibrationBin:
    """Outputs of similar confidence: their number, mean confidence and accuracy, in percent."""

    outputs: int
    lowest: float
    highest: float
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class CalibrationErrors:
    """The calibration of an evaluation, in percentage points.

    `before`: the error of the model's own probability; `after`: that of the confidence, and `bins`
    its reliability table; `floor`: the error that perfect confidences would show on as many outputs
    by chance.
    """

    before: float
    after: float
    floor: float
    bins: list[CalibrationBin]

    def to_json(self) -> dict[str, Any]:
        """All numbers, with three decimals."""
        bins = [{name: round(value, 3) for name, value in asdict(one).items()} for one in self.bins]
        errors = {name: round(getattr(self, name), 3) for name in ("before", "after", "floor")}
        return {**errors, "bins": bins}


def measure_calibration(
    probabilities: Sequence[float], confidences: Sequence[float], right: Sequence[bool]
) -> CalibrationErrors:
    """The calibration of the model's own probabilities and of the confidences."""
    before, after = (np.asarray(each, dtype=np.float64) for each in (probabilities, confidences))
    outcomes = np.asarray(right, dtype=bool)
    bins = reliability(after, outcomes)
    errors = calibration_error(before, outcomes), calibration_error(after, outcomes)
    return CalibrationErrors(*errors, error_floor(after), bins)


def calibration_error(confidences: Confidences, right: Outcomes) -> float:
    """The expected calibration error in percentage points."""
    bins = reliability(confidences, right)
    total = sum(one.outputs * abs(one.confidence - one.accuracy) for one in bins)
    return total / max(1, len(confidences))


def reliability(confidences: Confidences, right: Outcomes) -> list[CalibrationBin]:
    """Bins of equally many outputs, in the order of their confidence."""
    order = np.argsort(confidences, kind="stable")
    sorted_confidences, sorted_right = confidences[order], right[order]
    return [
        CalibrationBin(
            stop - start,
            100 * float(sorted_confidences[start]),
            100 * float(sorted_confidences[stop - 1]),
            100 * float(sorted_confidences[start:stop].mean()),
            100 * float(sorted_right[start:stop].mean()),
        )
        for start, stop in _bounds(sorted_confidences)
    ]


def error_floor(confidences: Confidences) -> float:
    """The mean error when each output is right with exactly its confidence."""
    random = np.random.default_rng(SEED)
    order = np.sort(confidences)
    sums = np.zeros(DRAWS)
    for start, stop in _bounds(order):
        drawn = random.random((DRAWS, stop - start)) < order[start:stop]
        sums += np.abs((drawn - order[start:stop]).sum(1))
    return 100 * float(sums.mean()) / max(1, len(order))


def _bounds(ordered: Confidences) -> list[tuple[int, int]]:
    """Start and end of each bin of sorted confidences; equal ones are not separated."""
    size = len(ordered)
    ends = (
        int(np.searchsorted(ordered, ordered[size * i // BINS - 1], side="right"))
        for i in range(1, BINS + 1)
        if size * i // BINS
    )
    bounds, start = [], 0
    for end in ends:
        if end > start:
            bounds.append((start, end))
            start = end
    return bounds
