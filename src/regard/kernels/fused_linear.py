"""linear: layers with the same input computed as one matrix product.

In small models the number of products costs more than their size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.kernels import can_fuse, compute_dtype
from regard.kernels.weight_cast import cast_and_concat

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ReadOnlyHook:
    """Base class of module hooks that change nothing, so that fused code may bypass them."""

    def __call__(self, *arguments: Any, **options: Any) -> None:
        """Called by torch with the module and its arguments."""
        raise NotImplementedError


def active_hooks(module: nn.Module) -> list[Any]:
    """The hooks of a module, without those that change nothing."""
    registered = [hooks for name in HOOKS if (hooks := module.__dict__[name])]
    every = [hook for hooks in registered for hook in list(hooks.values())]
    return [hook for hook in every if not isinstance(hook, ReadOnlyHook)]


def is_plain_linear(layer: nn.Module) -> bool:
    """Whether a layer is exactly nn.Linear without hooks, so that its weights define it."""
    return type(layer) is nn.Linear and not active_hooks(layer)


def linear(x: Tensor, *layers: nn.Linear) -> Tensor:
    """The outputs of all layers for x, concatenated."""
    if not all(map(is_plain_linear, layers)):  # adapters, hooks, quantised layers: call them
        return torch.cat([layer(x) for layer in layers], -1)
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [] if layers[0].bias is None else [layer.bias for layer in layers]
    if torch.is_grad_enabled() and x.ndim == 2 and can_fuse(x):
        return fused_linear(x, weights, biases)
    if len(layers) == 1:
        output: Tensor = layers[0](x)
        return output
    return nn.functional.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)


class LinearFunction(torch.autograd.Function):
    """x [W₁; W₂; …]ᵀ + [b₁; b₂; …]; the first `count` of `parts` are weights, the rest biases.

    The weights' gradients come out of the product in float32, without another pass.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, *parts: Tensor) -> Tensor:
        dtype = compute_dtype(x)
        weights, biases = parts[:count], parts[count:]
        cast, weight = x.to(dtype), cast_and_concat(weights, dtype)
        ctx.save_for_backward(cast, weight)
        ctx.sizes, ctx.dtypes = (
            [len(part) for part in weights],
            (x.dtype, weights[0].dtype, bool(biases)),
        )
        return (
            torch.addmm(cast_and_concat(biases, dtype), cast, weight.t())
            if biases
            else cast @ weight.t()
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cast, weight = ctx.saved_tensors
        x_dtype, weight_dtype, biased = ctx.dtypes
        d_out = gradients[0].contiguous()
        d_x = (d_out @ weight).to(x_dtype) if ctx.needs_input_grad[0] else None
        if weight_dtype == torch.float32 and d_out.is_cuda and d_out.dtype != torch.float32:
            d_weight = torch.mm(d_out.t(), cast, out_dtype=torch.float32)
        else:
            d_weight = (d_out.t() @ cast).to(weight_dtype)
        d_biases: tuple[Tensor, ...] = ()
        if biased:
            from regard.kernels.column_sum import column_sum  # imports Triton

            d_biases = column_sum(d_out).to(weight_dtype).split(ctx.sizes)
        return d_x, None, *d_weight.split(ctx.sizes), *d_biases


_linear_function: Any = LinearFunction.apply


def fused_linear(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """x Wᵀ + b for all weights at once, concatenated, for training on a GPU."""
    output: Tensor = _linear_function(x, len(weights), *weights, *biases)
    return output
