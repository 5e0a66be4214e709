"""Engines: the ways to run a model's steps, each with a gate that says what it cannot run.

`auto` takes the first engine that accepts the model. An explicit request never falls back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.errors import RegardError, choose
from regard.inference import fast_transformer
from regard.inference.fast_transformer import FastTransformer
from regard.inference.uncached import Uncached
from regard.kernels.fused_linear import active_hooks
from regard.models.contract import Model
from regard.models.ensemble import Ensemble


class EngineError(RegardError):
    """An engine was requested that cannot run the model."""


@dataclass(frozen=True)
class Engine:
    """`cannot` returns why a model is unsupported, or None; `prepare` makes the model that is
    searched.
    """

    cannot: Callable[[Model], str | None]
    prepare: Callable[[Any], Model]


def _hooked(model: Model) -> str | None:
    """Why a cached step may differ from a full pass."""
    for name, module in model.named_modules():
        if active_hooks(module):
            return f"{name or 'the model'} has hooks, which a cached step may bypass"
    return None


ENGINES: dict[str, Engine] = {
    "fast": Engine(lambda model: _hooked(model) or fast_transformer.cannot(model), FastTransformer),
    "plain": Engine(_hooked, lambda model: model),
    "uncached": Engine(lambda model: None, Uncached),
}


def inference_model(model: Model, engine: str = "auto") -> Model:
    """The model that is searched in place of `model`; of an ensemble, that of each member."""
    if isinstance(model, Ensemble):
        return Ensemble([inference_model(member, engine) for member in model])
    if engine != "auto":
        chosen = choose(ENGINES, engine, "engine")
        if reason := chosen.cannot(model):
            raise EngineError(
                f"engine {engine!r} cannot run this model: {reason}. Use engine='auto', or "
                "'uncached'"
            )
        return chosen.prepare(model)
    return next(each.prepare(model) for each in ENGINES.values() if each.cannot(model) is None)
