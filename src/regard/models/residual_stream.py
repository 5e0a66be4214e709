"""The residual stream: a sublayer's output is added by the next norm, so that dropout, addition and
norm are one fused pass."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.kernels import can_fuse, compute_dtype
from regard.models.dropout import Dropout
from regard.ragged import Ragged

Vectors = Float[Tensor, "token width"]


class ResidualStream(NamedTuple):
    """x, and the latest sublayer output, which is still to be added."""

    x: Ragged
    latest: Vectors | None = None

    def normed(
        self, norm: nn.Module, dropout: Dropout, dtype: torch.dtype | None = None
    ) -> tuple[Ragged, Ragged]:
        """x + dropout(latest), and the norm of that (in `dtype`, where a GPU can choose)."""
        total, found = _joined(self.x.values, self.latest, norm, dropout, dtype)
        return self.x.like(total), self.x.like(found)

    def closed(self, norm: nn.Module, dropout: Dropout) -> Ragged:
        """What leaves the stack: normed, unless each sublayer ended with a norm."""
        if isinstance(norm, nn.Identity):
            return self.x
        return self.normed(norm, dropout, compute_dtype(self.x.values))[1]


def _joined(
    x: Vectors, latest: Vectors | None, norm: nn.Module, dropout: Dropout, dtype: torch.dtype | None
) -> tuple[Vectors, Vectors]:
    if can_fuse(x) and len(x) and isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        from regard.kernels.add_norm import add_norm

        share = dropout.share if dropout.training else 0.0
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
        centre, eps = isinstance(norm, nn.LayerNorm), norm.eps or 0.0
        return add_norm(
            x,
            latest,
            norm.weight,
            bias,
            eps=eps,
            dropout=share,
            centre=centre,
            dtype=dtype or x.dtype,
        )
    if latest is not None:
        x = x + dropout(latest)
    return x, norm(x)
