"""Space: where the tokens of a sentence lie among all others of their vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import RegardError
from regard.trace.residual_norms import STACKS
from regard.trace.trace import Trace
from regard.vectors import pca_plane, similarities

WHOLE = 2_000  # words of a vocabulary that are placed all at once
AROUND = 20  # neighbours of each token that are placed of a larger one


class Placed(NamedTuple):
    """Tokens on a plane: their ids, where each is, and the share of the variance that each axis explains."""

    ids: list[int]
    places: Float[Tensor, "token 2"]
    explained: tuple[float, float]


def neighbours(trace: Trace, side: str, position: int, n: int = 10) -> list[tuple[int, float]]:
    """The n ids whose embeddings point most nearly where that of a token does, each with its cosine."""
    if n < 1:
        raise RegardError(f"n must be at least 1; got {n}")
    id, table = trace.piece(side, position).id, _table(trace, side)
    cosines = similarities(table[id : id + 1], table)[0]
    cosines[id] = -torch.inf  # itself
    best = cosines.topk(min(n, len(cosines) - 1))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def placed(trace: Trace, side: str) -> Placed:
    """The vocabulary on the plane of its greatest variance; of a large one, the tokens and what lies around them."""
    here = sorted({piece.id for piece in trace.pieces(side)})
    table = _table(trace, side)
    ids = list(range(len(table)))
    if len(table) > WHOLE:
        near = similarities(table[here], table).topk(AROUND + 1).indices
        ids = sorted({*here, *near.flatten().tolist()})
    return Placed(ids, *pca_plane(table[ids]))


def _table(trace: Trace, side: str) -> Float[Tensor, "vocabulary width"]:
    """The embeddings of a side, as they are before any scaling."""
    (name,) = trace.origin(f"{STACKS[side][0]}.embed").weights
    return trace.numbers[name]
