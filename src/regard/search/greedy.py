"""Greedy search: the likeliest next token, until the end is the likeliest."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.search.hypothesis import Found
from regard.search.rules import Rule, Scores
from regard.search.walk import walk


@dataclass(frozen=True)
class Greedy:
    """One hypothesis for each source: at each place the likeliest token.

    >>> Greedy()(model, source, limits)[0].hypotheses[0].ids
    """

    rules: tuple[Rule, ...] = ()

    def __call__(self, model: Model, source: Ragged, limits: Int[Tensor, " source"]) -> list[Found]:
        return [Found([found], margin) for found, margin in walk(model, source, limits, likeliest, rules=self.rules)]


def likeliest(scores: Scores, rows: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The likeliest token of each row, and how far the second is behind."""
    values, tokens = scores.topk(2)
    return tokens.select(1, 0), values.select(1, 0) - values.select(1, 1)
