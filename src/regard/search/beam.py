"""Beam search: the `size` best beginnings at each length, until no better answer can appear."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from regard.errors import RegardError
from regard.models import Model
from regard.models.contract import State
from regard.ragged import Ragged
from regard.search.beam_state import INFINITY, BeamState
from regard.search.constraints import NEG_INF, Constraint, Scores, apply_constraints
from regard.search.hypothesis import SearchResult
from regard.search.length_penalty import LengthPenalty
from regard.search.lexical_constraints import LexicalConstraints
from regard.text import BEGIN

FEW = 512  # numbers that numpy ranks sooner than torch is called


@dataclass(frozen=True)
class Beam:
    """The answers that a beam of `size` reaches, ranked by log-probability over a length penalty, the best first.

    A source is done when it has `best` answers and no beginning left, however it went on, could beat them.
    `required` are sequences of tokens that every answer must contain.

    >>> Beam(4, best=4, length=Length(1.0))(model, source, limits)[0].hypotheses
    """

    size: int = 4
    n_best: int = 1
    length_penalty: LengthPenalty = field(default_factory=LengthPenalty)
    constraints: tuple[Constraint, ...] = ()
    required: LexicalConstraints | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or not 1 <= self.n_best <= self.size:
            raise RegardError(f"a beam of {self.size} gives 1 to {self.size} answers; asked for the {self.n_best} best")

    def __call__(self, model: Model, source: Ragged, limits: Int[Tensor, " source"]) -> list[SearchResult]:
        beams = BeamSearch(self, model, source, limits)
        for _ in beams:
            pass
        return beams.found()


class BeamSearch:
    """A search under way; iterate to take its steps. Rows are (source, beam), the best beam of a source first."""

    def __init__(self, settings: Beam, model: Model, source: Ragged, limits: Int[Tensor, " source"]) -> None:
        self.settings, self.model, self.source = settings, model, source
        required: tuple[Constraint, ...] = () if settings.required is None else (settings.required,)
        self.constraints = (*settings.constraints, *required)
        margin = INFINITY if settings.required is None else 0.0  # required words are always searched alone
        self.state = BeamState(settings.size, settings.n_best, settings.length_penalty, limits.tolist(), margin)

    def __iter__(self) -> Iterator[BeamSearch]:
        state = None
        while len(self.state.going):
            state = self._turn(state)
            yield self

    def found(self) -> list[SearchResult]:
        """For each source its answers, the best first."""
        return self.state.found()

    def committed_prefix(self) -> list[int]:
        """What the answer to the first source begins with, whatever comes."""
        return self.state.committed_prefix()

    @torch.inference_mode()
    def _turn(self, state: State | None) -> State:
        """One more token in every beam; sources that are over leave."""
        beam_state, device = self.state, self.source.values.device
        if state is None:
            state = self.model.start(self.model.encode(self.source))
            tokens = torch.full((len(beam_state.going),), BEGIN, device=device)
        else:
            tokens = torch.from_numpy(beam_state.tokens_so_far[:, :, -1].ravel()).to(device)
        logits, state = self.model.step(tokens, state)
        sources, beams = len(beam_state.going), tokens.size(0) // max(1, len(beam_state.going))
        came, left = beam_state.advance(*self._candidates(logits.float().log_softmax(-1), beams))
        if len(left):
            rows = torch.from_numpy((came + beams * left[:, None]).ravel()).to(device)
            state = state.branch(rows, None if len(left) == sources else torch.from_numpy(left).to(device))
        return state

    def _candidates(self, logps: Scores, beams: int) -> tuple[np.ndarray, ...]:
        """For each source the best continuations, the best first: totals, beams, tokens, log-probabilities."""
        # At most one end for each beam, so `size` of twice as many go on; and one more to compare with.
        size, vocabulary, count = self.settings.size, logps.shape[1], 2 * self.settings.size + 1
        allowed = self._allowed(logps, beams)
        single = len(self.state.going) == 1 and self.settings.required is None and not logps.is_cuda
        if single and count <= logps.numel() <= FEW:
            return top_candidates_numpy(allowed, logps, self.state.scores, count)
        scores = torch.from_numpy(self.state.scores.reshape(-1, 1)).to(logps)
        totals = (allowed + scores).view(-1, beams * vocabulary)
        missing = count - totals.shape[1]
        if missing > 0:
            totals = F.pad(totals, (0, missing), value=NEG_INF)
        if self.settings.required is None:
            values, places = totals.topk(count)
        else:
            tokens_so_far = torch.from_numpy(self.state.tokens_so_far).to(logps.device)
            values, places = self.settings.required.pick(totals, tokens_so_far, size, vocabulary)
        if missing > 0:
            places = places.clamp_(max=beams * vocabulary - 1)
        numbers = logps.view(-1, beams * vocabulary).gather(1, places)
        best, found, logp = (part.cpu().numpy() for part in (values, places, numbers))
        return best.astype(np.float64), found // vocabulary, found % vocabulary, logp.astype(np.float64)

    def _allowed(self, logps: Scores, beams: int) -> Scores:
        """What may follow; at its limit a row may only end."""
        last = self.state.limits <= self.state.tokens_so_far.shape[2]
        if not self.constraints and not last.any():
            return logps
        tokens_so_far = torch.from_numpy(self.state.tokens_so_far).flatten(0, 1).to(logps.device)
        return apply_constraints(
            self.constraints, logps, tokens_so_far, torch.from_numpy(last.repeat(beams)).to(logps.device)
        )


def top_candidates_numpy(
    allowed: Scores, logps: Scores, scores: Float[np.ndarray, "1 beam"], count: int
) -> tuple[np.ndarray, ...]:
    """The candidates of a single source: totals, beams, tokens, log-probabilities."""
    vocabulary = logps.shape[1]
    numbers, may = logps.numpy(), allowed.numpy()
    totals = (may + scores.reshape(-1, 1)).ravel()
    places = (-totals).argsort(kind="stable")[:count]
    found = totals[places], places // vocabulary, places % vocabulary, numbers.ravel()[places].astype(np.float64)
    return tuple(part[None] for part in found)
