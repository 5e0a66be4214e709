"""Beam trace: a beam search that records every candidate and its status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from regard.errors import RegardError
from regard.models import Model
from regard.ragged import Ragged
from regard.search.beam import Beam, BeamSearch
from regard.search.beam_state import BeamState, Places, Totals
from regard.search.constraints import NEG_INF
from regard.text import END

# expanded: extended by another token; finished: ended; pruned: others were better; stopped: the
# search ended first, because nothing can improve the result or the length limit is reached.
CandidateStatus = Literal["expanded", "finished", "pruned", "stopped"]


@dataclass(frozen=True)
class Candidate:
    """A hypothesis that the search considered.

    `parent` is the number of the one it extends (None at the start), `logp` the log-probability of
    its last token, `total` the sum that ranks unfinished hypotheses, and `score` the total over the
    length penalty. A pruned one is `margin` below `pruned_by`, the last one that stays in the
    beam."""

    number: int
    parent: int | None
    step: int
    token: int
    logp: float
    total: float
    score: float
    status: CandidateStatus
    pruned_by: int | None = None
    margin: float = 0.0


class BeamTrace(BeamState):
    """The state of a search for one source, with all candidates."""

    def __init__(self, settings: Beam, limits: list[int]) -> None:
        super().__init__(
            settings.size, settings.n_best, settings.length_penalty, limits, float("inf")
        )
        self.candidates: list[Candidate] = []
        self._beams: list[int | None] = [None]  # the candidate number of each beam

    def advance(
        self, totals: Totals, beams: Places, tokens: Places, logps: Totals
    ) -> tuple[Int[np.ndarray, "left beam"], Int[np.ndarray, " left"]]:
        new = list(self._classify(*(each[0].tolist() for each in (totals, beams, tokens, logps))))
        parents, left = super().advance(totals, beams, tokens, logps)
        if not len(left):
            new = [
                replace(one, status="stopped") if one.status == "expanded" else one for one in new
            ]
        self.candidates += new
        self._beams = [one.number for one in new if one.status == "expanded"]
        return parents, left

    def _classify(
        self, totals: list[float], beams: list[int], tokens: list[int], logps: list[float]
    ) -> Iterator[Candidate]:
        """Candidates with their status, best first. END must be among the `size` best of all; of
        the others, the `size` best stay in the beam."""
        step, size = self.tokens_so_far.shape[2], self.size
        penalty = self.length_penalty.divisor(step + 1)
        first, others = len(self.candidates), 0
        last = latest = 0  # ranks of the last kept candidates: of all, and of those that do not end
        for rank, (total, beam, token, logp) in enumerate(
            zip(totals, beams, tokens, logps, strict=True)
        ):
            if total <= NEG_INF:  # forbidden by a constraint
                return
            number, ends = first + rank, token == END
            stays = rank < size if ends else others < size
            pruned_by = None if stays else first + (last if ends else latest)
            status: CandidateStatus = ("finished" if ends else "expanded") if stays else "pruned"
            margin = 0.0 if pruned_by is None else totals[pruned_by - first] - total
            yield Candidate(
                number,
                self._beams[beam],
                step,
                token,
                logp,
                total,
                total / penalty,
                status,
                pruned_by,
                margin,
            )
            last = rank if rank < size else last
            if not ends and stays:
                others, latest = others + 1, rank


def trace_beams(
    search: Beam, model: Model, source: Ragged, limit: int
) -> tuple[list[Candidate], BeamSearch]:
    """All candidates of a search for one source, in order, and the search itself."""
    if search.required is not None:
        raise RegardError("a beam tree cannot show a search with required words; remove them")
    if len(source) != 1:
        raise RegardError(f"a beam tree needs exactly one source; got {len(source)}")
    beams = BeamSearch(search, model, source, torch.tensor([limit]))
    beams.state = recorder = BeamTrace(search, [limit])
    for _ in beams:
        pass
    return recorder.candidates, beams
