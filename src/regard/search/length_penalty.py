"""Length penalties: make log-probabilities of outputs of different lengths comparable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regard.errors import RegardError, choose

PENALTIES: dict[str, Callable[[float], float]] = {
    "power": lambda length: length,
    "gnmt": lambda length: (5 + length) / 6,  # Wu et al. 2016, eq. 14
}
MAX_ALPHA = 10.0  # so that length ** α stays finite


@dataclass(frozen=True)
class LengthPenalty:
    """score = log p / lengthᵅ, or ((5 + length) / 6)ᵅ with kind "gnmt".

    Length counts END; α = 0 divides by 1.
    """

    alpha: float = 0.0
    kind: str = "power"

    def __post_init__(self) -> None:
        choose(PENALTIES, self.kind, "length penalty")
        if not -MAX_ALPHA <= self.alpha <= MAX_ALPHA:  # also rejects NaN
            raise RegardError(
                f"the length penalty α must be between {-MAX_ALPHA:g} and {MAX_ALPHA:g}; got "
                f"{self.alpha}"
            )

    def divisor(self, length: int) -> float:
        """The divisor of a log-probability of that length."""
        return float(PENALTIES[self.kind](length) ** self.alpha)
