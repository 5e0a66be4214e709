"""PackedLayer: a Transformer layer with weights packed for inference."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.inference.packed_linear import PackedLinear, Vectors
from regard.models.description import LayerDescription


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
        if self.activation == "swiglu":
            gate, inner = inner.chunk(2, -1)
            return F.silu(gate).mul_(inner)
        return inner.relu_() if self.activation == "relu" else F.gelu(inner)


def norm_function(norm: nn.Module) -> Callable[[Vectors], Vectors]:
    """A norm as a function, without the overhead of calling a module."""
    if isinstance(norm, nn.Identity):
        return lambda x: x
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    shape, weight = norm.normalized_shape, norm.weight
    if isinstance(norm, nn.RMSNorm):
        return lambda x, eps=norm.eps: torch.rms_norm(x, shape, weight, eps)  # type: ignore[misc]
    bias, eps = norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
