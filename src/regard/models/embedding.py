"""Embedding: ids to vectors, with positions added where the encoding adds them."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.axes import Offset
from regard.kernels import can_fuse
from regard.models.dropout import Dropout
from regard.positions import AdditivePosition, Position
from regard.ragged import Ragged


class Embedding(nn.Module):
    """E[id] · √width + P[position] (Vaswani et al. 2017, §3.4). The table may be shared with the
    output layer.

    The table starts with variance 1/width: vectors then have variance 1, and so have the logits h ·
    Eᵀ.
    """

    def __init__(
        self, vocabulary: int, width: int, *, position: Position | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocabulary, width) / math.sqrt(width))
        self.position = position if isinstance(position, AdditivePosition) else None
        self.scale = math.sqrt(width)
        self.dropout = Dropout(dropout)

    def forward(self, ids: Ragged, offset: Offset = 0) -> Ragged:
        """Vectors for ids whose sequences start at `offset`."""
        vectors = _looked_up(ids.values, self.table, self.scale)
        if self.position is not None:
            vectors = vectors + _placed(self.position, ids, offset).to(vectors.dtype)
        return ids.like(self.dropout(vectors))


def _looked_up(
    ids: Int[Tensor, " token"], table: nn.Parameter, scale: float
) -> Float[Tensor, "token width"]:
    """The rows of a table, scaled."""
    if torch.is_grad_enabled() and can_fuse(table):
        from regard.kernels.embedding_lookup import embedding_lookup

        return embedding_lookup(ids, table, scale)
    return nn.functional.embedding(ids, table) * scale


def _placed(
    position: AdditivePosition, ids: Ragged, offset: Offset
) -> Float[Tensor, "token width"]:
    """What each token's position adds.

    Where all sequences start at one place, each position is computed once.
    """
    if isinstance(offset, Tensor):
        added: Tensor = position(ids.positions + offset[ids.layout.rows])
        return added
    position.check_position(offset + ids.longest - 1)
    places = torch.arange(offset, offset + ids.longest, device=ids.values.device)
    return nn.functional.embedding(ids.positions, position(places))


class Output(nn.Module):
    """h · Eᵀ: logits over the vocabulary, from a table of its own or an embedding's."""

    def __init__(self, vocabulary: int, width: int, *, tied: nn.Parameter | None = None) -> None:
        super().__init__()
        self.table = (
            nn.Parameter(torch.randn(vocabulary, width) / math.sqrt(width))
            if tied is None
            else tied
        )

    def forward(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        return nn.functional.linear(vectors, self.table)


def ids_of(tokens: Int[Tensor, " row"]) -> Ragged:
    """One token a row, as a batch."""
    return Ragged.uniform(tokens, len(tokens))
