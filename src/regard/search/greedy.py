"""Greedy search: the most likely next token, until END."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.search.autoregressive import decode
from regard.search.constraints import Constraint, Scores
from regard.search.hypothesis import Hypothesis, SearchResult
from regard.text import BEGIN, END
from regard.threads import search_threads


@dataclass(frozen=True)
class Greedy:
    """One hypothesis per source: the most likely token at each step.

    >>> Greedy()(model, source, limits)[0].hypotheses[0].ids
    """

    constraints: tuple[Constraint, ...] = ()

    def __call__(
        self, model: Model, source: Ragged, limits: Int[Tensor, " source"]
    ) -> list[SearchResult]:
        if len(source) == 1 and not self.constraints and not source.values.is_cuda:
            return [greedy_single(model, source, int(limits[0]))]
        return [
            SearchResult([found], margin)
            for found, margin in decode(
                model, source, limits, most_likely, constraints=self.constraints
            )
        ]


def most_likely(scores: Scores, rows: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The most likely token of each row, and its margin over the second."""
    values, tokens = scores.topk(2)
    return tokens.select(1, 0), values.select(1, 0) - values.select(1, 1)


@torch.inference_mode()
def greedy_single(model: Model, source: Ragged, limit: int) -> SearchResult:
    """A single source: each step only takes the argmax; log-probabilities are computed once at the
    end.
    """
    state, token = model.start(model.encode(source)), torch.full((1,), BEGIN)
    tokens_so_far: list[int] = []
    seen: list[Scores] = []
    threads = search_threads(1, token.device)
    while len(tokens_so_far) <= limit and END not in tokens_so_far[-1:]:
        with threads.measure(1):
            logits, state = model.step(token, state)
        seen.append(logits)
        token = logits.argmax(1)
        tokens_so_far.append(
            int(token) if len(tokens_so_far) < limit else END
        )  # at the limit only END is allowed
    scores = torch.cat(seen).float().log_softmax(-1)
    best = scores.topk(2).values
    logps = scores.gather(1, torch.tensor(tokens_so_far)[:, None])[:, 0].tolist()
    margins = (best[:, 0] - best[:, 1])[:limit].tolist()  # a forced END was no decision
    return SearchResult(
        [Hypothesis(tokens_so_far[:-1], logps, sum(logps))], min(margins, default=float("inf"))
    )
