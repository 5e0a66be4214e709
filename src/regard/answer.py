"""Answer: the output of a pipeline for one text, with the log-probability of every token."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regard.calibration import Calibration

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Answer:
    """One output: its text, its tokens as text, and the log-probability of each token and the end.

    `score` is the value that search ranked it by. `error` says why a source was rejected; its
    output is empty then, with log-probability −∞. `alignment` (output tokens and the end × source
    tokens and the end) and `weights` (of every attention, by name) are filled on request.
    `calibration` is that of the model, if it has one.
    """

    source: str
    text: str
    ids: list[int]
    tokens: list[str]
    logps: list[float]
    score: float
    unknown: list[str] = field(default_factory=list)
    alignment: Tensor | None = None  # (answer, source)
    weights: dict[str, Tensor] | None = None  # each (head, query, key)
    error: str | None = None
    calibration: Calibration | None = field(default=None, repr=False)

    @property
    def logp(self) -> float:
        """log p(answer | source), including the end token."""
        return sum(self.logps) if self.error is None else float("-inf")

    @property
    def confidence(self) -> float:
        """The probability that the output is right: that it equals a reference.

        Without a calibration it is p(answer | source), the model's own probability of it.
        """
        if self.calibration is None or not self.logps:
            return math.exp(min(0.0, self.logp))
        return self.calibration.confidence(self.logp, len(self.logps))

    def __str__(self) -> str:
        return self.text


def links(matrix: Tensor) -> list[list[int]]:
    """Pharaoh links [i, j] of an alignment: output token j and the source token i with the largest
    weight. Special tokens, last on both sides, are not linked."""
    most = matrix[:-1].argmax(1).tolist()
    return [[i, j] for j, i in enumerate(most) if i < matrix.shape[1] - 1]


def empty_answer(source: str) -> Answer:
    """The answer to an empty line: empty, with log-probability 0."""
    return Answer(source, "", [], [], [], 0.0)


def rejected_answer(source: str, error: str) -> Answer:
    """The answer to a source that was rejected."""
    return Answer(source, "", [], [], [], float("-inf"), error=error)
