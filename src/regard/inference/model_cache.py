"""Twin: the model that is searched in place of another, made anew whenever the other has changed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from regard.inference.fast_transformer import swift
from regard.kernels.fused_linear import HOOKS, listeners
from regard.models.contract import Model


class Twin:
    """The swift model of a model, in a precision. It sees weights that were changed, replaced or loaded, other parts
    and hooks; not what is written through `.data`, which torch itself does not count: `forget` after that."""

    def __init__(self, precision: torch.dtype) -> None:
        self.precision = precision
        self._made: tuple[list[Any], list[Any], Model] | None = None

    def of(self, model: Model) -> Model:
        """The twin of the model as it is now."""
        held, now = _looked_at(model)
        if self._made is None or self._made[1] != now:
            plain = self.precision == torch.float32
            self._made = held, now, swift(model if plain else deepcopy(model).to(self.precision))
        return self._made[2]

    def forget(self) -> None:
        """Make it anew when it is next needed."""
        self._made = None

    def __getstate__(self) -> dict[str, Any]:
        """All but what can be made anew."""
        return {**self.__dict__, "_made": None}


def _looked_at(model: nn.Module) -> tuple[list[Any], list[Any]]:
    """The parts and weights of a model, to be held so that no other gets their identity; and what is known of them. By
    hand, for `modules()` and `parameters()` would take a tenth of a short answer's time."""
    parts: list[Any] = [model]
    weights: list[Any] = []
    known: list[Any] = []
    for part in parts:  # which grows
        own = part.__dict__
        if any(map(own.__getitem__, HOOKS)):
            known += [(id(part), id(hook)) for hook in listeners(part)]
        if own["_modules"]:
            parts += [inner for inner in own["_modules"].values() if inner is not None]
        if own["_parameters"]:
            weights += own["_parameters"].values()
    known += map(id, parts)
    known += [weight if weight is None else (id(weight), weight.data_ptr(), _version(weight)) for weight in weights]
    return parts + weights, known


def _version(weight: Any) -> int:
    """How often a weight was written to; of one that was made in inference mode torch keeps no count."""
    return 0 if weight.is_inference() else weight._version
