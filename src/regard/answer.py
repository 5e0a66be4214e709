"""Answer: what a pipeline says to a text, and how sure it is of every token."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Answer:
    """One answer: its text, its tokens as people see them, and the model's log-probability of each and of the end.

    `score` is what it was ranked by. `alignment` (answer token and end × source token and end) and `weights` (of every
    attention, by name) are there when they were asked for.
    """

    source: str
    text: str
    ids: list[int]
    tokens: list[str]
    logps: list[float]
    score: float
    unknown: list[str] = field(default_factory=list)
    alignment: Float[Tensor, "answer source"] | None = None
    weights: dict[str, Float[Tensor, "_head _query _key"]] | None = None

    @property
    def logp(self) -> float:
        """log p(answer | source), the end included."""
        return sum(self.logps)

    def __str__(self) -> str:
        return self.text


def empty(source: str) -> Answer:
    """The answer to a line that holds nothing: nothing."""
    return Answer(source, "", [], [], [], 0.0)
