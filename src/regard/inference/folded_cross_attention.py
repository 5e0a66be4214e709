"""Folded cross-attention: with one fixed source, cross-attention is a softmax between two matrices.

Scores (x W_Q + b_Q) Kᵀ / √d are x A + a, and weights · V W_O is weights · B. A, a and B are
computed once per source. A step is then two products and a softmax, which are smaller for a short
source.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.inference.packed_linear import PackedLinear, Vectors

CALL_COST = (
    100_000  # multiply-adds that take as long on a CPU as the operator calls saved by folding
)


class FoldedLayer:
    """The folded cross-attention of one layer."""

    def __init__(self, scores: PackedLinear, out: PackedLinear, heads: int) -> None:
        self.scores, self.out, self.heads = scores, out, heads

    def weights(self, x: Vectors) -> Float[Tensor, "row weight"]:
        """The attention weights of all heads, side by side."""
        rows = x.size(0)
        return self.scores(x).view(rows, self.heads, -1).softmax(-1).view(rows, -1)


class FoldedCrossAttention:
    """Folds the cross-attentions of all layers for a source."""

    def __init__(self, layers: list[MultiHead]) -> None:
        first = layers[0]
        self.heads, self.kv_heads, self.dim = first.heads, first.kv_heads, first.dim
        self.width = first.out.out_features
        pairs = [(layer.queries.weight, _bias(layer.queries)[:, None]) for layer in layers]
        queries = torch.cat([torch.cat(pair, 1) for pair in pairs])
        self.queries = (queries.detach() / math.sqrt(self.dim)).unflatten(0, (-1, self.dim))
        outputs = torch.cat([layer.out.weight.t() for layer in layers]).detach()
        self.outputs = outputs.unflatten(0, (-1, self.dim))
        # The weights of a head sum to 1, so the output bias can be added to the values instead.
        biases = torch.stack([_bias(layer.out) for layer in layers]).detach()
        self.biases = biases[:, None] / self.heads

    def pays(self, time: int) -> bool:
        """Whether folding is faster for a source of `time` tokens."""
        folded = self.width * self.heads * time
        return folded <= self.width * (self.width + time) + CALL_COST

    def __call__(self, memory: Float[Tensor, "1 layer_part kv_head time dim"]) -> list[FoldedLayer]:
        """The folded layers for the keys and values of one source."""
        depth, time = len(self.biases), memory.size(3)
        keys, values = memory.view(depth, 2, self.kv_heads, time, self.dim).unbind(1)
        if self.kv_heads != self.heads:
            repeats = self.heads // self.kv_heads
            keys, values = (x.repeat_interleave(repeats, 1) for x in (keys, values))
        flat = (-1, time, self.dim)
        scores = torch.bmm(keys.reshape(flat), self.queries).view(depth, self.heads * time, -1)
        outputs = torch.bmm(values.reshape(flat), self.outputs).view(depth, self.heads * time, -1)
        outputs.add_(self.biases)
        scores = scores.transpose(1, 2).contiguous()
        matrices = scores.narrow(1, 0, self.width).unbind()
        shifts = scores.narrow(1, self.width, 1).unbind()
        parts = zip(matrices, shifts, outputs.unbind(), strict=True)
        return [
            FoldedLayer(PackedLinear(a, a, shift), PackedLinear(b, b, None), self.heads)
            for a, shift, b in parts
        ]


def _bias(layer: nn.Linear) -> Float[Tensor, " out"]:
    return layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
