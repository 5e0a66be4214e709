"""CTranslate2Engine: decoding on CTranslate2, for comparison; runs on explicit request only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from regard.decoding_engine import EngineRequest, Ids
from regard.decoding_options import length_limit
from regard.errors import EngineError, debugging
from regard.gpu_driver import runs_on_cpu
from regard.hub.ctranslate2_export import MISSING, cannot_export
from regard.hub.ctranslate2_model import CTranslate2Model
from regard.models import is_finite
from regard.native.native_options import NativeOptions
from regard.search.hypothesis import Hypothesis
from regard.search.token_options import TokenOptions
from regard.text.template import Template


def cannot_run(request: EngineRequest) -> str | None:
    """Why CTranslate2 does not run a bundle; None if it does."""
    if request.precision not in ("float32", "int8"):
        return f"it computes in float32 or int8, not {request.precision}"
    if not runs_on_cpu(request.bundle.device):
        return f"it runs on CPUs here, not on device {request.bundle.device!r}"
    if find_spec("ctranslate2") is None:
        return MISSING
    return cannot_export(request.bundle.model)


class CTranslate2Engine:
    """Runs a bundle that it converts when it is opened; a model changed later is refused."""

    name = "ctranslate2"

    def __init__(self, request: EngineRequest) -> None:
        self._bundle = request.bundle
        int8 = request.precision == "int8"
        self._model = CTranslate2Model.from_bundle(request.bundle, int8=int8)

    def cannot(self, options: TokenOptions, *, stream: bool = False) -> str | None:
        """Why it cannot run a search with these options now; None if it can."""
        if not self._bundle.is_stored:
            return "the model was changed after it was loaded"
        if debugging():
            return "it does not check attention scores, as debug() asks"
        given = NativeOptions(**vars(options))
        return "it does not stream" if stream else self._model.cannot_search(given)

    def search(
        self, sources: Sequence[Ids], options: TokenOptions, max_length: int | None, ratio: float
    ) -> list[Sequence[Hypothesis]]:
        """The hypotheses of each source, best first."""
        limits = [
            length_limit(len(options.template.source(ids)), max_length, ratio) for ids in sources
        ]
        found = self._model.search(sources, limits, NativeOptions(**vars(options)))
        return [[Hypothesis(*one) for one in hypotheses] for hypotheses in found]

    def stream(
        self, source: Ids, options: TokenOptions, max_length: int | None, ratio: float
    ) -> Iterator[tuple[Ids, bool]]:
        """Not supported; `cannot` says so."""
        raise EngineError(str(self.cannot(options, stream=True)))

    def score(
        self, sources: Sequence[Ids], targets: Sequence[Ids], template: Template
    ) -> list[list[float]]:
        """The log-probability of each target token and of END, for each pair."""
        return self._model.score(list(zip(sources, targets, strict=True)), template)

    def align(self, source: Ids, target: Ids, template: Template) -> None:
        """Alignments are left to `teacher_forcing`."""

    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        return is_finite(self._bundle.model)
