"""Length penalties: long answers collect more log-probability, all of it negative; dividing makes them comparable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regard.errors import RegardError, choose

PENALTIES: dict[str, Callable[[float], float]] = {
    "power": lambda length: length,
    "gnmt": lambda length: (5 + length) / 6,  # Wu et al. 2016, eq. 14
}
STEEPEST = 10.0  # of α: a number must hold the power of any length


@dataclass(frozen=True)
class Length:
    """score = log p / lengthᵅ, or ((5 + length) / 6)ᵅ with kind "gnmt". Length counts the end; α = 0 divides by 1."""

    alpha: float = 0.0
    kind: str = "power"

    def __post_init__(self) -> None:
        choose(PENALTIES, self.kind, "length penalty")
        if not -STEEPEST <= self.alpha <= STEEPEST:  # nor is nan between them
            raise RegardError(f"the α of a length penalty is from {-STEEPEST:g} to {STEEPEST:g}; got {self.alpha}")

    def penalty(self, length: int) -> float:
        """What a log-probability of that length is divided by."""
        return float(PENALTIES[self.kind](length) ** self.alpha)
