"""Space: where tokens lie among all others of their vocabulary. Neighbours by cosine, and a plane by PCA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.explore.describe import tokens
from regard.explore.refusals import invalid
from regard.explore.traces import Held

if TYPE_CHECKING:
    from regard.text.tokenizers import Piece, Tokenizer

WHOLE = 2_000  # words of a vocabulary that are shown all at once
AROUND = 20  # neighbours of each token that are shown of a larger one
Table = Float[Tensor, "vocabulary width"]


def neighbours(held: Held, side: str, position: int, n: int) -> dict[str, Any]:
    """The tokens whose embeddings point most nearly where this one's does."""
    tokenizer, table, pieces = _side(held, side)
    token = at(pieces, side, position)
    cosines = _cosines(table, torch.tensor([token.id]))[0]
    cosines[token.id] = -torch.inf  # itself
    best = cosines.topk(min(n, len(cosines) - 1))
    found = [
        {"id": id, "text": tokenizer.label(id), "cosine": cosine}
        for id, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return {"token": tokens(pieces)[position], "neighbours": found}


def space(held: Held, side: str) -> dict[str, Any]:
    """The vocabulary on the plane of its greatest variance; of a large one, the tokens and what lies around them."""
    tokenizer, table, pieces = _side(held, side)
    here: dict[int, list[int]] = {}
    for position, piece in enumerate(pieces):
        here.setdefault(piece.id, []).append(position)
    shown = list(range(len(table)))
    if len(table) > WHOLE:
        near = _cosines(table, torch.tensor(list(here))).topk(AROUND + 1).indices
        shown = sorted({*here, *near.flatten().tolist()})
    places, explained = plane(table[shown])
    points = [
        {"id": id, "text": tokenizer.label(id), "x": x, "y": y, "here": here.get(id, [])}
        for id, (x, y) in zip(shown, places.tolist(), strict=True)
    ]
    return {"points": points, "explained": explained}


def plane(table: Table) -> tuple[Float[Tensor, "vocabulary 2"], list[float]]:
    """The two principal components of some vectors, and the share of their variance that each explains.

    A component points to where its greatest entry is positive, so that a picture does not flip from time to time."""
    centred = table.double() - table.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    directions = directions[:2]
    directions = directions * directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    variances = sizes.square()
    share = variances / variances.sum().clamp_min(torch.finfo(torch.float64).tiny)
    places = centred @ directions.T
    missing = 2 - places.shape[1]  # one vector, or vectors of width 1, span less than a plane
    return torch.nn.functional.pad(places, (0, missing)), [*share[:2].tolist(), *[0.0] * missing]


def at(pieces: list[Piece], side: str, position: int) -> Piece:
    """The token at a position, or a line that says which positions there are."""
    if not 0 <= position < len(pieces):
        raise invalid(f"position {position} is not one of the {side}'s 0 to {len(pieces) - 1}", "out-of-range")
    return pieces[position]


def _side(held: Held, side: str) -> tuple[Tokenizer, Table, list[Piece]]:
    bundle = held.model.transducer.bundle
    tokenizer = bundle.source if side == "source" else bundle.target
    table: Tensor = getattr(bundle.model, side).table
    return tokenizer, table.detach().float(), held.trace.source if side == "source" else held.trace.target


def _cosines(table: Table, ids: Tensor) -> Float[Tensor, "token vocabulary"]:
    unit = torch.nn.functional.normalize(table, dim=1)
    return unit[ids] @ unit.T
