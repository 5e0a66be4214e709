"""Chronicle: a beam search that writes down every beginning it weighed, and what became of each."""

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

# kept: it went on; finished: it ended, and counts; pruned: others were better; stopped: it could go on, but the search
# was over: nothing that is left can beat the answers, or they may not be longer.
Fate = Literal["kept", "finished", "pruned", "stopped"]


@dataclass(frozen=True)
class Candidate:
    """A beginning. `parent` is the number of the one it continues, None for the first token; `logp` its last token's
    log-probability, `total` the sum by which beginnings are compared, `score` that over the length penalty, by which
    answers are. What was pruned is `behind` a `rival`, the last one that was better and stayed."""

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
    """The books of a search for one source, with everything in them."""

    def __init__(self, settings: Beam, limits: list[int]) -> None:
        super().__init__(settings.size, settings.n_best, settings.length_penalty, limits, float("inf"))
        self.weighed: list[Candidate] = []
        self._beams: list[int | None] = [None]  # whose numbers the beams have

    def advance(
        self, totals: Totals, beams: Places, tokens: Places, logps: Totals
    ) -> tuple[Int[np.ndarray, "left beam"], Int[np.ndarray, " left"]]:
        new = list(self._sorted_out(*(each[0].tolist() for each in (totals, beams, tokens, logps))))
        came, left = super().advance(totals, beams, tokens, logps)
        if not len(left):
            new = [replace(one, fate="stopped") if one.fate == "kept" else one for one in new]
        self.weighed += new
        self._beams = [one.number for one in new if one.fate == "kept"]
        return came, left

    def _sorted_out(
        self, totals: list[float], beams: list[int], tokens: list[int], logps: list[float]
    ) -> Iterator[Candidate]:
        """The candidates, which come best first. An end counts among the `size` best of all; of the others the `size`
        best go on."""
        step, size = self.tokens_so_far.shape[2], self.size
        penalty = self.length_penalty.divisor(step + 1)
        first, others = len(self.weighed), 0
        last = latest = 0  # of the `size` best of all, and of the others
        for rank, (total, beam, token, logp) in enumerate(zip(totals, beams, tokens, logps, strict=True)):
            if total <= NEG_INF:  # forbidden, or nothing at all
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
    """All that a search for one source weighed, in order, and the search, which has its answers."""
    if search.required is not None:
        raise RegardError("a search for required words ranks in groups, which no tree shows; leave them out")
    if len(source) != 1:
        raise RegardError(f"a tree is that of one source; got {len(source)}")
    beams = BeamSearch(search, model, source, torch.tensor([limit]))
    beams.state = books = BeamTrace(search, [limit])
    for _ in beams:
        pass
    return books.weighed, beams
