"""BeamState: hypotheses of every source, finished and unfinished, and whether better ones are
possible.

Kept on the host in numpy: too many values for Python lists, too few for tensors.
"""

from __future__ import annotations

from itertools import pairwise, takewhile

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.search.constraints import NEG_INF
from regard.search.hypothesis import Hypothesis, LengthPenalty, SearchResult
from regard.text import END

INFINITY = float("inf")
Totals = Float[np.ndarray, "source candidate"]
Places = Int[np.ndarray, "source candidate"]


class BeamState:
    """The state of a beam search. `active` holds the unfinished sources; row i of the other arrays
    belongs to the i-th of them, best beam first. `margins` (of all sources) is the smallest margin
    of any decision."""

    def __init__(
        self,
        size: int,
        n_best: int,
        length_penalty: LengthPenalty,
        limits: list[int],
        margin: float,
        end: int = END,
    ) -> None:
        count, self.end = len(limits), end
        self.size, self.n_best, self.length_penalty = size, n_best, length_penalty
        self.finished: list[list[Hypothesis]] = [
            [] for _ in range(count)
        ]  # best first, one more than n_best
        self.margins = np.full(count, margin)
        self.active = np.arange(count)
        self.limits = np.array(limits, np.int64)
        self.farthest = np.array([length_penalty.divisor(limit + 1) for limit in limits])
        self.worst = np.full(
            count, NEG_INF
        )  # score of the n_best-th hypothesis; −∞ until there are that many
        self.tokens_so_far = np.zeros((count, 1, 0), np.int64)
        self.logps = np.zeros((count, 1, 0))
        self.scores = np.zeros((count, 1))

    @np.errstate(invalid="ignore")  # −∞ − −∞, see _record_margin
    def advance(
        self, totals: Totals, beams: Places, tokens: Places, logps: Totals
    ) -> tuple[Int[np.ndarray, "left beam"], Int[np.ndarray, " left"]]:
        """Extend by one token; returns the parent beam of each new beam, and the sources that are
        left.

        Candidates come best first: total, parent beam, token and its log-probability. END counts if
        it is among the `size` best; the `size` best others are extended.
        """
        size, rows = self.size, np.arange(len(totals))[:, None]
        self.narrowest = np.full(len(totals), INFINITY)
        ends = (tokens == self.end) & (totals > NEG_INF)
        if ends.any():
            self._finish(ends, totals, beams, logps)
            order = ends.argsort(1, kind="stable")[:, : size + 1] + rows * ends.shape[1]
            totals = np.where(ends, NEG_INF, totals)
            totals, beams, tokens, logps = (
                each.take(order) for each in (totals, beams, tokens, logps)
            )
        self._record_margin(totals[:, size - 1] - totals[:, size])
        totals, beams, tokens, logps = (each[:, :size] for each in (totals, beams, tokens, logps))
        finished = self._finished(totals[:, 0])
        self.margins[self.active] = np.fmin(self.margins[self.active], self.narrowest)
        parents = rows * self.tokens_so_far.shape[1] + beams  # index among all beams of all sources
        left = (~finished).nonzero()[0]
        if len(left) < len(finished):
            totals, beams, tokens, logps, parents = (
                each[left] for each in (totals, beams, tokens, logps, parents)
            )
            for name in ("active", "limits", "farthest", "worst"):
                setattr(self, name, getattr(self, name)[left])
        self.tokens_so_far, self.logps, self.scores = (
            _extend(self.tokens_so_far, parents, tokens),
            _extend(self.logps, parents, logps),
            totals,
        )
        return beams, left

    def results(self) -> list[SearchResult]:
        """The best hypotheses of each source, best first."""
        found = []
        for answers, margin in zip(self.finished, self.margins.tolist(), strict=True):
            gaps = (a.score - b.score for a, b in pairwise(answers))
            found.append(SearchResult(answers[: self.n_best], min(margin, *gaps, INFINITY)))
        return found

    def committed_prefix(self) -> list[int]:
        """The prefix that all hypotheses of the first source, finished or not, have in common."""
        live = self.tokens_so_far[self.active == 0][
            self.scores[self.active == 0] > NEG_INF
        ].tolist()
        shared = zip(*live, *(answer.ids for answer in self.finished[0][:1]), strict=False)
        return [same[0] for same in takewhile(lambda tokens: len(set(tokens)) == 1, shared)]

    def _finish(
        self,
        ends: Bool[np.ndarray, "source candidate"],
        totals: Totals,
        beams: Places,
        logps: Totals,
    ) -> None:
        """Keep the hypotheses that end among the `size` best, and record by how much they do."""
        size, penalty = self.size, self.length_penalty.divisor(self.tokens_so_far.shape[2] + 1)
        self._record_margin(
            np.where(ends[:, :size], totals[:, :size], INFINITY).min(1) - totals[:, size]
        )
        self._record_margin(
            totals[:, size - 1] - np.where(ends[:, size:], totals[:, size:], NEG_INF).max(1)
        )
        places, ranks = ends[:, :size].nonzero()
        parents = places, beams[places, ranks]
        parts = (
            self.tokens_so_far[parents],
            self.logps[parents],
            logps[places, ranks],
            totals[places, ranks] / penalty,
        )
        for place, ids, numbers, last, score in zip(
            places, *(part.tolist() for part in parts), strict=True
        ):
            answers = self.finished[self.active[place]]
            answers.append(Hypothesis(ids, [*numbers, last], score))
            answers.sort(key=lambda answer: answer.score, reverse=True)
            del answers[self.n_best + 1 :]  # the first one beyond n_best gives the margin
            if len(answers) >= self.n_best:
                self.worst[place] = answers[self.n_best - 1].score

    def _finished(self, best: Float[np.ndarray, " source"]) -> Bool[np.ndarray, " source"]:
        """Whether no unfinished hypothesis can still reach the n_best-th: a sum only decreases, and
        its largest possible divisor is that of the shortest or the longest end."""
        step = self.tokens_so_far.shape[2]
        reach = best / np.maximum(self.farthest, self.length_penalty.divisor(step + 2))
        beaten = ~(reach > self.worst)
        self._record_margin(np.where(beaten, self.worst - reach, INFINITY))
        return beaten | (self.limits <= step)

    def _record_margin(self, margins: Float[np.ndarray, " source"]) -> None:
        """Keep the smaller margins; −∞ − −∞ is no margin, because there was no choice."""
        np.fmin(self.narrowest, margins, out=self.narrowest)


def _extend(past: np.ndarray, parents: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Each beam: the sequence of its parent, and one more value."""
    sources, beams, time = past.shape
    return np.concatenate(
        [past.reshape(sources * beams, time).take(parents, 0), new[:, :, None]], 2
    )
