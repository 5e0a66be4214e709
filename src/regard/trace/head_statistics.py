"""Spread: how widely and how far a head looks."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

Weights = Float[Tensor, "head query key"]


def bits(shares: Float[Tensor, "*row outcome"]) -> Float[Tensor, "*row"]:
    """−Σ p log₂ p: the entropy of each row of probabilities."""
    return torch.special.entr(shares).sum(-1) / math.log(2)


def entropy(weights: Weights) -> Float[Tensor, " head"]:
    """The entropy of each head's rows in bits, their mean."""
    return bits(weights).mean(-1)


def distance(weights: Weights) -> Float[Tensor, " head"]:
    """Σ w · |query − key|, the mean over the rows."""
    queries, keys = (torch.arange(size, dtype=weights.dtype) for size in weights.shape[1:])
    return (weights * (queries[:, None] - keys).abs()).sum(-1).mean(-1)
