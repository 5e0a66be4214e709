"""Board: the books of a beam search; every source's beginnings and answers, and whether better ones can still come.

Kept on the host in numpy: there are too many numbers for Python and too few for tensors.
"""

from __future__ import annotations

from itertools import pairwise, takewhile

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.search.constraints import NEG_INF
from regard.search.hypothesis import Hypothesis, SearchResult
from regard.search.length_penalty import LengthPenalty
from regard.text import END

INFINITY = float("inf")
Totals = Float[np.ndarray, "source candidate"]
Places = Int[np.ndarray, "source candidate"]


class BeamState:
    """`going` are the sources that are not over yet; row i of the other arrays is for the i-th of them, the best beam
    first. `margins` (of all sources) is by how little each result was decided so far."""

    def __init__(self, size: int, n_best: int, length_penalty: LengthPenalty, limits: list[int], margin: float) -> None:
        count = len(limits)
        self.size, self.n_best, self.length_penalty = size, n_best, length_penalty
        self.answers: list[list[Hypothesis]] = [[] for _ in range(count)]  # the best first, and one more than `best`
        self.margins = np.full(count, margin)
        self.going = np.arange(count)
        self.limits = np.array(limits, np.int64)
        self.farthest = np.array([length_penalty.divisor(limit + 1) for limit in limits])
        self.worst = np.full(count, NEG_INF)  # of the `best` answers; −∞ until there are so many
        self.tokens_so_far = np.zeros((count, 1, 0), np.int64)
        self.logps = np.zeros((count, 1, 0))
        self.scores = np.zeros((count, 1))

    @np.errstate(invalid="ignore")  # −∞ from −∞, see _decided
    def advance(
        self, totals: Totals, beams: Places, tokens: Places, logps: Totals
    ) -> tuple[Int[np.ndarray, "left beam"], Int[np.ndarray, " left"]]:
        """One more token: the beam that each new one comes from, and which of the sources are left.

        The candidates come best first: their total, the beam they continue, their token and its log-probability. An
        end counts if it is among the `size` best; the `size` best others go on.
        """
        size, rows = self.size, np.arange(len(totals))[:, None]
        self.narrowest = np.full(len(totals), INFINITY)
        ends = (tokens == END) & (totals > NEG_INF)
        if ends.any():
            self._answer(ends, totals, beams, logps)
            order = ends.argsort(1, kind="stable")[:, : size + 1] + rows * ends.shape[1]
            totals = np.where(ends, NEG_INF, totals)
            totals, beams, tokens, logps = (each.take(order) for each in (totals, beams, tokens, logps))
        self._decided(totals[:, size - 1] - totals[:, size])
        totals, beams, tokens, logps = (each[:, :size] for each in (totals, beams, tokens, logps))
        over = self._over(totals[:, 0])
        self.margins[self.going] = np.fmin(self.margins[self.going], self.narrowest)
        came = rows * self.tokens_so_far.shape[1] + beams  # among all beams of all sources
        left = (~over).nonzero()[0]
        if len(left) < len(over):
            totals, beams, tokens, logps, came = (each[left] for each in (totals, beams, tokens, logps, came))
            for name in ("going", "limits", "farthest", "worst"):
                setattr(self, name, getattr(self, name)[left])
        self.tokens_so_far, self.logps, self.scores = (
            _longer(self.tokens_so_far, came, tokens),
            _longer(self.logps, came, logps),
            totals,
        )
        return beams, left

    def found(self) -> list[SearchResult]:
        """For each source its best answers, the best first."""
        found = []
        for answers, margin in zip(self.answers, self.margins.tolist(), strict=True):
            gaps = (a.score - b.score for a, b in pairwise(answers))
            found.append(SearchResult(answers[: self.n_best], min(margin, *gaps, INFINITY)))
        return found

    def committed_prefix(self) -> list[int]:
        """What the answer to the first source begins with, whatever comes: all that its beginnings and its best answer
        so far share."""
        live = self.tokens_so_far[self.going == 0][self.scores[self.going == 0] > NEG_INF].tolist()
        shared = zip(*live, *(answer.ids for answer in self.answers[0][:1]), strict=False)
        return [same[0] for same in takewhile(lambda tokens: len(set(tokens)) == 1, shared)]

    def _answer(self, ends: Bool[np.ndarray, "source candidate"], totals: Totals, beams: Places, logps: Totals) -> None:
        """Keep the ends among the `size` best. How far they are ahead of the rest, and the others behind, matters."""
        size, penalty = self.size, self.length_penalty.divisor(self.tokens_so_far.shape[2] + 1)
        self._decided(np.where(ends[:, :size], totals[:, :size], INFINITY).min(1) - totals[:, size])
        self._decided(totals[:, size - 1] - np.where(ends[:, size:], totals[:, size:], NEG_INF).max(1))
        places, ranks = ends[:, :size].nonzero()
        came = places, beams[places, ranks]
        parts = self.tokens_so_far[came], self.logps[came], logps[places, ranks], totals[places, ranks] / penalty
        for place, ids, numbers, last, score in zip(places, *(part.tolist() for part in parts), strict=True):
            answers = self.answers[self.going[place]]
            answers.append(Hypothesis(ids, [*numbers, last], score))
            answers.sort(key=lambda answer: answer.score, reverse=True)
            del answers[self.n_best + 1 :]  # the first that is not among the best tells how narrowly
            if len(answers) >= self.n_best:
                self.worst[place] = answers[self.n_best - 1].score

    def _over(self, best: Float[np.ndarray, " source"]) -> Bool[np.ndarray, " source"]:
        """Nothing that is left can still reach the worst of the best answers: what follows only lowers a sum, and the
        largest penalty it may be divided by is that of the shortest or the longest end."""
        step = self.tokens_so_far.shape[2]
        reach = best / np.maximum(self.farthest, self.length_penalty.divisor(step + 2))
        beaten = ~(reach > self.worst)
        self._decided(np.where(beaten, self.worst - reach, INFINITY))
        return beaten | (self.limits <= step)

    def _decided(self, margins: Float[np.ndarray, " source"]) -> None:
        """Narrower margins count; −∞ from −∞ is none, for there was nothing to choose."""
        np.fmin(self.narrowest, margins, out=self.narrowest)


def _longer(past: np.ndarray, came: np.ndarray, new: np.ndarray) -> np.ndarray:
    """What each beam holds: all of the one it came from, and one more."""
    sources, beams, time = past.shape
    return np.concatenate([past.reshape(sources * beams, time).take(came, 0), new[:, :, None]], 2)
