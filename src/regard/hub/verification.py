"""Verification of an export: the same texts through the original and the exported model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from regard.bundle import Bundle
from regard.decoding_options import RATIO, length_limit
from regard.errors import RegardError
from regard.inference import inference_model, search_all
from regard.native import NativeHypothesis
from regard.search import Greedy

TOLERANCE = 1e-4  # of each log-probability
MAX_TEXTS = 200
MIN_TEXTS = 50  # fewer are completed by random ones
Ids = Sequence[int]


class ExportError(RegardError):
    """An exported model computes something else than the original."""


class ExportedModel(Protocol):
    """What an exported model must answer: greedy outputs and scores of given ones."""

    def search(
        self, sources: Sequence[Ids], limits: Sequence[int]
    ) -> list[list[NativeHypothesis]]: ...

    def score(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]: ...


@dataclass(frozen=True)
class Verification:
    """How far an exported model is from the original.

    `largest_difference` is that of any log-probability. `changed_outputs` excludes near-ties, where
    float32 rounding alone decides.
    """

    texts: int
    largest_difference: float
    changed_outputs: int
    near_ties: int

    def check(self) -> None:
        """Raise unless both models agree."""
        if not self.largest_difference <= TOLERANCE or self.changed_outputs:
            raise ExportError(
                f"the exported model differs from the original: log-probabilities by up to "
                f"{self.largest_difference:.1e} (allowed: {TOLERANCE:.0e}) and "
                f"{self.changed_outputs} of {self.texts} outputs; nothing was written: keep using "
                "Regard for this model, and report its settings"
            )


def verify(bundle: Bundle, exported: ExportedModel, texts: Sequence[str]) -> Verification:
    """Compare greedy outputs and their log-probabilities."""
    sources = choose_sources(bundle, texts)
    longest = bundle.card.get("longest", {})
    most = 2 * longest["target"] + 10 if "target" in longest else None
    ratio = longest.get("ratio", RATIO)
    model = bundle.model.cpu().eval()
    limit: dict[str, Any] = {"max_length": most, "ratio": ratio}
    template = bundle.template
    ours = search_all(Greedy(), inference_model(model), sources, **limit, template=template)
    limits = [length_limit(len(template.source(ids)), **limit) for ids in sources]
    theirs = exported.search(sources, limits)
    best = [one.hypotheses[0] for one in ours]
    scores = exported.score(
        [(ids, found.ids) for ids, found in zip(sources, best, strict=True) if found.ids]
    )
    logps = [found.logps for found in best if found.ids]
    differences = [
        abs(a - b)
        for one, other in zip(logps, scores, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    changed = [
        our.is_close
        for our, found, their in zip(ours, best, theirs, strict=True)
        if list(found.ids) != list(their[0].ids)
    ]
    largest = max(differences, default=0.0)
    return Verification(len(sources), largest, changed.count(False), changed.count(True))


def choose_sources(bundle: Bundle, texts: Sequence[str]) -> list[list[int]]:
    """The ids of some texts, evenly spread; few texts are completed by random sequences."""
    count = min(MAX_TEXTS, len(texts))
    chosen = [texts[i * len(texts) // count] for i in range(count)]
    longest = bundle.card.get("longest", {}).get("source", 16)
    encoded = [bundle.source.encode(text.strip())[:longest] for text in chosen]
    draw, size = random.Random(1), len(bundle.source)
    while len(encoded) < MIN_TEXTS:
        length = draw.randint(1, min(longest, 64))
        encoded.append([draw.randrange(min(3, size - 1), size) for _ in range(length)])
    return [ids for ids in encoded if ids]
