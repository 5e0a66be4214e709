"""Constraints: functions on log-probabilities that restrict the next token.

A constraint receives log-probabilities (row, vocabulary) and the tokens so far (row, time), and
returns log-probabilities: −∞ forbids. Constraints steer the search; hypotheses report the model's
own log-probabilities.

>>> Beam(4, constraints=(min_length(3), no_repeat_ngram(2)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import RegardError
from regard.text import END

Scores = Float[Tensor, "row vocabulary"]
Tokens = Int[Tensor, "row time"]
Constraint = Callable[[Scores, Tokens], Scores]
NEG_INF = float("-inf")
LEAST, MOST = 1e-6, 1e6  # keep penalised log-probabilities finite in float32


@dataclass(frozen=True)
class min_length:  # noqa: N801 (used like a function)
    """No END before `count` tokens."""

    count: int

    def __post_init__(self) -> None:
        _counted("min_length", self.count)

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        return _without(scores, END) if tokens_so_far.shape[1] < self.count else scores


@dataclass(frozen=True)
class max_length:  # noqa: N801
    """Only END after `count` tokens."""

    count: int

    def __post_init__(self) -> None:
        _counted("max_length", self.count)

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        return _only(scores, END) if tokens_so_far.shape[1] >= self.count else scores


def prefix(ids: Sequence[int]) -> Constraint:
    """The output starts with these tokens."""

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        at = tokens_so_far.shape[1]
        return _only(scores, ids[at]) if at < len(ids) else scores

    return constraint


def ban(sequences: Iterable[Sequence[int]]) -> Constraint:
    """None of these token sequences is produced."""
    known = [list(sequence) for sequence in sequences]
    if not all(known):
        raise RegardError("a banned sequence is empty; remove it")

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        scores = scores.clone()
        for *start, last in known:
            if len(start) <= tokens_so_far.shape[1]:
                begun = tokens_so_far[
                    :, tokens_so_far.shape[1] - len(start) :
                ] == tokens_so_far.new_tensor(start)
                scores[begun.all(1), last] = NEG_INF
        return scores

    return constraint


def repetition_penalty(penalty: float) -> Constraint:
    """Multiplies the log-probability of tokens already produced by `penalty` (Keskar et al.

    2019, §4.1).
    """
    if penalty <= 0:
        raise RegardError(f"repetition_penalty must be above 0 (1 = off); got {penalty}")
    if not LEAST <= penalty <= MOST:  # also rejects NaN
        raise RegardError(
            f"repetition_penalty must be between {LEAST:f} and {MOST:.0f} (1 = off); got {penalty}"
        )

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        if not tokens_so_far.shape[1]:
            return scores
        return scores.scatter(1, tokens_so_far, scores.gather(1, tokens_so_far) * penalty)

    return constraint


def no_repeat_ngram(count: int) -> Constraint:
    """No n-gram of `count` tokens occurs twice (Paulus et al. 2018, §2.5)."""
    if count < 1:
        raise RegardError(f"no_repeat_ngram must be at least 1; got {count}")

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        if tokens_so_far.shape[1] < count:
            return scores
        grams = tokens_so_far.unfold(1, count, 1)
        again = (
            grams[..., :-1] == tokens_so_far[:, None, tokens_so_far.shape[1] - count + 1 :]
        ).all(-1)
        rows, places = again.nonzero(as_tuple=True)
        return scores.index_put((rows, grams[rows, places, -1]), scores.new_tensor(NEG_INF))

    return constraint


def apply_constraints(
    constraints: Sequence[Constraint],
    scores: Scores,
    tokens_so_far: Tokens,
    last: Bool[Tensor, " row"],
) -> Scores:
    """Apply all constraints; rows at their length limit (`last`) may then only end."""
    for constraint in constraints:
        scores = constraint(scores, tokens_so_far)
    return torch.where(last[:, None], _only(scores, END), scores) if bool(last.any()) else scores


def _counted(name: str, count: int) -> None:
    """Reject negative lengths."""
    if count < 0:
        raise RegardError(f"{name} must be at least 0; got {count}")


def _without(scores: Scores, token: int) -> Scores:
    scores = scores.clone()
    scores[:, token] = NEG_INF
    return scores


def _only(scores: Scores, token: int) -> Scores:
    greedy_single = torch.full_like(scores, NEG_INF)
    greedy_single[:, token] = scores[:, token]
    return greedy_single
