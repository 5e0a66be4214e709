"""TorchEngine: decoding with torch, on any device and for every model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from regard.decoding_engine import EngineRequest, Ids
from regard.inference.both_directions import score_pairs, search_both
from regard.inference.engines import ModelCache, search_all
from regard.models import Ensemble, Model, is_finite
from regard.ragged import Ragged
from regard.search.beam import Beam, BeamSearch
from regard.search.build import build_search, search_template
from regard.search.greedy import Greedy
from regard.search.hypothesis import Hypothesis
from regard.search.search_batches import Search, length_limits
from regard.search.token_options import TokenOptions
from regard.teacher_forcing import NEEDS_FORWARD, target_logps
from regard.text.template import Template

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TorchEngine:
    """Runs the model of a bundle as it is now. It also takes search algorithms of one's own."""

    name = "torch"

    def __init__(self, request: EngineRequest) -> None:
        self._bundle = request.bundle
        self._cache = ModelCache(DTYPES[request.precision])
        self._device = next(self._bundle.model.parameters()).device

    @property
    def inference_model(self) -> Model:
        """The fast copy of the model that is searched; built again when the model changes."""
        return self._cache.of(self._bundle.model)

    @property
    def _both_directions(self) -> Ensemble | None:
        """The model, if it is an ensemble of both directions."""
        model = self._bundle.model
        return model if isinstance(model, Ensemble) and len(model.reversed_members) else None

    def refresh_weights(self) -> None:
        """Build the copy again when it is next needed."""
        self._cache.clear()

    def cannot(self, options: TokenOptions, *, stream: bool = False) -> str | None:
        """It runs every search, except that a reversed model cannot follow given tokens."""
        if options.template.reversed and (options.prefix or options.ban or options.required):
            return f"prefix, ban and require {NEEDS_FORWARD}"
        return None

    def search(
        self,
        sources: Sequence[Ids],
        options: TokenOptions | Search,
        max_length: int | None,
        ratio: float,
    ) -> list[Sequence[Hypothesis]]:
        """The hypotheses of each source, best first."""
        search: Search
        if isinstance(options, TokenOptions):
            search, template = build_search(options), options.template
        else:
            search, template = options, search_template(options, self._bundle.template)
        model: Any = self.inference_model
        limits: Any = {"max_length": max_length, "ratio": ratio, "device": self._device}
        limits["template"] = template
        if (ensemble := self._both_directions) is not None:
            return search_both(search, ensemble, sources, searched=model, **limits)
        return [result.hypotheses for result in search_all(search, model, sources, **limits)]

    def stream(
        self, source: Ids, options: TokenOptions, max_length: int | None, ratio: float
    ) -> Iterator[tuple[Ids, bool]]:
        """After each step, the ids that all remaining hypotheses share; finally, the output.
        Models that generate targets reversed only have the latter."""
        if options.template.reversed or self._both_directions is not None:
            (found,) = self.search([source], options, max_length, ratio)
            for hypothesis in found[:1]:
                yield hypothesis.ids, True
            return
        search = build_search(options)
        # A beam of 1 without a length penalty is greedy search.
        beam = search
        if isinstance(search, Greedy):
            beam = Beam(1, constraints=search.constraints, template=options.template)
        assert isinstance(beam, Beam)
        batch = Ragged.of([torch.tensor(options.template.source(source))]).to(self._device)
        limits = length_limits(batch.lengths, max_length, ratio)
        beams = BeamSearch(beam, self.inference_model, batch, limits)
        for _ in beams:
            yield beams.committed_prefix(), False
        for hypothesis in beams.results()[0].hypotheses[:1]:
            yield hypothesis.ids, True

    def score(
        self, sources: Sequence[Ids], targets: Sequence[Ids], template: Template
    ) -> list[list[float]]:
        """The log-probability of each target token and of END, by the model itself."""
        if (ensemble := self._both_directions) is not None:
            return score_pairs(ensemble, sources, targets, template)
        return target_logps(self._bundle.model, sources, targets, template)

    def align(self, source: Ids, target: Ids, template: Template) -> None:
        """Alignments are left to `teacher_forcing`."""

    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        return is_finite(self._bundle.model)
