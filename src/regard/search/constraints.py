"""Rules: small functions on log-probabilities that say what may come next.

A rule is called with the log-probabilities of what may come next, (row, vocabulary), and with what was said so far,
(row, time), and returns log-probabilities: −∞ forbids. Rules steer the search; the log-probabilities that a hypothesis
reports are the model's own.

>>> Beam(4, rules=(shortest(3), no_repeat(2)))
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
LEAST, MOST = 1e-6, 1e6  # a penalty of repetition: float32 holds it and what it makes of any log-probability


@dataclass(frozen=True)
class min_length:  # noqa: N801 (a rule is written as it is said)
    """No end before `count` tokens were said."""

    count: int

    def __post_init__(self) -> None:
        _counted("min_length", self.count)

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        return _without(scores, END) if tokens_so_far.shape[1] < self.count else scores


@dataclass(frozen=True)
class max_length:  # noqa: N801
    """Nothing but the end after `count` tokens."""

    count: int

    def __post_init__(self) -> None:
        _counted("max_length", self.count)

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        return _only(scores, END) if tokens_so_far.shape[1] >= self.count else scores


def prefix(ids: Sequence[int]) -> Constraint:
    """The answer begins with these tokens."""

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        at = tokens_so_far.shape[1]
        return _only(scores, ids[at]) if at < len(ids) else scores

    return constraint


def ban(sequences: Iterable[Sequence[int]]) -> Constraint:
    """None of these sequences of tokens is ever said."""
    known = [list(sequence) for sequence in sequences]
    if not all(known):
        raise RegardError("a banned sequence has no tokens; every answer would contain it")

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        scores = scores.clone()
        for *start, last in known:
            if len(start) <= tokens_so_far.shape[1]:
                begun = tokens_so_far[:, tokens_so_far.shape[1] - len(start) :] == tokens_so_far.new_tensor(start)
                scores[begun.all(1), last] = NEG_INF
        return scores

    return constraint


def repetition_penalty(penalty: float) -> Constraint:
    """What was said once is `penalty` times as improbable in log-probability (Keskar et al. 2019, §4.1)."""
    if penalty <= 0:
        raise RegardError(f"a repetition penalty is above 0 (1 changes nothing); got {penalty}")
    if not LEAST <= penalty <= MOST:  # nor is nan between them
        raise RegardError(f"a repetition penalty is from {LEAST:f} to {MOST:.0f} (1 changes nothing); got {penalty}")

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        if not tokens_so_far.shape[1]:
            return scores
        return scores.scatter(1, tokens_so_far, scores.gather(1, tokens_so_far) * penalty)

    return constraint


def no_repeat_ngram(count: int) -> Constraint:
    """No sequence of `count` tokens is said twice (Paulus et al. 2018, §2.5)."""
    if count < 1:
        raise RegardError(f"no_repeat needs sequences of at least 1 token; got {count}")

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        if tokens_so_far.shape[1] < count:
            return scores
        grams = tokens_so_far.unfold(1, count, 1)
        again = (grams[..., :-1] == tokens_so_far[:, None, tokens_so_far.shape[1] - count + 1 :]).all(-1)
        rows, places = again.nonzero(as_tuple=True)
        return scores.index_put((rows, grams[rows, places, -1]), scores.new_tensor(NEG_INF))

    return constraint


def apply_constraints(
    constraints: Sequence[Constraint], scores: Scores, tokens_so_far: Tokens, last: Bool[Tensor, " row"]
) -> Scores:
    """All rules in turn; rows that are at their limit (`last`) may then only end, if the rules let them."""
    for constraint in constraints:
        scores = constraint(scores, tokens_so_far)
    return torch.where(last[:, None], _only(scores, END), scores) if bool(last.any()) else scores


def _counted(name: str, count: int) -> None:
    """Raise for what no answer could have."""
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
