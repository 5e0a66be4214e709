"""A model without memory: its shapes only, on torch's device `meta`.

Some operations on `meta` make torch import a compiler stack, which takes seconds. Those that
Regard's own parts use to initialise parameters are answered here by their shapes; any other
operation, as in parts of users, is torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.config import TransformerSettings
from regard.models.contract import Model
from regard.models.families import build

T = TypeVar("T")
_LAYERS = {"encoder": "encoder_layers", "decoder": "decoder_layers"}
_ELEMENTWISE = {
    *(torch.add, torch.sub, torch.mul, torch.div, torch.true_divide),
    *(Tensor.add, Tensor.sub, Tensor.mul, Tensor.div),
    *(getattr(Tensor, f"__{name}__") for name in ("add", "radd", "sub", "mul", "rmul", "truediv")),
}
_IN_PLACE = {Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_}


class _Shapes(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.randn, torch.rand) and not kwargs:
            return torch.empty(*args, device="meta")
        if func is torch.eye and not kwargs:
            return torch.empty(args[0], args[-1], device="meta")
        if func in _IN_PLACE:
            return args[0]
        if func in _ELEMENTWISE and not kwargs:
            shapes = [one.shape for one in args if isinstance(one, Tensor)]
            return torch.empty(np.broadcast_shapes(*shapes), device="meta")
        return func(*args, **kwargs)


def build_shallow(settings: Any, source: int, target: int) -> Model:
    """The same with at most two layers of a Transformer: the others are like the second one."""
    if isinstance(settings, TransformerSettings):
        layers = {name: min(2, getattr(settings, name)) for name in _LAYERS.values()}
        settings = settings.model_copy(update=layers)
    return build_on_meta(settings, source, target)


def repeat_layers(named: Mapping[str, T], settings: Any) -> dict[str, T]:
    """Entries by parameter name, those of the second layer repeated for all layers after it."""
    repeated = dict(named)
    if isinstance(settings, TransformerSettings):
        for name, value in named.items():
            stack, _, rest = name.partition(".1.")
            if stack in _LAYERS:
                count = getattr(settings, _LAYERS[stack])
                repeated |= {f"{stack}.{layer}.{rest}": value for layer in range(2, count)}
    return repeated


def build_on_meta(settings: Any, source: int, target: int) -> Model:
    """The model that `settings` describe, without memory for its tensors."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"), _Shapes():
        return build(settings, source, target)
