"""Beam search: keeps the `size` best hypotheses at each length until none can improve."""

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
from regard.search.constraints import (
    NEG_INF,
    Constraint,
    LexicalConstraints,
    Scores,
    apply_constraints,
    never,
)
from regard.search.hypothesis import LengthPenalty, SearchResult
from regard.search.start import start_tokens
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.threads import STEP_ROWS, search_threads

SMALL = 512  # up to this many candidates, numpy ranks faster than torch


@dataclass(frozen=True)
class Beam:
    """Beam search with `size` hypotheses, ranked by log-probability over a length penalty.

    A source is finished when it has `n_best` hypotheses that no unfinished one can still beat.
    `required` holds token sequences that every output must contain.

    >>> Beam(4, n_best=4, length_penalty=LengthPenalty(1.0))(model, source, limits)[0].hypotheses
    """

    size: int = 4
    n_best: int = 1
    length_penalty: LengthPenalty = field(default_factory=LengthPenalty)
    constraints: tuple[Constraint, ...] = ()
    required: LexicalConstraints | None = None
    template: Template = DEFAULT_TEMPLATE

    def __post_init__(self) -> None:
        if self.size < 1 or not 1 <= self.n_best <= self.size:
            raise RegardError(
                f"n_best must be between 1 and the beam size {self.size}; got {self.n_best}"
            )

    def __call__(
        self, model: Model, source: Ragged, limits: Int[Tensor, " source"]
    ) -> list[SearchResult]:
        beams = BeamSearch(self, model, source, limits)
        for _ in beams:
            pass
        return beams.results()


class BeamSearch:
    """A running beam search; iterate to take steps. Rows are (source, beam), best beam first."""

    def __init__(
        self, settings: Beam, model: Model, source: Ragged, limits: Int[Tensor, " source"]
    ) -> None:
        self.settings, self.model, self.source = settings, model, source
        required: tuple[Constraint, ...] = () if settings.required is None else (settings.required,)
        banned = never(settings.template.banned)
        self.constraints = (*banned, *settings.constraints, *required)
        margin = INFINITY if settings.required is None else 0.0  # 0: always searched alone
        self.state = BeamState(
            settings.size,
            settings.n_best,
            settings.length_penalty,
            limits.tolist(),
            margin,
            settings.template.end,
        )

    def __iter__(self) -> Iterator[BeamSearch]:
        state = None
        threads = search_threads(len(self.source), self.source.values.device)
        while active := len(self.state.active):
            with threads.measure(STEP_ROWS + active * self.settings.size):
                state = self._step(state)
            yield self

    def results(self) -> list[SearchResult]:
        """The hypotheses of each source, best first."""
        return self.state.results()

    def committed_prefix(self) -> list[int]:
        """The prefix of the first source's output that can no longer change."""
        return self.state.committed_prefix()

    @torch.inference_mode()
    def _step(self, state: State | None) -> State:
        """Extend every beam by one token; finished sources leave the batch."""
        beam_state, device = self.state, self.source.values.device
        if state is None:
            state, tokens = start_tokens(self.model, self.source, self.settings.template)
        else:
            tokens = torch.from_numpy(beam_state.tokens_so_far[:, :, -1].ravel()).to(device)
        logits, state = self.model.step(tokens, state)
        sources, beams = len(beam_state.active), tokens.size(0) // max(1, len(beam_state.active))
        parents, left = beam_state.advance(*self._candidates(logits.float().log_softmax(-1), beams))
        if len(left):
            rows = torch.from_numpy((parents + beams * left[:, None]).ravel()).to(device)
            state = state.branch(
                rows, None if len(left) == sources else torch.from_numpy(left).to(device)
            )
        return state

    def _candidates(self, logps: Scores, beams: int) -> tuple[np.ndarray, ...]:
        """The best continuations of each source: totals, beams, tokens, log-probabilities."""
        # Each beam ends at most once, so 2 · size candidates leave `size` to extend; one more for
        # the margin.
        size, vocabulary, count = self.settings.size, logps.shape[1], 2 * self.settings.size + 1
        allowed = self._allowed(logps, beams)
        single = (
            len(self.state.active) == 1 and self.settings.required is None and not logps.is_cuda
        )
        if single and count <= logps.numel() <= SMALL:
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
        return (
            best.astype(np.float64),
            found // vocabulary,
            found % vocabulary,
            logp.astype(np.float64),
        )

    def _allowed(self, logps: Scores, beams: int) -> Scores:
        """Log-probabilities under the constraints; at its limit a row may only end."""
        last = self.state.limits <= self.state.tokens_so_far.shape[2]
        if not self.constraints and not last.any():
            return logps
        tokens_so_far = torch.from_numpy(self.state.tokens_so_far).flatten(0, 1).to(logps.device)
        return apply_constraints(
            self.constraints,
            logps,
            tokens_so_far,
            torch.from_numpy(last.repeat(beams)).to(logps.device),
            self.settings.template.end,
        )


def top_candidates_numpy(
    allowed: Scores, logps: Scores, scores: Float[np.ndarray, "1 beam"], count: int
) -> tuple[np.ndarray, ...]:
    """The candidates of one source, ranked by numpy: totals, beams, tokens, log-probabilities."""
    vocabulary = logps.shape[1]
    numbers = logps.numpy()
    totals = (allowed.numpy() + scores.reshape(-1, 1)).ravel()
    places = (-totals).argsort(kind="stable")[:count]
    found = (
        totals[places],
        places // vocabulary,
        places % vocabulary,
        numbers.ravel()[places].astype(np.float64),
    )
    return tuple(part[None] for part in found)
