"""Greedy search: the likeliest next token, until every row has ended."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.text import BEGIN, END


@torch.no_grad()
def greedy(model: Model, source: Ragged, *, longest: int | Tensor) -> list[list[int]]:
    """For each source the ids the model finds likeliest one by one, without begin and end; at most `longest` of them
    (one number, or one for each row). Rows that have ended leave the batch.
    """
    device = source.values.device
    state = model.start(model.encode(source))
    rows = torch.arange(len(source), device=device)
    limits = torch.as_tensor(longest, device=device).expand(len(source))
    tokens = torch.full_like(rows, BEGIN)
    said: list[tuple[Tensor, Tensor]] = []
    for step in range(int(limits.max()) if len(source) else 0):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(-1)
        goes_on = tokens != END
        said.append((rows[goes_on], tokens[goes_on]))
        goes_on &= limits[rows] > step + 1
        if not goes_on.all():
            left = goes_on.nonzero()[:, 0]
            rows, tokens = rows[left], tokens[left]
            if not len(rows):
                break
            state = state.select(left)
    results: list[list[int]] = [[] for _ in range(len(source))]
    for places, words in said:
        for row, token in zip(places.tolist(), words.tolist(), strict=True):
            results[row].append(token)
    return results
