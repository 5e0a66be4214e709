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
from regard.ensemble_settings import SIDES, EnsembleSettings
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
    return build_on_meta(_shallow(settings), source, target)


def _shallow(settings: Any) -> Any:
    if isinstance(settings, EnsembleSettings):
        sides = {name: tuple(map(_shallow, getattr(settings, name))) for name in SIDES}
        return settings.model_copy(update=sides)
    if isinstance(settings, TransformerSettings):
        layers = {name: min(2, getattr(settings, name)) for name in _LAYERS.values()}
        return settings.model_copy(update=layers)
    return settings


def repeat_layers(named: Mapping[str, T], settings: Any) -> dict[str, T]:
    """Entries by parameter name, those of the second layer repeated for all layers after it."""
    if isinstance(settings, EnsembleSettings):
        return _repeat_members(named, settings)
    repeated = dict(named)
    if isinstance(settings, TransformerSettings):
        for name, value in named.items():
            stack, _, rest = name.partition(".1.")
            if stack in _LAYERS:
                count = getattr(settings, _LAYERS[stack])
                repeated |= {f"{stack}.{layer}.{rest}": value for layer in range(2, count)}
    return repeated


def _repeat_members(named: Mapping[str, T], settings: EnsembleSettings) -> dict[str, T]:
    """The same for each member of an ensemble, whose names start with `members.0.` and so on."""
    repeated: dict[str, T] = {}
    prefixed = (
        (f"{side}.{index}.", member)
        for side in SIDES
        for index, member in enumerate(getattr(settings, side))
    )
    for prefix, member in prefixed:
        own = {n.removeprefix(prefix): v for n, v in named.items() if n.startswith(prefix)}
        repeated |= {prefix + n: value for n, value in repeat_layers(own, member).items()}
    return repeated


def build_on_meta(settings: Any, source: int, target: int) -> Model:
    """The model that `settings` describe, without memory for its tensors."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"), _Shapes():
        return build(settings, source, target)
