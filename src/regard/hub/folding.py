"""Folding: parts that another runtime lacks, as weights of parts that it has.

ALiBi, learned distances, T5 buckets and windows become a T5 table with one bucket per distance. The
matrices of the score `general` become part of the query projections.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from regard.attention.scores import General
from regard.axes import Site
from regard.models.families import AttentionDescription
from regard.positions import Rotary

LONGEST = 2_048  # tokens on a side that computed tables support
MASKED = -1e9  # added to scores outside a window


def distance_table(attention: AttentionDescription, *, two_sided: bool) -> np.ndarray:
    """The bias of each distance and head as a T5 table of one bucket per distance.

    With 2 · LONGEST buckets on a side, T5's buckets are exact for distances below LONGEST.
    """
    side = 2 * LONGEST
    heads = torch.arange(attention.projections.heads).view(1, -1, 1, 1)
    distances, zero = torch.arange(side).view(1, 1, 1, -1), torch.zeros(1, 1, 1, 1).long()
    halves = [(distances, zero), (zero, distances)] if two_sided else [(distances, zero)]
    parts = []
    for query, key in halves:
        site = Site(zero, heads, query, key, query)
        scores = torch.zeros(1, heads.shape[1], 1, side)
        bias: Any = attention.parts.bias
        if bias is not None:
            scores = bias(scores, site)
        allowed = attention.mask(site).expand(1, 1, 1, side)
        parts.append(scores.masked_fill(~allowed, MASKED)[0, :, 0].T)
    return torch.cat(parts).detach().contiguous().numpy()


def fold_queries(attention: AttentionDescription) -> nn.Linear:
    """The projection of queries, with the matrix of a general score folded in: (q W) · k."""
    projection, score = attention.projections.queries, attention.parts.score
    if not isinstance(score, General):
        return projection
    heads, dim = score.heads, score.dim
    folded = nn.Linear(projection.in_features, projection.out_features, projection.bias is not None)
    with torch.no_grad():
        weight = projection.weight.double().view(heads, dim, -1)
        matrix = score.weight.double()
        folded.weight.copy_(torch.einsum("hdw,hde->hew", weight, matrix).flatten(0, 1))
        if projection.bias is not None:
            bias = projection.bias.double().view(heads, dim)
            folded.bias.copy_(torch.einsum("hd,hde->he", bias, matrix).flatten())
    return folded


def rotary_scaling(rotation: Rotary) -> tuple[float, float]:
    """The factor of linear scaling, and the base, which includes that of NTK scaling."""
    first, dims = rotation.frequencies[0], rotation.rotated_dims
    if dims == 2:
        return 1 / first, 10000.0
    return 1 / first, (rotation.frequencies[1] / first) ** (-dims / 2)
