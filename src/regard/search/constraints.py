"""Constraints: functions on log-probabilities that restrict the next token.

A constraint receives log-probabilities (row, vocabulary) and the tokens so far (row, time), and
returns log-probabilities: −∞ forbids. Constraints steer the search; hypotheses report the model's
own log-probabilities. Lexical constraints are token sequences that every output must contain.

>>> Beam(4, constraints=(min_length(3), no_repeat_ngram(2)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import RegardError
from regard.search.token_options import (
    check_length,
    check_no_repeat_ngram,
    check_repetition_penalty,
)
from regard.text import END

Scores = Float[Tensor, "row vocabulary"]
Tokens = Int[Tensor, "row time"]
Constraint = Callable[[Scores, Tokens], Scores]
NEG_INF = float("-inf")


@dataclass(frozen=True)
class min_length:  # noqa: N801 (used like a function)
    """No END before `count` tokens."""

    count: int
    end: int = END

    def __post_init__(self) -> None:
        check_length("min_length", self.count)

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        return _without(scores, self.end) if tokens_so_far.shape[1] < self.count else scores


@dataclass(frozen=True)
class max_length:  # noqa: N801
    """Only END after `count` tokens."""

    count: int
    end: int = END

    def __post_init__(self) -> None:
        check_length("max_length", self.count)

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        return _only(scores, self.end) if tokens_so_far.shape[1] >= self.count else scores


def prefix(ids: Sequence[int]) -> Constraint:
    """The output starts with these tokens."""

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        at = tokens_so_far.shape[1]
        return _only(scores, ids[at]) if at < len(ids) else scores

    return constraint


def force(tokens: Mapping[int, int], end: int = END) -> Constraint:
    """The output has these tokens at these steps, and does not end before the last of them."""
    last = max(tokens, default=0)

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        at = tokens_so_far.shape[1]
        if at in tokens:
            return _only(scores, tokens[at])
        return _without(scores, end) if at < last else scores

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


def never(tokens: Sequence[int]) -> tuple[Constraint, ...]:
    """A constraint that forbids each of these tokens; none if there are none."""
    ids = list(tokens)

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        scores = scores.clone()
        scores[:, ids] = NEG_INF
        return scores

    return (constraint,) if ids else ()


def repetition_penalty(penalty: float) -> Constraint:
    """Multiplies the log-probability of tokens already produced by `penalty` (Keskar et al.

    2019, §4.1).
    """
    check_repetition_penalty(penalty)

    def constraint(scores: Scores, tokens_so_far: Tokens) -> Scores:
        if not tokens_so_far.shape[1]:
            return scores
        return scores.scatter(1, tokens_so_far, scores.gather(1, tokens_so_far) * penalty)

    return constraint


def no_repeat_ngram(count: int) -> Constraint:
    """No n-gram of `count` tokens occurs twice (Paulus et al. 2018, §2.5)."""
    check_no_repeat_ngram(count)

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
    end: int = END,
) -> Scores:
    """Apply all constraints; rows at their length limit (`last`) may then only end."""
    for constraint in constraints:
        scores = constraint(scores, tokens_so_far)
    return torch.where(last[:, None], _only(scores, end), scores) if bool(last.any()) else scores


def _without(scores: Scores, token: int) -> Scores:
    scores = scores.clone()
    scores[:, token] = NEG_INF
    return scores


def _only(scores: Scores, token: int) -> Scores:
    greedy_single = torch.full_like(scores, NEG_INF)
    greedy_single[:, token] = scores[:, token]
    return greedy_single


Scored = tuple[float, int]  # a total, and its place in (beam × vocabulary)


class LexicalConstraints:
    """Divides the beam into banks by the number of required tokens produced, so that hypotheses
    with required words are not pruned by more likely ones without (Post & Vilar 2018).

    `opening` is each sequence as tokenized at the start of a text, which differs where pieces
    include the preceding space."""

    def __init__(
        self,
        sequences: Sequence[Sequence[int]],
        opening: Sequence[Sequence[int]] | None = None,
        *,
        end: int = END,
    ) -> None:
        self.end = end
        self.sequences = [list(sequence) for sequence in sequences]
        self.opening = [list(sequence) for sequence in opening or sequences]
        if not all(self.sequences):
            raise RegardError("a required sequence has no tokens; leave it out")
        self.all = sum(map(len, self.sequences))

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        """As a constraint: no END before all required sequences are present."""
        missing = torch.tensor(
            [self.met(ids) < self.all for ids in tokens_so_far.tolist()], device=scores.device
        )
        scores = scores.clone()
        scores[missing, self.end] = NEG_INF
        return scores

    def met(self, ids: Sequence[int]) -> int:
        """How many required tokens are present: complete sequences, and the one in progress."""
        missing = self._missing(ids)
        begun = max((self._of(ids, *pair) for pair in missing), default=0)
        return self.all - sum(len(sequence) for sequence, _ in missing) + begun

    def needed(self, ids: Sequence[int]) -> set[int]:
        """The tokens that start or continue a missing sequence."""
        missing = self._missing(ids)
        opened = {opening[len(ids)] for _, opening in missing if _opens(ids, opening)}
        return opened | {
            token
            for sequence, _ in missing
            for token in (sequence[_begun(ids, sequence)], sequence[0])
        }

    def _missing(self, ids: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """The missing sequences, each with its opening form."""
        both = zip(self.sequences, self.opening, strict=True)
        return [
            (one, first)
            for one, first in both
            if not _contains(ids, one) and list(ids[: len(first)]) != first
        ]

    @staticmethod
    def _of(ids: Sequence[int], sequence: list[int], opening: list[int]) -> int:
        """How many tokens of a missing sequence the output ends with; never all."""
        opened = min(len(ids), len(sequence) - 1) if _opens(ids, opening) else 0
        return max(opened, _begun(ids, sequence))

    def pick(
        self,
        totals: Float[Tensor, "source place"],
        tokens_so_far: Int[Tensor, "source beam time"],
        size: int,
        vocabulary: int,
    ) -> tuple[Float[Tensor, "source picked"], Int[Tensor, "source picked"]]:
        """For each source, the candidates that end, then the `size` best others, bank by bank."""
        picked = [
            self._picked(line, ids, size, vocabulary)
            for line, ids in zip(totals.cpu(), tokens_so_far.tolist(), strict=True)
        ]
        values, places = (
            torch.tensor([[pair[i] for pair in row] for row in picked]) for i in (0, 1)
        )
        return values.to(totals), places.to(tokens_so_far)

    def _picked(
        self, totals: Tensor, tokens_so_far: list[list[int]], size: int, vocabulary: int
    ) -> list[Scored]:
        wanted = {
            b * vocabulary + token
            for b, ids in enumerate(tokens_so_far)
            for token in self.needed(ids)
        }
        # Include the most likely token of each beam, so that complete hypotheses can end.
        most_likely = (
            totals[: len(tokens_so_far) * vocabulary]
            .view(len(tokens_so_far), vocabulary)
            .argmax(1)
            .tolist()
        )
        wanted |= {b * vocabulary + token for b, token in enumerate(most_likely)}
        places = sorted(wanted | set(totals.topk(min(2 * size, len(totals))).indices.tolist()))
        scored = [(float(totals[place]), place) for place in places if totals[place] > NEG_INF]
        ends = [pair for pair in scored if pair[1] % vocabulary == self.end]
        banks: dict[int, list[Scored]] = {}
        others = (pair for pair in scored if pair[1] % vocabulary != self.end)
        for pair in sorted(others, reverse=True):
            ids = tokens_so_far[pair[1] // vocabulary]
            banks.setdefault(self.met([*ids, pair[1] % vocabulary]), []).append(pair)
        kept: list[Scored] = []
        while len(kept) < size and any(banks.values()):  # in turn, the fullest bank first
            kept += [banks[bank].pop(0) for bank in sorted(banks, reverse=True) if banks[bank]]
        row = sorted(ends, reverse=True)[:size] + sorted(kept[:size], reverse=True)
        return row + [(NEG_INF, 0)] * (2 * size + 1 - len(row))


def _contains(ids: Sequence[int], sequence: list[int]) -> bool:
    return any(
        list(ids[i : i + len(sequence)]) == sequence for i in range(len(ids) - len(sequence) + 1)
    )


def _opens(ids: Sequence[int], opening: list[int]) -> bool:
    """Whether the output so far is a proper prefix of the opening form."""
    return len(ids) < len(opening) and list(ids) == opening[: len(ids)]


def _begun(ids: Sequence[int], sequence: list[int]) -> int:
    """How many leading tokens of the sequence the output ends with."""
    for count in range(min(len(ids), len(sequence) - 1), 0, -1):
        if list(ids[-count:]) == sequence[:count]:
            return count
    return 0
