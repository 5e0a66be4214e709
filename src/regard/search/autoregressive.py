"""Walk: one token after another in each row, by any way of choosing; what greedy search and sampling share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError
from regard.models import Model
from regard.ragged import Ragged
from regard.search.constraints import Constraint, Scores, apply_constraints
from regard.search.hypothesis import Hypothesis
from regard.text import BEGIN, END

UNSATISFIABLE = "these rules leave nothing to say at some place: no answer keeps them all; loosen one"
COMPACT_SHARE = 0.25  # share of finished rows from which it pays to take them out of the batch

# From log-probabilities, the rows and the step: a token for each row, and by how much it won.
Choice = Callable[[Scores, Int[Tensor, " row"], int], tuple[Int[Tensor, " row"], Float[Tensor, " row"]]]


@torch.inference_mode()
def decode(
    model: Model,
    source: Ragged,
    limits: Int[Tensor, " source"],
    choose: Choice,
    *,
    copies: int = 1,
    constraints: Sequence[Constraint] = (),
) -> list[tuple[Hypothesis, float]]:
    """For each source, `copies` walks side by side, and the narrowest margin of each."""
    rows = torch.arange(len(source) * copies, device=source.values.device)
    state = model.start(model.encode(source))
    if copies > 1:
        state = state.branch(rows // copies)
    limits = limits.to(rows.device).repeat_interleave(copies)
    soonest, steps = (int(limits.min()), int(limits.max()) + 1) if len(rows) else (0, 0)
    tokens, over = torch.full_like(rows, BEGIN), torch.zeros_like(rows, dtype=torch.bool)
    tokens_so_far = rows.new_empty(len(rows), 0)  # kept up only for rules to read
    taken: list[tuple[Tensor, ...]] = []
    for step in range(steps):
        logits, state = model.step(tokens, state)
        scores = logits.float().log_softmax(-1)
        allowed = scores
        if constraints or step >= soonest:
            allowed = apply_constraints(constraints, scores, tokens_so_far, limits[rows] <= step)
        tokens, margin = choose(allowed, rows, step)
        taken.append((rows, tokens, scores.gather(1, tokens.unsqueeze(1)).squeeze(1), margin))
        if constraints:
            tokens_so_far = torch.cat([tokens_so_far, tokens[:, None]], 1)
        if END not in tokens.tolist():
            continue
        over = over | (tokens == END)
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
    return _hypotheses(len(limits), taken)


def _hypotheses(count: int, taken: Sequence[tuple[Tensor, ...]]) -> list[tuple[Hypothesis, float]]:
    """Each row's tokens up to its end, from what was taken step by step; a row that had ended went on unheard."""
    ids: list[list[int]] = [[] for _ in range(count)]
    logps: list[list[float]] = [[] for _ in range(count)]
    narrowest, over = [float("inf")] * count, [False] * count
    for row, token, logp, margin in zip(*(torch.cat(part).tolist() for part in zip(*taken, strict=True)), strict=True):
        if over[row]:
            continue
        if math.isnan(margin):  # −∞ from −∞: there was nothing to choose from
            raise RegardError(UNSATISFIABLE)
        ids[row].append(token)
        logps[row].append(logp)
        narrowest[row], over[row] = min(narrowest[row], margin), token == END
    found = zip(ids, logps, narrowest, strict=True)
    return [(Hypothesis(a[:-1], b, sum(b)), margin) for a, b, margin in found]
