"""Beam trace: a beam search that records every candidate and its fate."""

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

# kept: extended; finished: ended and counted; pruned: others were better; stopped: could be extended,
# but the search ended because nothing can improve the result or the length limit is reached.
Fate = Literal["kept", "finished", "pruned", "stopped"]


@dataclass(frozen=True)
class Candidate:
    """A hypothesis that was considered. `parent` is the number of the one it extends (None at the start),
    `logp` the log-probability of its last token, `total` the sum that unfinished hypotheses are compared
    by, and `score` the total over the length penalty. A pruned one is `behind` its `rival`, the last
    better one that was kept."""

    number: int
    parent: int | None
    step: int
    token: int
    logp: float
    total: float
    score: float
    fate: Fate
    rival: int | None = None
    behind: float = 0.0


class BeamTrace(BeamState):
    """The state of a search for one source, with all candidates."""

    def __init__(self, settings: Beam, limits: list[int]) -> None:
        super().__init__(settings.size, settings.n_best, settings.length_penalty, limits, float("inf"))
        self.candidates: list[Candidate] = []
        self._beams: list[int | None] = [None]  # the candidate number of each beam

    def advance(
        self, totals: Totals, beams: Places, tokens: Places, logps: Totals
    ) -> tuple[Int[np.ndarray, "left beam"], Int[np.ndarray, " left"]]:
        new = list(self._classify(*(each[0].tolist() for each in (totals, beams, tokens, logps))))
        parents, left = super().advance(totals, beams, tokens, logps)
        if not len(left):
            new = [replace(one, fate="stopped") if one.fate == "kept" else one for one in new]
        self.candidates += new
        self._beams = [one.number for one in new if one.fate == "kept"]
        return parents, left

    def _classify(
        self, totals: list[float], beams: list[int], tokens: list[int], logps: list[float]
    ) -> Iterator[Candidate]:
        """Candidates with their fates, best first. END counts among the `size` best of all; of the others, the
        `size` best are kept."""
        step, size = self.tokens_so_far.shape[2], self.size
        penalty = self.length_penalty.divisor(step + 1)
        first, others = len(self.candidates), 0
        last = latest = 0  # ranks of the last kept candidates: of all, and of those that do not end
        for rank, (total, beam, token, logp) in enumerate(zip(totals, beams, tokens, logps, strict=True)):
            if total <= NEG_INF:  # forbidden by a constraint
                return
            number, ends = first + rank, token == END
            stays = rank < size if ends else others < size
            rival = None if stays else first + (last if ends else latest)
            fate: Fate = ("finished" if ends else "kept") if stays else "pruned"
            behind = 0.0 if rival is None else totals[rival - first] - total
            yield Candidate(number, self._beams[beam], step, token, logp, total, total / penalty, fate, rival, behind)
            last = rank if rank < size else last
            if not ends and stays:
                others, latest = others + 1, rank


def trace_beams(search: Beam, model: Model, source: Ragged, limit: int) -> tuple[list[Candidate], BeamSearch]:
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
