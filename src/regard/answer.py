"""Answer: the output of a pipeline for one text, with the log-probability of every token."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Answer:
    """One output: its text, its tokens as text, and the log-probability of each token and the end.

    `score` is the value that search ranked it by. `alignment` (output tokens and the end × source
    tokens and the end) and `weights` (of every attention, by name) are filled on request.
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
        """log p(answer | source), including the end token."""
        return sum(self.logps)

    def __str__(self) -> str:
        return self.text


def empty_answer(source: str) -> Answer:
    """The answer to an empty line: empty, with log-probability 0."""
    return Answer(source, "", [], [], [], 0.0)
