"""Twin: the model that is searched in place of another, made anew whenever the other has changed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from regard.kernels.linear import HOOKS
from regard.models.contract import Model
from regard.models.swift import swift


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
    """The parts and weights of a model, to be held so that no other gets their identity; and what is known of them."""
    held: list[Any] = []
    now: list[Any] = []
    for part in model.modules():
        held.append(part)
        now.append((id(part), [len(getattr(part, hooks)) for hooks in HOOKS]))
        for weight in part._parameters.values():
            if weight is not None:
                held.append(weight)
                now.append((id(weight), weight.data_ptr(), None if weight.is_inference() else weight._version))
    return held, now
