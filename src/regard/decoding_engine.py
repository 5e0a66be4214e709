"""DecodingEngine: runs whole searches for one model, over token ids, and scores given targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from regard.bundle.bundle import Bundle
from regard.search.hypothesis import Hypothesis
from regard.search.token_options import TokenOptions
from regard.text.template import Template

Ids = Sequence[int]


@dataclass(frozen=True)
class EngineRequest:
    """What an engine is opened for: a bundle (with its device) and the precision of search."""

    bundle: Bundle
    precision: str = "float32"


class DecodingEngine(Protocol):
    """An engine that was opened for a model. Sources are ids without special tokens, which
    templates add; `max_length` and `ratio` are those of `length_limit`. Results do not depend on
    the batch."""

    name: str

    def cannot(self, options: TokenOptions, *, stream: bool = False) -> str | None:
        """Why it cannot run a search with these options now; None if it can."""
        ...

    def search(
        self, sources: Sequence[Ids], options: TokenOptions, max_length: int | None, ratio: float
    ) -> list[Sequence[Hypothesis]]:
        """The hypotheses of each source, best first."""
        ...

    def stream(
        self, source: Ids, options: TokenOptions, max_length: int | None, ratio: float
    ) -> Iterator[tuple[Ids, bool]]:
        """After each step, the ids that all remaining hypotheses share, and False; finally, those
        of the best output, and True, unless there is none."""
        ...

    def score(
        self, sources: Sequence[Ids], targets: Sequence[Ids], template: Template
    ) -> list[list[float]]:
        """The log-probability of each target token and of END, for each pair."""
        ...

    def align(self, source: Ids, target: Ids, template: Template) -> Any:
        """The alignment of a target with a source, as an array; None if it is left to torch."""
        ...

    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        ...
