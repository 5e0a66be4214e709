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
Said = Int[Tensor, "row time"]
Rule = Callable[[Scores, Said], Scores]
NEVER = float("-inf")
LEAST, MOST = 1e-6, 1e6  # a penalty of repetition: float32 holds it and what it makes of any log-probability


@dataclass(frozen=True)
class shortest:  # noqa: N801 (a rule is written as it is said)
    """No end before `count` tokens were said."""

    count: int

    def __post_init__(self) -> None:
        _counted("shortest", self.count)

    def __call__(self, scores: Scores, said: Said) -> Scores:
        return _without(scores, END) if said.shape[1] < self.count else scores


@dataclass(frozen=True)
class longest:  # noqa: N801
    """Nothing but the end after `count` tokens."""

    count: int

    def __post_init__(self) -> None:
        _counted("longest", self.count)

    def __call__(self, scores: Scores, said: Said) -> Scores:
        return _only(scores, END) if said.shape[1] >= self.count else scores


def prefix(ids: Sequence[int]) -> Rule:
    """The answer begins with these tokens."""

    def rule(scores: Scores, said: Said) -> Scores:
        at = said.shape[1]
        return _only(scores, ids[at]) if at < len(ids) else scores

    return rule


def banned(sequences: Iterable[Sequence[int]]) -> Rule:
    """None of these sequences of tokens is ever said."""
    known = [list(sequence) for sequence in sequences]
    if not all(known):
        raise RegardError("a banned sequence has no tokens; every answer would contain it")

    def rule(scores: Scores, said: Said) -> Scores:
        scores = scores.clone()
        for *start, last in known:
            if len(start) <= said.shape[1]:
                begun = said[:, said.shape[1] - len(start) :] == said.new_tensor(start)
                scores[begun.all(1), last] = NEVER
        return scores

    return rule


def repetition(penalty: float) -> Rule:
    """What was said once is `penalty` times as improbable in log-probability (Keskar et al. 2019, §4.1)."""
    if penalty <= 0:
        raise RegardError(f"a repetition penalty is above 0 (1 changes nothing); got {penalty}")
    if not LEAST <= penalty <= MOST:  # nor is nan between them
        raise RegardError(f"a repetition penalty is from {LEAST:f} to {MOST:.0f} (1 changes nothing); got {penalty}")

    def rule(scores: Scores, said: Said) -> Scores:
        if not said.shape[1]:
            return scores
        return scores.scatter(1, said, scores.gather(1, said) * penalty)

    return rule


def no_repeat(count: int) -> Rule:
    """No sequence of `count` tokens is said twice (Paulus et al. 2018, §2.5)."""
    if count < 1:
        raise RegardError(f"no_repeat needs sequences of at least 1 token; got {count}")

    def rule(scores: Scores, said: Said) -> Scores:
        if said.shape[1] < count:
            return scores
        grams = said.unfold(1, count, 1)
        again = (grams[..., :-1] == said[:, None, said.shape[1] - count + 1 :]).all(-1)
        rows, places = again.nonzero(as_tuple=True)
        return scores.index_put((rows, grams[rows, places, -1]), scores.new_tensor(NEVER))

    return rule


def applied(rules: Sequence[Rule], scores: Scores, said: Said, last: Bool[Tensor, " row"]) -> Scores:
    """All rules in turn; rows that are at their limit (`last`) may then only end, if the rules let them."""
    for rule in rules:
        scores = rule(scores, said)
    return torch.where(last[:, None], _only(scores, END), scores) if bool(last.any()) else scores


def _counted(name: str, count: int) -> None:
    """Raise for what no answer could have."""
    if count < 0:
        raise RegardError(f"{name} counts the tokens of an answer, from 0 on; got {count}")


def _without(scores: Scores, token: int) -> Scores:
    scores = scores.clone()
    scores[:, token] = NEVER
    return scores


def _only(scores: Scores, token: int) -> Scores:
    alone = torch.full_like(scores, NEVER)
    alone[:, token] = scores[:, token]
    return alone
