"""Fit of a calibration on held-out outputs, with the method chosen by cross-validation.

Each method is a logistic regression on some of the terms of `Calibration`. Targets are smoothed as
by Platt (1999), so that a few outputs that are all right give no certainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from regard.calibration import Calibration, confidence_terms
from regard.training.calibration_error import CalibrationErrors, measure_calibration

MIN_OUTPUTS = 100
MIN_KIND = 10  # right outputs, and wrong ones
FOLDS, SEED = 10, 12_345
STEPS, RIDGE = 50, 1e-3
MAX_SLOPE = 1e3

Terms = Float[np.ndarray, "output term"]
Outcomes = Bool[np.ndarray, " output"]


class Outcome(NamedTuple):
    """An output: its log-probability, its tokens with the end, and whether it is right."""

    logp: float
    length: int
    right: bool


class Method(NamedTuple):
    """A way to calibrate: the columns of the regression as combinations of the three terms, and
    which of them must not have a negative weight."""

    columns: Float[np.ndarray, "3 column"]
    monotone: tuple[bool, ...]


LOGIT, LOG_P, NOT_P, LENGTH = (1, -1, 0), (1, 0, 0), (0, -1, 0), (0, 0, 1)
# The simplest first: a later one is chosen only if it is better by more than chance.
METHODS: dict[str, Method | None] = {
    "none": None,
    "logistic": Method(np.array([LOGIT]).T, (True,)),
    "logistic with length": Method(np.array([LOGIT, LENGTH]).T, (True, False)),
    "beta": Method(np.array([LOG_P, NOT_P]).T, (True, True)),
    "beta with length": Method(np.array([LOG_P, NOT_P, LENGTH]).T, (True, True, False)),
}
IDENTITY = Calibration(0.0, 1.0, 1.0)


@dataclass(frozen=True)
class CalibrationFit:
    """The chosen calibration (None: too few outputs, see `reason`) and its cross-validated
    errors."""

    method: str
    outputs: int
    right: int
    calibration: Calibration | None = None
    errors: CalibrationErrors | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry of a model card."""
        facts: dict[str, Any] = {"method": self.method, "outputs": self.outputs}
        facts["right"] = self.right
        if self.calibration is not None:
            facts["weights"] = self.calibration.to_json()
        if self.errors is not None:
            facts["errors"] = self.errors.to_json()
        return facts if self.reason is None else {**facts, "reason": self.reason}


def fit_calibration(outcomes: Sequence[Outcome]) -> CalibrationFit:
    """Choose a method by ten-fold cross-validation of the log loss, and fit it on all outcomes."""
    used = [one for one in outcomes if np.isfinite(one.logp)]
    right = np.array([one.right for one in used], dtype=bool)
    count, correct = len(used), int(right.sum())
    kinds = min(correct, count - correct)
    if count < MIN_OUTPUTS or kinds < MIN_KIND:
        reason = f"it needs at least {MIN_OUTPUTS} held-out sources, {MIN_KIND} of them right and "
        reason += f"{MIN_KIND} wrong"
        if count >= MIN_OUTPUTS:
            reason += f"; {correct:,} of {count:,} are right"
        return CalibrationFit("none", count, correct, reason=reason)
    terms = np.array([confidence_terms(one.logp, one.length) for one in used])
    predicted = {name: _cross_validate(method, terms, right) for name, method in METHODS.items()}
    name = _simplest({name: _log_loss(p, right) for name, p in predicted.items()})
    chosen = fit_method(METHODS[name], terms, right)
    errors = measure_calibration(
        predicted["none"].tolist(), predicted[name].tolist(), right.tolist()
    )
    return CalibrationFit(name, count, correct, chosen, errors)


def fit_method(method: Method | None, terms: Terms, right: Outcomes) -> Calibration:
    """The calibration of one method; terms that a monotone one cannot use have weight 0."""
    if method is None:
        return IDENTITY
    columns, monotone = method.columns.astype(np.float64), np.array(method.monotone)
    kept = np.ones(columns.shape[1], dtype=bool)
    while True:
        weights = _regress(terms @ columns[:, kept], right)
        falling = monotone[kept] & (weights[1:] < 0)
        if not falling.any():
            break
        kept[np.flatnonzero(kept)[falling]] = False
    log_p, log_not_p, log_length = columns[:, kept] @ weights[1:]
    return Calibration(*(float(one) for one in (weights[0], log_p, -log_not_p, log_length)))


def confidences(calibration: Calibration, terms: Terms) -> Float[np.ndarray, " output"]:
    """`Calibration.confidence` for many outputs at once."""
    weights = np.array([calibration.log_p, -calibration.log_not_p, calibration.log_length])
    return _sigmoid(terms @ weights + calibration.intercept)


def _regress(features: Float[np.ndarray, "output column"], right: Outcomes) -> np.ndarray:
    """Intercept and weights of a logistic regression, by Newton's method with a small ridge."""
    scale = np.maximum(features.std(0), 1e-9)
    inputs = np.column_stack([np.ones(len(right)), features / scale])
    positive, negative = int(right.sum()), int((~right).sum())
    targets = np.where(right, (positive + 1) / (positive + 2), 1 / (negative + 2))
    weights = np.zeros(inputs.shape[1])
    ridge = RIDGE * np.eye(len(weights))
    for _ in range(STEPS):
        p = _sigmoid(inputs @ weights)
        gradient = inputs.T @ (targets - p) - ridge @ weights
        curvature = (inputs * (p * (1 - p))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(curvature, gradient)
        weights = weights + step * min(1.0, 5.0 / max(1e-12, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-9:
            break
    return np.concatenate([weights[:1], np.clip(weights[1:] / scale, -MAX_SLOPE, MAX_SLOPE)])


def _cross_validate(method: Method | None, terms: Terms, right: Outcomes) -> np.ndarray:
    """The confidence of each output by a calibration that was fitted without its fold."""
    folds = np.random.default_rng(SEED).permutation(len(right)) % FOLDS
    predicted = np.empty(len(right))
    for fold in range(FOLDS):
        left_out = folds == fold
        fitted = fit_method(method, terms[~left_out], right[~left_out])
        predicted[left_out] = confidences(fitted, terms[left_out])
    return predicted


def _simplest(losses: dict[str, Float[np.ndarray, " output"]]) -> str:
    """The first method that is at most one standard error worse than the best one."""
    best = losses[min(losses, key=lambda name: float(losses[name].mean()))]
    for name, loss in losses.items():
        difference = loss - best
        if difference.mean() <= difference.std() / np.sqrt(len(loss)):
            return name
    raise AssertionError("the best method is as good as itself")


def _log_loss(p: np.ndarray, right: Outcomes) -> Float[np.ndarray, " output"]:
    chosen = np.where(right, p, 1 - p)
    return -np.log(np.maximum(chosen, 1e-12))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))
