"""Greedy search, and the autoregressive loop that it shares with sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError
from regard.models import Model
from regard.ragged import Ragged
from regard.search.constraints import NEG_INF, Constraint, Scores, apply_constraints, never
from regard.search.hypothesis import Hypothesis, SearchResult
from regard.search.start import start_tokens
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.threads import STEP_ROWS, search_threads

UNSATISFIABLE = "no output satisfies all constraints; relax one (--max-length, --ban, ...)"
COMPACT_SHARE = 0.25  # share of finished rows from which removing them pays

# From log-probabilities, row indices and the step: a token for each row, and its margin.
Choice = Callable[
    [Scores, Int[Tensor, " row"], int], tuple[Int[Tensor, " row"], Float[Tensor, " row"]]
]


@torch.inference_mode()
def decode(
    model: Model,
    source: Ragged,
    limits: Int[Tensor, " source"],
    choose: Choice,
    *,
    copies: int = 1,
    constraints: Sequence[Constraint] = (),
    template: Template = DEFAULT_TEMPLATE,
) -> list[tuple[Hypothesis, float]]:
    """`copies` outputs per source, each with its smallest margin."""
    rows = torch.arange(len(source) * copies, device=source.values.device)
    end, constraints = template.end, (*never(template.banned), *constraints)
    state, tokens = start_tokens(model, source, template)
    if copies > 1:
        state, tokens = state.branch(rows // copies), tokens[rows // copies]
    limits = limits.to(rows.device).repeat_interleave(copies)
    soonest, steps = (int(limits.min()), int(limits.max()) + 1) if len(rows) else (0, 0)
    over = torch.zeros_like(rows, dtype=torch.bool)
    tokens_so_far = rows.new_empty(len(rows), 0)  # only constraints read it
    taken: list[tuple[Tensor, ...]] = []
    threads = search_threads(len(source), rows.device)
    for step in range(steps):
        with threads.measure(STEP_ROWS + len(rows)):
            logits, state = model.step(tokens, state)
            scores = logits.float().log_softmax(-1)
        allowed = scores
        if constraints or step >= soonest:
            last = limits[rows] <= step
            allowed = apply_constraints(constraints, scores, tokens_so_far, last, end)
        tokens, margin = choose(allowed, rows, step)
        taken.append((rows, tokens, scores.gather(1, tokens.unsqueeze(1)).squeeze(1), margin))
        if constraints:
            tokens_so_far = torch.cat([tokens_so_far, tokens[:, None]], 1)
        if end not in tokens.tolist():
            continue
        over = over | (tokens == end)
        ended = int(over.sum())
        if ended == len(rows):
            break
        if ended >= COMPACT_SHARE * len(rows):
            left = (~over).nonzero()[:, 0]
            rows, tokens, over, tokens_so_far, state = (
                rows[left],
                tokens[left],
                over[left],
                tokens_so_far[left],
                state.select(left),
            )
    return _hypotheses(len(limits), taken, end)


def _hypotheses(
    count: int, taken: Sequence[tuple[Tensor, ...]], end: int
) -> list[tuple[Hypothesis, float]]:
    """Each row's tokens up to its END; what a finished row produced afterwards is ignored."""
    ids: list[list[int]] = [[] for _ in range(count)]
    logps: list[list[float]] = [[] for _ in range(count)]
    narrowest, over = [float("inf")] * count, [False] * count
    for row, token, logp, margin in zip(
        *(torch.cat(part).tolist() for part in zip(*taken, strict=True)), strict=True
    ):
        if over[row]:
            continue
        if math.isnan(margin):  # −∞ − −∞: every token was forbidden
            raise RegardError(UNSATISFIABLE)
        ids[row].append(token)
        logps[row].append(logp)
        narrowest[row], over[row] = min(narrowest[row], margin), token == end
    found = zip(ids, logps, narrowest, strict=True)
    return [(Hypothesis(a[:-1], b, sum(b)), margin) for a, b, margin in found]


@dataclass(frozen=True)
class Greedy:
    """One hypothesis per source: the most likely token at each step.

    >>> Greedy()(model, source, limits)[0].hypotheses[0].ids
    """

    constraints: tuple[Constraint, ...] = ()
    template: Template = DEFAULT_TEMPLATE

    def __call__(
        self, model: Model, source: Ragged, limits: Int[Tensor, " source"]
    ) -> list[SearchResult]:
        if len(source) == 1 and not self.constraints and not source.values.is_cuda:
            return [greedy_single(model, source, int(limits[0]), self.template)]
        return [
            SearchResult([found], margin)
            for found, margin in decode(
                model,
                source,
                limits,
                most_likely,
                constraints=self.constraints,
                template=self.template,
            )
        ]


def most_likely(scores: Scores, rows: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The most likely token of each row, and its margin over the second."""
    values, tokens = scores.topk(2)
    return tokens.select(1, 0), values.select(1, 0) - values.select(1, 1)


@torch.inference_mode()
def greedy_single(
    model: Model, source: Ragged, limit: int, template: Template = DEFAULT_TEMPLATE
) -> SearchResult:
    """A single source: each step only takes the argmax; log-probabilities are computed once at the
    end.
    """
    end, banned = template.end, list(template.banned)
    state, token = start_tokens(model, source, template)
    tokens_so_far: list[int] = []
    seen: list[Scores] = []
    threads = search_threads(1, token.device)
    while len(tokens_so_far) <= limit and end not in tokens_so_far[-1:]:
        with threads.measure(1):
            logits, state = model.step(token, state)
        seen.append(logits)
        if banned:
            logits = logits.clone()
            logits[:, banned] = NEG_INF
        token = logits.argmax(1)
        tokens_so_far.append(
            int(token) if len(tokens_so_far) < limit else end
        )  # at the limit only END is allowed
    scores = torch.cat(seen).float().log_softmax(-1)
    allowed = scores
    if banned:
        allowed = scores.clone()
        allowed[:, banned] = NEG_INF
    best = allowed.topk(2).values
    logps = scores.gather(1, torch.tensor(tokens_so_far)[:, None])[:, 0].tolist()
    margins = (best[:, 0] - best[:, 1])[:limit].tolist()  # a forced END was no decision
    return SearchResult(
        [Hypothesis(tokens_so_far[:-1], logps, sum(logps))], min(margins, default=float("inf"))
    )
