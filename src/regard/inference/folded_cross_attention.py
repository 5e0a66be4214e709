"""Folded: attention to one source that does not change is a softmax between two matrices.

Scores (x W_Q + b_Q) Kᵀ / √d are x A + a, and weights · V W_O is weights · B. A, a and B are multiplied once for a
source. A step is then two products and a softmax, and for a source of few tokens they are smaller products too.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.inference.packed_linear import Linear, Vectors

CALLS = 100_000  # multiply-adds that take as long on a CPU as calling the operations which folding saves


class Folded:
    """Attention to one source, of one layer."""

    def __init__(self, ask: Linear, out: Linear, heads: int) -> None:
        self.ask, self.out, self.heads = ask, out, heads

    def weights(self, x: Vectors) -> Float[Tensor, "row weight"]:
        """How much of each token each head takes."""
        rows = x.size(0)
        return self.ask(x).view(rows, self.heads, -1).softmax(-1).view(rows, -1)


class Folding:
    """What all layers need to fold their attention to a source."""

    def __init__(self, looks: list[MultiHead]) -> None:
        self.heads, self.kv_heads, self.dim = looks[0].heads, looks[0].kv_heads, looks[0].dim
        self.width = looks[0].out.out_features
        asked = torch.cat([torch.cat([look.queries.weight, _bias(look.queries)[:, None]], 1) for look in looks])
        self.asked = (asked.detach() / math.sqrt(self.dim)).unflatten(0, (-1, self.dim))
        told = torch.cat([look.out.weight.t() for look in looks]).detach()
        self.told = told.unflatten(0, (-1, self.dim))
        # The weights of a head add up to 1: what is added after them may as well be added to what they weigh.
        self.biases = torch.stack([_bias(look.out) for look in looks]).detach()[:, None] / self.heads

    def pays(self, time: int) -> bool:
        """Whether a source of so many tokens is asked faster folded."""
        return self.width * self.heads * time <= self.width * (self.width + time) + CALLS

    def __call__(self, held: Float[Tensor, "1 role group time dim"]) -> list[Folded]:
        """From the keys and values of one source: those of each layer, one after the other."""
        depth, time = len(self.biases), held.size(3)
        keys, values = held.view(depth, 2, self.kv_heads, time, self.dim).unbind(1)
        if self.kv_heads != self.heads:
            keys, values = (x.repeat_interleave(self.heads // self.kv_heads, 1) for x in (keys, values))
        asks = torch.bmm(keys.reshape(-1, time, self.dim), self.asked).view(depth, self.heads * time, -1)
        tells = torch.bmm(values.reshape(-1, time, self.dim), self.told).view(depth, self.heads * time, -1)
        tells.add_(self.biases)
        asks = asks.transpose(1, 2).contiguous()
        matrices, shifts = asks.narrow(1, 0, self.width).unbind(), asks.narrow(1, self.width, 1).unbind()
        parts = zip(matrices, shifts, tells.unbind(), strict=True)
        return [Folded(Linear(a, a, shift), Linear(b, b, None), self.heads) for a, shift, b in parts]


def _bias(layer: nn.Linear) -> Float[Tensor, " out"]:
    return layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
