"""Calibration: from the probability of an output to the probability that it is right.

confidence = σ(intercept + a · ln p − b · ln(1 − p) + c · ln length)

p is the model's probability of the output, and length its tokens, with the end. a, b ≥ 0 make the
confidence monotone in p; a = b = 1 without the other terms is p itself. This is beta calibration
(Kull et al. 2017) with a term for the length; with a = b it is Platt scaling (1999) of the logit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

MAX_LOGP = -1e-6  # of a probability that float32 cannot tell from 1
MAX_NUMBER = 1e9  # on a card
ERROR_NAMES = {"before", "after", "floor"}
BIN_NAMES = {"outputs", "lowest", "highest", "confidence", "accuracy"}


@dataclass(frozen=True)
class Calibration:
    """The weights of a calibration, as stored on a model card."""

    intercept: float
    log_p: float
    log_not_p: float
    log_length: float = 0.0

    def confidence(self, logp: float, length: int) -> float:
        """The probability that an output with this log-probability and length is right."""
        if logp == -math.inf:
            return 0.0
        log_p, log_not_p, log_length = confidence_terms(logp, length)
        total = self.intercept + self.log_p * log_p - self.log_not_p * log_not_p
        return _sigmoid(total + self.log_length * log_length)

    def to_json(self) -> dict[str, float]:
        """The weights by name."""
        return asdict(self)

    @classmethod
    def of_card(cls, card: Mapping[str, Any]) -> Calibration | None:
        """The calibration on a model card that `check_card` accepts; None if it has none."""
        weights = card.get("calibration", {}).get("weights")
        return None if weights is None else cls(**weights)


def confidence_terms(logp: float, length: int) -> tuple[float, float, float]:
    """ln p, ln(1 − p) and ln length."""
    logp = min(logp, MAX_LOGP)
    return logp, math.log(-math.expm1(logp)), math.log(max(1, length))


def is_calibration(value: Any) -> bool:
    """Whether a card's `calibration` can be read: its weights and errors are valid or missing."""
    if not isinstance(value, dict) or not isinstance(value.get("method", ""), str):
        return False
    weights, errors = value.get("weights"), value.get("errors")
    if errors is not None and not (_count(value.get("outputs")) and _are_errors(errors)):
        return False
    if weights is None:
        return True
    names = {field.name for field in fields(Calibration)}
    valid = _are_numbers(weights, names)
    return valid and weights["log_p"] >= 0 and weights["log_not_p"] >= 0


def _are_errors(errors: Any) -> bool:
    """Whether these are the numbers of `CalibrationErrors`."""
    if not isinstance(errors, dict) or not isinstance(errors.get("bins"), list):
        return False
    rest = {name: value for name, value in errors.items() if name != "bins"}
    return _are_numbers(rest, ERROR_NAMES) and all(
        _are_numbers(one, BIN_NAMES) and _count(one["outputs"]) for one in errors["bins"]
    )


def _are_numbers(values: Any, names: set[str]) -> bool:
    return (
        isinstance(values, dict)
        and values.keys() == names
        and all(type(one) in (int, float) and abs(one) <= MAX_NUMBER for one in values.values())
    )


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_NUMBER


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    return math.exp(x) / (1 + math.exp(x)) if x > -700 else 0.0
