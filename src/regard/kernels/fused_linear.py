"""Linear: layers that read the same vectors, as one matrix product: on small models their number costs more than their
size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.kernels import fusible

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def listeners(part: nn.Module) -> list[Any]:
    """The hooks on a part; but for those that change nothing and say so (`harmless`)."""
    hung = [own for name in HOOKS if (own := part.__dict__[name])]
    return [hook for own in hung for hook in list(own.values()) if not hasattr(hook, "harmless")]


def plain(layer: nn.Module) -> bool:
    """Whether a layer is torch's own and nobody listens to it: only then is it no more than its weights."""
    return type(layer) is nn.Linear and not listeners(layer)


def linear(x: Tensor, *layers: nn.Linear) -> Tensor:
    """What each layer makes of x, side by side."""
    if not all(map(plain, layers)):  # adapters, hooks, quantised layers: they are called
        return torch.cat([layer(x) for layer in layers], -1)
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [] if layers[0].bias is None else [layer.bias for layer in layers]
    if torch.is_grad_enabled() and x.ndim == 2 and fusible(x):
        from regard.kernels.linear_function import product

        return product(x, weights, biases)
    if len(layers) == 1:
        made: Tensor = layers[0](x)
        return made
    return nn.functional.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)
