"""ModelCache: the inference copy of a model, rebuilt whenever the model has changed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from regard.inference.engines import inference_model
from regard.kernels.fused_linear import HOOKS, active_hooks
from regard.models.contract import Model


class ModelCache:
    """The inference copy of a model, for an engine and a precision.

    Detects weights that were changed, replaced or loaded, replaced modules, and hooks; but not
    writes through `.data`, which torch does not count either: call `clear` after those.
    """

    def __init__(self, precision: torch.dtype, engine: str = "auto") -> None:
        self.precision, self.engine = precision, engine
        self._cached: tuple[list[Any], list[Any], Model] | None = None

    def of(self, model: Model) -> Model:
        """The inference copy of the model as it is now."""
        references, version = _version(model)
        if self._cached is None or self._cached[1] != version:
            same = self.precision == torch.float32
            cast = model if same else deepcopy(model).to(self.precision)
            self._cached = references, version, inference_model(cast, self.engine)
        return self._cached[2]

    def clear(self) -> None:
        """Rebuild the copy when it is next needed."""
        self._cached = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything except the copy, which can be rebuilt."""
        return {**self.__dict__, "_cached": None}


def _version(model: nn.Module) -> tuple[list[Any], list[Any]]:
    """All modules and weights of a model (kept alive so that their ids stay unique), and a value
    that changes with any of them. Walks the tree by hand: `modules()` and `parameters()` would take
    a tenth of the time of a short prediction."""
    modules: list[Any] = [model]
    weights: list[Any] = []
    version: list[Any] = []
    for module in modules:  # grows during the loop
        own = module.__dict__
        if any(map(own.__getitem__, HOOKS)):
            version += [(id(module), id(hook)) for hook in active_hooks(module)]
        if own["_modules"]:
            modules += [child for child in own["_modules"].values() if child is not None]
        if own["_parameters"]:
            weights += own["_parameters"].values()
    version += map(id, modules)
    version += [
        weight if weight is None else (id(weight), weight.data_ptr(), _write_count(weight))
        for weight in weights
    ]
    return modules + weights, version


def _write_count(weight: Any) -> int:
    """How often a weight was written to; torch does not count for inference tensors."""
    return 0 if weight.is_inference() else weight._version
