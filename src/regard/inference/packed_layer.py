"""Packed layers: the weights of a Transformer layer in the memory order that inference needs.

Folded cross-attention: with one fixed source, cross-attention is a softmax between two matrices.
Scores (x W_Q + b_Q) Kᵀ / √d are x A + a, and weights · V W_O is weights · B. A, a and B are
computed once per source. A step is then two products and a softmax, which are smaller for a short
source.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.models.families import LayerDescription
from regard.models.layers import ACTIVATIONS, GATED

Vectors = Float[Tensor, "row width"]
Matrix = Float[Tensor, "width out"]


class PackedLinear:
    """x W + b. On a CPU, products of several rows are faster with W in the other memory order than
    products of one row: `single` serves one row, `batched` several."""

    def __init__(self, single: Matrix, batched: Matrix, row: Float[Tensor, "1 out"] | None) -> None:
        self.single, self.batched, self.row = single, batched, row

    @property
    def bias(self) -> Float[Tensor, " out"] | None:
        """b. Stored as a row, which adds faster to a single row of the same shape."""
        return None if self.row is None else self.row.squeeze(0)

    @classmethod
    def of(cls, *layers: nn.Linear) -> PackedLinear:
        """Layers that read the same x, side by side."""
        biased = any(layer.bias is not None for layer in layers)
        weight = torch.cat([layer.weight for layer in layers])
        return cls.packed(weight, torch.cat(list(map(_bias, layers))).detach() if biased else None)

    @classmethod
    def packed(
        cls, weight: Float[Tensor, "out width"], bias: Float[Tensor, " out"] | None = None
    ) -> PackedLinear:
        """From a weight in the layout of nn.Linear."""
        single = weight.detach().t()
        batched = single.contiguous() if single.device.type == "cpu" else single
        return cls(single, batched, None if bias is None else bias[None])

    def __call__(self, x: Vectors) -> Float[Tensor, "row out"]:
        weight = self.single if x.size(0) == 1 else self.batched
        return x @ weight if self.row is None else torch.addmm(self.row, x, weight)

    def onto(self, x: Float[Tensor, "row out"], y: Vectors) -> Float[Tensor, "row out"]:
        """x + y W + b, written into x at the cost of the product alone."""
        x.addmm_(y, self.single if y.size(0) == 1 else self.batched)
        return x if self.row is None else x.add_(self.row)


class PackedLayer:
    """A layer with packed weights."""

    def __init__(self, layer: LayerDescription) -> None:
        attention = layer.self_attention
        heads, feed = attention.projections, layer.feed_forward
        self.self_attention, self.rotation = attention, attention.rotation
        self.heads, self.is_plain = heads.heads, attention.is_plain
        self.qkv = PackedLinear.of(heads.queries, heads.keys, heads.values)
        self.out = PackedLinear.of(heads.out)
        self.inner, self.outer = PackedLinear.of(feed.inner), PackedLinear.of(feed.outer)
        self.activation = feed.activation
        self.norms = [norm_function(norm) for norm in layer.norms]
        self.pre_norm = layer.pre_norm
        self.cross = layer.cross_attention
        if self.cross is not None:
            self.cross_queries = PackedLinear.of(self.cross.projections.queries)
            self.cross_out = PackedLinear.of(self.cross.projections.out)

    def residual(
        self, place: int, x: Vectors, act: Callable[[Vectors], Vectors], out: PackedLinear
    ) -> Vectors:
        """x + out(f(norm(x))), or norm(x + out(f(x))). Overwrites x."""
        norm = self.norms[place]
        return out.onto(x, act(norm(x))) if self.pre_norm else norm(out.onto(x, act(x)))

    def feed(self, x: Vectors) -> Float[Tensor, "row ffn_width"]:
        """The feed-forward up to its last product."""
        inner = self.inner(x)
        if self.activation in GATED:
            gate, inner = inner.chunk(2, -1)
            return ACTIVATIONS[GATED[self.activation]](gate).mul_(inner)
        return inner.relu_() if self.activation == "relu" else ACTIVATIONS[self.activation](inner)


def norm_function(norm: nn.Module | None) -> Callable[[Vectors], Vectors]:
    """A norm as a function, without the overhead of calling a module."""
    if norm is None or isinstance(norm, nn.Identity):
        return lambda x: x
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    shape, weight = norm.normalized_shape, norm.weight
    if isinstance(norm, nn.RMSNorm):
        return lambda x, eps=norm.eps: torch.rms_norm(x, shape, weight, eps)  # type: ignore[misc]
    bias, eps = norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


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
        return folded <= self.heads * self.dim * (self.width + time) + CALL_COST

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
