"""ModelVersion: a snapshot of a model that tells whether anything in it has changed since."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.kernels.fused_linear import HOOKS, active_hooks


class ModelVersion:
    """The modules, weights and hooks of a model at one time.

    Detects weights that were changed, replaced or loaded, replaced modules, and hooks; but not
    writes through `.data`, which torch does not count either.
    """

    def __init__(self, model: nn.Module) -> None:
        # The parts are kept alive, so that their ids stay unique.
        self._parts, self._values = _inventory(model)

    def is_current(self, model: nn.Module) -> bool:
        """Whether the model is the same object, unchanged."""
        return _inventory(model)[1] == self._values


def _inventory(model: nn.Module) -> tuple[list[Any], list[Any]]:
    """All modules and weights of a model, and values that change with any of them.

    Walks the tree by hand: `modules()` and `parameters()` would take a tenth of the time of a short
    prediction.
    """
    modules: list[Any] = [model]
    weights: list[Any] = []
    values: list[Any] = []
    for module in modules:  # grows during the loop
        own = module.__dict__
        if any(map(own.__getitem__, HOOKS)):
            values += [(id(module), id(hook)) for hook in active_hooks(module)]
        if own["_modules"]:
            modules += [child for child in own["_modules"].values() if child is not None]
        if own["_parameters"]:
            weights += own["_parameters"].values()
    values += map(id, modules)
    values += [
        weight if weight is None else (id(weight), weight.data_ptr(), _write_count(weight))
        for weight in weights
    ]
    return modules + weights, values


def _write_count(weight: Any) -> int:
    """How often a weight was written to; torch does not count for inference tensors."""
    return 0 if weight.is_inference() else weight._version
