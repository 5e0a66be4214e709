"""Patterns of attention heads, measured: previous token, diagonal, first token, …

The score of a pattern is the share of the weights that it holds, compared with uniform attention:
0 if the head attends no more to the pattern than uniform attention does, 1 if it attends to nothing
else. A row counts only if the pattern leaves out some of the keys that it may attend to.

>>> scores = pattern_scores(trace["dec.1.cross.weights"], "cross")
>>> scores["diagonal"][0]
>>> strongest(scores)[0]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

THRESHOLD = 0.5  # of a score, from which a head has the name of the pattern
SELF = ("previous token", "same token", "next token", "first token", "last token")
NAMES = {
    "encoder": SELF,
    "decoder": ("previous token", "same token", "first token"),
    "cross": ("diagonal", "reverse diagonal", "first token", "last token"),
}

Weights = Float[Tensor, "head query key"]
Cells = Bool[Tensor, "query key"]


def pattern_cells(name: str, queries: int, keys: int) -> Cells:
    """The cells of a pattern. The diagonal is a band: at most one key beside the straight line from
    the first query and key to the last ones; the reverse one ends at the first key."""
    query, key = torch.arange(queries)[:, None], torch.arange(keys)[None]
    line = query * ((keys - 1) / max(1, queries - 1))
    return {
        "previous token": key == query - 1,
        "same token": key == query,
        "next token": key == query + 1,
        "first token": (key == 0).expand(queries, keys),
        "last token": (key == keys - 1).expand(queries, keys),
        "diagonal": (key - line).abs() <= 1,
        "reverse diagonal": (key - (keys - 1 - line)).abs() <= 1,
    }[name]


def pattern_rows(
    name: str, kind: str, queries: int, keys: int
) -> tuple[Cells, Float[Tensor, " query"], Bool[Tensor, " query"]]:
    """The cells of a pattern in an attention of this kind, the share of each row that uniform
    attention gives them, and the rows that count."""
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    if kind == "decoder":
        allowed = allowed.tril()
    cells = pattern_cells(name, queries, keys) & allowed
    uniform = cells.sum(1).double() / allowed.sum(1)
    return cells, uniform, (uniform > 0) & (uniform < 1)


def pattern_scores(weights: Weights, kind: str) -> dict[str, Float[Tensor, " head"]]:
    """The score of every pattern that an attention of this kind can have, for each head."""
    found = {}
    for name in NAMES[kind]:
        cells, uniform, rows = pattern_rows(name, kind, *weights.shape[1:])
        if not rows.any():
            found[name] = torch.zeros(len(weights), dtype=torch.double)
            continue
        share = (weights.double() * cells).sum(-1)[:, rows]
        found[name] = ((share - uniform[rows]) / (1 - uniform[rows])).mean(1)
    return found


def strongest(scores: Mapping[str, Float[Tensor, " head"]]) -> list[tuple[str, float]]:
    """The pattern with the highest score of each head, and that score.

    The head has the name of the pattern if the score is at least `THRESHOLD`."""
    heads = len(next(iter(scores.values())))
    best = [max(scores, key=lambda name: float(scores[name][head])) for head in range(heads)]
    return [(name, float(scores[name][head])) for head, name in enumerate(best)]


def becomes(scores: Sequence[float]) -> int | None:
    """The first index from which on every score reaches the threshold; None if there is none, or if
    it is the first of all."""
    first = len(scores)
    while first and scores[first - 1] >= THRESHOLD:
        first -= 1
    return first if 0 < first < len(scores) else None
