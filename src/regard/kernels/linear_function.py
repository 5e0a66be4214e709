"""Product: x Wᵀ + b for weights that read the same x, as training on a GPU wants it.

Weights lie side by side in the type that products are computed in; their gradients come out of the product in float32,
with no pass over them after; a bias's gradient is a sum of columns.
"""

# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels import computing
from regard.kernels.column_sum import columns
from regard.kernels.weight_cast import beside


class Product(torch.autograd.Function):
    """All of x [W₁; W₂; …]ᵀ + [b₁; b₂; …]; the first `count` of `parts` are weights, the rest biases."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, *parts: Tensor) -> Tensor:
        kind = computing(x)
        weights, biases = parts[:count], parts[count:]
        read, weight = x.to(kind), beside(weights, kind)
        ctx.save_for_backward(read, weight)
        ctx.sizes, ctx.kinds = [len(part) for part in weights], (x.dtype, weights[0].dtype, bool(biases))
        return torch.addmm(beside(biases, kind), read, weight.t()) if biases else read @ weight.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        read, weight = ctx.saved_tensors
        of_x, of_weight, biased = ctx.kinds
        slope = gradients[0].contiguous()
        d_x = (slope @ weight).to(of_x) if ctx.needs_input_grad[0] else None
        if of_weight == torch.float32 and slope.is_cuda and slope.dtype != torch.float32:
            d_weight = torch.mm(slope.t(), read, out_dtype=torch.float32)
        else:
            d_weight = (slope.t() @ read).to(of_weight)
        d_biases = columns(slope).to(of_weight).split(ctx.sizes) if biased else ()
        return d_x, None, *d_weight.split(ctx.sizes), *d_biases


def product(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """x Wᵀ + b for all of these, side by side."""
    return Product.apply(x, len(weights), *weights, *biases)
