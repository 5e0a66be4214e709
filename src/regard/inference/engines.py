"""Engines: the ways to run a model's steps, each with a gate that says what it cannot run.

`auto` takes the first engine that accepts the model. An explicit request never falls back.
`search_all` searches many sources on the fastest engine; `ModelCache` keeps the prepared model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from regard.decoding_options import RATIO
from regard.errors import EngineError, choose
from regard.inference import continuous_batching, fast_transformer
from regard.inference.fast_transformer import FastTransformer
from regard.inference.inference_model import Uncached
from regard.kernels.fused_linear import active_hooks
from regard.models.contract import Model
from regard.models.ensemble import Ensemble
from regard.models.model_version import ModelVersion
from regard.ragged import Layout, Ragged
from regard.search.build import with_template
from regard.search.hypothesis import SearchResult
from regard.search.search_batches import (
    BATCH_TOKENS,
    Search,
    batch_invariant,
    length_batches,
    length_limits,
)
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.threads import search_threads


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
        return Ensemble(*([inference_model(one, engine) for one in side] for side in model.sides))
    if engine != "auto":
        chosen = choose(ENGINES, engine, "engine")
        if reason := chosen.cannot(model):
            raise EngineError(
                f"engine {engine!r} cannot run this model: {reason}. Use engine='auto', or "
                "'uncached'"
            )
        return chosen.prepare(model)
    return next(each.prepare(model) for each in ENGINES.values() if each.cannot(model) is None)


class ModelCache:
    """The inference copy of a model, for an engine and a precision.

    It is built again whenever the model changes, as `ModelVersion` detects; call `clear` after
    changes that it does not.
    """

    def __init__(self, precision: torch.dtype, engine: str = "auto") -> None:
        self.precision, self.engine = precision, engine
        self._cached: tuple[ModelVersion, Model] | None = None

    def of(self, model: Model) -> Model:
        """The inference copy of the model as it is now."""
        if self._cached is None or not self._cached[0].is_current(model):
            same = self.precision == torch.float32
            cast = model if same else deepcopy(model).to(self.precision)
            self._cached = ModelVersion(model), inference_model(cast, self.engine)
        return self._cached[1]

    def clear(self) -> None:
        """Rebuild the copy when it is next needed."""
        self._cached = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything except the copy, which can be rebuilt."""
        return {**self.__dict__, "_cached": None}


@torch.inference_mode()
def search_all(
    search: Search,
    model: Model,
    sources: Sequence[Sequence[int]],
    *,
    max_length: int | None = None,
    ratio: float = RATIO,
    tokens: int = BATCH_TOKENS,
    device: torch.device | str = "cpu",
    template: Template = DEFAULT_TEMPLATE,
) -> list[SearchResult]:
    """The search results of each source (ids alone), independent of batch and order. `template`
    has the special tokens of sources, and replaces that of the search. Outputs have the order of
    the text, also those of a model that generates them from the end.

    Continuous batching on a GPU takes every source it can; the rest is batched by length.
    """
    search = with_template(search, template)
    ended = [template.source(ids) for ids in sources]
    results: dict[int, SearchResult] = {}
    if continuous_batching.cannot(search, model, device) is None:
        lengths = torch.tensor([len(ids) for ids in ended], dtype=torch.long)
        limits = length_limits(lengths, max_length, ratio)
        results |= continuous_batching.run(search, model, ended, limits.tolist())
    left = [index for index in range(len(ended)) if index not in results]
    for batch in length_batches([len(ended[index]) for index in left], tokens):
        places = [left[i] for i in batch]
        ids = torch.tensor([id for place in places for id in ended[place]], device=device)
        ends = [0, *accumulate(len(ended[place]) for place in places)]
        layout = Layout(torch.tensor(ends, device=device), len(ended[places[-1]]), len(ids))
        source = Ragged.from_layout(ids, layout)  # valid by construction, so not validated again
        limits = length_limits(source.lengths, max_length, ratio)
        with search_threads(len(places), ids.device).use():
            results |= zip(places, batch_invariant(search, model, source, limits), strict=True)
    found = [results[index] for index in range(len(ended))]
    return [one.reversed() for one in found] if template.reversed else found
