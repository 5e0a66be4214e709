"""Linear: layers that read the same vectors, as one matrix product: on small models their number costs more than their
size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.kernels import fusible


def linear(x: Tensor, *layers: nn.Linear) -> Tensor:
    """What each layer makes of x, side by side."""
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [] if layers[0].bias is None else [layer.bias for layer in layers]
    hooked = any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)
    if torch.is_grad_enabled() and x.ndim == 2 and fusible(x) and not hooked:
        from regard.kernels.product import product

        return product(x, weights, biases)
    if len(layers) == 1:
        made: Tensor = layers[0](x)  # as a module, for those who hang hooks on it
        return made
    return nn.functional.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)
