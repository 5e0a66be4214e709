"""Hypotheses: outputs in ids with log-probabilities, and the length penalties that rank them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.errors import RegardError, choose

NEAR_TIE = 1e-4  # differences below this may depend on the batch: float32 sums differ


@dataclass(frozen=True)
class Hypothesis:
    """`ids` without BEGIN and END; `logps`, one per id and one for END; and the `score` it is
    ranked by: the sum of `logps` over the length penalty, unless constraints change it."""

    ids: list[int]
    logps: list[float]
    score: float

    @property
    def logp(self) -> float:
        """log p(target | source), END included."""
        return sum(self.logps)

    def reversed(self) -> Hypothesis:
        """The same with its tokens in the opposite order; END stays last."""
        return Hypothesis(self.ids[::-1], [*self.logps[-2::-1], *self.logps[-1:]], self.score)


@dataclass(frozen=True)
class SearchResult:
    """The hypotheses of one source, best first, and the smallest margin of any decision."""

    hypotheses: Sequence[Hypothesis]
    margin: float

    @property
    def is_close(self) -> bool:
        """Whether rounding could have changed the result."""
        return self.margin < NEAR_TIE

    def reversed(self) -> SearchResult:
        """The same with the tokens of all hypotheses in the opposite order."""
        return SearchResult([one.reversed() for one in self.hypotheses], self.margin)


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
