"""Vectors of a trace: residual-stream norms, logit lens, and the embedding space."""

from __future__ import annotations

import re
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import RegardError
from regard.trace.operations.operation import Operation, TensorStore
from regard.trace.trace import Trace
from regard.vectors import cosine, pca_plane, similarities

STACKS = {
    "source": ("src", "enc"),
    "target": ("tgt", "dec"),
}  # prefixes of the names of its embedding and its layers
STATES = {
    "source": r"src\.embed|enc\.\d+\.h",
    "target": r"tgt\.embed|dec\.\d+\.h|attn\.joined|out\.(mixed|readout)",
}


class Contribution(NamedTuple):
    """A vector added to the residual stream: norm, cosine with the sum before, name of the sum."""

    name: str
    norm: float
    cosine: float
    into: str


def residual_contributions(trace: Trace, side: str, position: int) -> list[Contribution]:
    """What each block adds to a token's residual stream, in order; empty for a recurrent model."""
    trace.piece(side, position)
    found = []
    for name in _sums(trace, side):
        before, *parts = trace.origin(name).inputs
        for part in parts:
            vector, whole = trace[part][position], trace[before][position]
            found.append(
                Contribution(part, float(vector.norm()), float(cosine(vector, whole)), name)
            )
    return found


def residual_norms(trace: Trace, side: str, position: int) -> dict[str, float]:
    """The norm of the residual stream after each sum; of the states, in a recurrent model."""
    trace.piece(side, position)
    names = _sums(trace, side) or [name for name in trace.names if re.fullmatch(STATES[side], name)]
    return {name: float(trace[name][position].norm()) for name in names}


def _sums(trace: Trace, side: str) -> list[str]:
    begin, stack = STACKS[side]
    return [
        name for name in trace.names if re.fullmatch(rf"{begin}\.sum|{stack}\.\d+\.resid\d", name)
    ]


Row = Float[Tensor, " vocabulary"]


def logit_lens(trace: Trace, row: int) -> dict[str, Row]:
    """The logit lens (nostalgebraist 2020): output probabilities from each residual-stream state.

    Pre-norm sums go through the final norm; post-norm states are already normed. A recurrent model
    has no residual stream, and the result is empty.
    """
    trace.piece("target", row)
    if "tgt.sum" not in trace.names:
        return {}
    logits, norm = trace.origin("out.logits"), _final_norm(trace)
    first = "tgt.norm" if "tgt.norm" in trace.names else "tgt.sum"
    after = r"dec\.\d+\.resid\d|dec\.norm" if norm else r"dec\.\d+\.norm\d"
    stream = f"{re.escape(first)}|{after}"
    found = {}
    for name in trace.names:
        if re.fullmatch(stream, name):
            found[name] = _apply(trace, logits, lens_state(trace, name, row))[0].softmax(-1)
    return found


def lens_state(trace: Trace, name: str, row: int) -> Float[Tensor, "1 width"]:
    """A state of the residual stream as the output projection reads it: after the final norm."""
    vectors, norm = trace[name][row : row + 1], _final_norm(trace)
    return vectors if norm is None or name == "dec.norm" else _apply(trace, norm, vectors)


def _final_norm(trace: Trace) -> Operation | None:
    """The norm before the output projection of a pre-norm model."""
    (last,) = trace.origin("out.logits").inputs
    return trace.origin(last) if last == "dec.norm" else None


def rank(numbers: Row, id: int) -> int:
    """The rank of a token, 1 for the most probable; ties are ordered by id."""
    own = numbers[id]
    return 1 + int((numbers > own).sum()) + int((numbers[:id] == own).sum())


def _apply(trace: Trace, operation: Operation, vectors: Tensor) -> Tensor:
    """The result of an operation of the model on other vectors."""
    (name,) = operation.inputs
    return operation.compute(TensorStore(trace.numbers.weights, {name: vectors}), slice(None))


WHOLE = 2_000  # the largest vocabulary that is projected completely
AROUND = 20  # neighbours of each token that are projected of a larger one


class PCAProjection(NamedTuple):
    """Tokens on two principal components: ids, coordinates, and explained variance ratios."""

    ids: list[int]
    places: Float[Tensor, "token 2"]
    explained: tuple[float, float]


def neighbours(trace: Trace, side: str, position: int, n: int = 10) -> list[tuple[int, float]]:
    """The n nearest embeddings of a token by cosine similarity, as (id, cosine)."""
    if n < 1:
        raise RegardError(f"n must be at least 1; got {n}")
    id, table = trace.piece(side, position).id, _table(trace, side)
    cosines = similarities(table[id : id + 1], table)[0]
    cosines[id] = -torch.inf  # itself
    best = cosines.topk(min(n, len(cosines) - 1))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def pca_projection(trace: Trace, side: str) -> PCAProjection:
    """PCA of the embedding table; of a large table, only the sentence's tokens and neighbours."""
    here = sorted({piece.id for piece in trace.pieces(side)})
    table = _table(trace, side)
    ids = list(range(len(table)))
    if len(table) > WHOLE:
        near = similarities(table[here], table).topk(AROUND + 1).indices
        ids = sorted({*here, *near.flatten().tolist()})
    return PCAProjection(ids, *pca_plane(table[ids]))


def _table(trace: Trace, side: str) -> Float[Tensor, "vocabulary width"]:
    """The embedding table of a side, unscaled."""
    return trace.numbers[embedding_table_name(trace, side)]


def embedding_table_name(trace: Trace, side: str) -> str:
    """The name of the parameter that is the embedding table of a side."""
    (name,) = trace.origin(f"{STACKS[side][0]}.embed").weights
    return name
