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
from regard.search.beam_state import FAR, Board
from regard.search.constraints import NEVER, Rule, Scores, applied
from regard.search.hypothesis import Found
from regard.search.length_penalty import Length
from regard.search.lexical_constraints import Required
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
    best: int = 1
    length: Length = field(default_factory=Length)
    rules: tuple[Rule, ...] = ()
    required: Required | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or not 1 <= self.best <= self.size:
            raise RegardError(f"a beam of {self.size} gives 1 to {self.size} answers; asked for the {self.best} best")

    def __call__(self, model: Model, source: Ragged, limits: Int[Tensor, " source"]) -> list[Found]:
        beams = Beams(self, model, source, limits)
        for _ in beams:
            pass
        return beams.found()


class Beams:
    """A search under way; iterate to take its steps. Rows are (source, beam), the best beam of a source first."""

    def __init__(self, settings: Beam, model: Model, source: Ragged, limits: Int[Tensor, " source"]) -> None:
        self.settings, self.model, self.source = settings, model, source
        required: tuple[Rule, ...] = () if settings.required is None else (settings.required,)
        self.rules = (*settings.rules, *required)
        margin = FAR if settings.required is None else 0.0  # required words are always searched alone
        self.board = Board(settings.size, settings.best, settings.length, limits.tolist(), margin)

    def __iter__(self) -> Iterator[Beams]:
        state = None
        while len(self.board.going):
            state = self._turn(state)
            yield self

    def found(self) -> list[Found]:
        """For each source its answers, the best first."""
        return self.board.found()

    def certain(self) -> list[int]:
        """What the answer to the first source begins with, whatever comes."""
        return self.board.certain()

    @torch.inference_mode()
    def _turn(self, state: State | None) -> State:
        """One more token in every beam; sources that are over leave."""
        board, device = self.board, self.source.values.device
        if state is None:
            state = self.model.start(self.model.encode(self.source))
            tokens = torch.full((len(board.going),), BEGIN, device=device)
        else:
            tokens = torch.from_numpy(board.said[:, :, -1].ravel()).to(device)
        logits, state = self.model.step(tokens, state)
        sources, beams = len(board.going), tokens.size(0) // max(1, len(board.going))
        came, left = board.advance(*self._candidates(logits.float().log_softmax(-1), beams))
        if len(left):
            rows = torch.from_numpy((came + beams * left[:, None]).ravel()).to(device)
            state = state.branch(rows, None if len(left) == sources else torch.from_numpy(left).to(device))
        return state

    def _candidates(self, logps: Scores, beams: int) -> tuple[np.ndarray, ...]:
        """For each source the best continuations, the best first: totals, beams, tokens, log-probabilities."""
        # At most one end for each beam, so `size` of twice as many go on; and one more to compare with.
        size, vocabulary, count = self.settings.size, logps.shape[1], 2 * self.settings.size + 1
        allowed = self._allowed(logps, beams)
        alone = len(self.board.going) == 1 and self.settings.required is None and not logps.is_cuda
        if alone and count <= logps.numel() <= FEW:
            return few(allowed, logps, self.board.scores, count)
        scores = torch.from_numpy(self.board.scores.reshape(-1, 1)).to(logps)
        totals = (allowed + scores).view(-1, beams * vocabulary)
        missing = count - totals.shape[1]
        if missing > 0:
            totals = F.pad(totals, (0, missing), value=NEVER)
        if self.settings.required is None:
            values, places = totals.topk(count)
        else:
            said = torch.from_numpy(self.board.said).to(logps.device)
            values, places = self.settings.required.pick(totals, said, size, vocabulary)
        if missing > 0:
            places = places.clamp_(max=beams * vocabulary - 1)
        numbers = logps.view(-1, beams * vocabulary).gather(1, places)
        best, found, logp = (part.cpu().numpy() for part in (values, places, numbers))
        return best.astype(np.float64), found // vocabulary, found % vocabulary, logp.astype(np.float64)

    def _allowed(self, logps: Scores, beams: int) -> Scores:
        """What may follow; at its limit a row may only end."""
        last = self.board.limits <= self.board.said.shape[2]
        if not self.rules and not last.any():
            return logps
        said = torch.from_numpy(self.board.said).flatten(0, 1).to(logps.device)
        return applied(self.rules, logps, said, torch.from_numpy(last.repeat(beams)).to(logps.device))


def few(allowed: Scores, logps: Scores, scores: Float[np.ndarray, "1 beam"], count: int) -> tuple[np.ndarray, ...]:
    """The candidates of a single source: totals, beams, tokens, log-probabilities."""
    vocabulary = logps.shape[1]
    numbers, may = logps.numpy(), allowed.numpy()
    totals = (may + scores.reshape(-1, 1)).ravel()
    places = (-totals).argsort(kind="stable")[:count]
    found = totals[places], places // vocabulary, places % vocabulary, numbers.ravel()[places].astype(np.float64)
    return tuple(part[None] for part in found)
