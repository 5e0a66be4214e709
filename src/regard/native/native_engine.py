"""NativeEngine: decoding on the native engine, from the stored weights of a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from regard.decoding_engine import EngineRequest, Ids
from regard.decoding_options import length_limit
from regard.errors import debugging
from regard.native.library import NativeError
from regard.native.native_model import NativeModel
from regard.native.native_options import NativeOptions
from regard.native.weights_file import WeightsError, read_tensors
from regard.search.hypothesis import Hypothesis
from regard.search.token_options import TokenOptions
from regard.text.template import Template


class NativeEngine:
    """Runs the weights in a bundle's folder; a model that was changed in memory is refused."""

    name = "native"

    def __init__(self, request: EngineRequest) -> None:
        self._bundle = bundle = request.bundle
        if bundle.weights is None:
            raise NativeError("it runs the weights in the folder of a bundle")
        sizes = len(bundle.source), len(bundle.target)
        try:
            tensors = read_tensors(bundle.weights)
        except WeightsError as error:
            raise NativeError(str(error)) from None
        int8 = request.precision == "int8"
        self._model = NativeModel(bundle.raw_settings, sizes, tensors, int8=int8)

    def cannot(self, options: TokenOptions, *, stream: bool = False) -> str | None:
        """Why it cannot run a search with these options now; None if it can."""
        if not self._bundle.is_stored:
            return "the model was changed after it was loaded"
        if debugging():
            return "it does not check attention scores, as debug() asks"
        return None

    def search(
        self, sources: Sequence[Ids], options: TokenOptions, max_length: int | None, ratio: float
    ) -> list[Sequence[Hypothesis]]:
        """The hypotheses of each source, best first."""
        added = options.template.source_tokens
        limits = [length_limit(len(ids) + added, max_length, ratio) for ids in sources]
        found = self._model.search(sources, limits, NativeOptions(**vars(options)))
        return [[Hypothesis(*one) for one in hypotheses] for hypotheses in found]

    def stream(
        self, source: Ids, options: TokenOptions, max_length: int | None, ratio: float
    ) -> Iterator[tuple[Ids, bool]]:
        """After each step, the ids that all remaining hypotheses share; finally, the output."""
        limit = length_limit(len(options.template.source(source)), max_length, ratio)
        return self._model.stream(source, limit, NativeOptions(**vars(options)))

    def score(
        self, sources: Sequence[Ids], targets: Sequence[Ids], template: Template
    ) -> list[list[float]]:
        """The log-probability of each target token and of END, for each pair."""
        return [one.logps for one in self._model.score(sources, targets, template)]

    def align(self, source: Ids, target: Ids, template: Template) -> np.ndarray:
        """The alignment of a target with a source, as `teacher_forcing.alignment` defines it."""
        weights = self._model.align(source, target, template)
        before, after = len(template.source_prefix), len(template.source_suffix)
        if (before, after) == (0, 1):
            return weights
        last = weights.shape[1] - after
        special = weights[:, :before].sum(1) + weights[:, last:].sum(1)
        return np.column_stack([weights[:, before:last], special])

    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        assert self._bundle.weights
        return all(np.isfinite(one).all() for one in read_tensors(self._bundle.weights).values())
