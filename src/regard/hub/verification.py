"""Verification of an export: the same texts through the original and the exported model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from regard.bundle import Bundle
from regard.decoding_options import RATIO, length_limit
from regard.errors import RegardError
from regard.inference import inference_model, search_all
from regard.native import NativeHypothesis
from regard.ragged import Ragged
from regard.search import Greedy
from regard.search.hypothesis import Hypothesis, SearchResult

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


class LogitsModel(Protocol):
    """What an exported model must answer where its logits can be read."""

    def greedy(self, sources: Sequence[Ids], limits: Sequence[int]) -> list[list[int]]: ...

    def logits(self, source: Ids, target: Ids) -> np.ndarray: ...


@dataclass(frozen=True)
class Verification:
    """How far an exported model is from the original.

    `largest_difference` is that of any log-probability or logit. `changed_outputs` excludes
    near-ties, where float32 rounding alone decides.
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


@dataclass(frozen=True)
class ReferenceOutputs:
    """The greedy outputs of the original for some sources, and the limits of their length."""

    sources: list[list[int]]
    limits: list[int]
    results: list[SearchResult]

    @classmethod
    def of(cls, bundle: Bundle, texts: Sequence[str]) -> ReferenceOutputs:
        """Search the outputs of some of the texts."""
        sources = choose_sources(bundle, texts)
        longest = bundle.card.get("longest", {})
        most = 2 * longest["target"] + 10 if "target" in longest else None
        ratio = longest.get("ratio", RATIO)
        model = inference_model(bundle.model.cpu().eval())
        template = bundle.template
        limit: dict[str, Any] = {"max_length": most, "ratio": ratio}
        results = search_all(Greedy(), model, sources, **limit, template=template)
        limits = [length_limit(len(template.source(ids)), **limit) for ids in sources]
        return cls(sources, limits, results)

    @property
    def best(self) -> list[Hypothesis]:
        """The output of each source."""
        return [one.hypotheses[0] for one in self.results]

    def compare(self, outputs: Sequence[Ids], differences: Iterable[float]) -> Verification:
        """Count the outputs that differ, and take the largest difference."""
        changed = [
            result.is_close
            for result, found, other in zip(self.results, self.best, outputs, strict=True)
            if list(found.ids) != list(other)
        ]
        largest = max(differences, default=0.0)
        counts = changed.count(False), changed.count(True)
        return Verification(len(self.sources), largest, *counts)


def verify(bundle: Bundle, exported: ExportedModel, texts: Sequence[str]) -> Verification:
    """Compare greedy outputs and their log-probabilities."""
    expected = ReferenceOutputs.of(bundle, texts)
    theirs = exported.search(expected.sources, expected.limits)
    pairs = zip(expected.sources, expected.best, strict=True)
    scores = exported.score([(ids, found.ids) for ids, found in pairs if found.ids])
    logps = [found.logps for found in expected.best if found.ids]
    differences = (
        abs(a - b)
        for one, other in zip(logps, scores, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    return expected.compare([found[0].ids for found in theirs], differences)


def verify_logits(bundle: Bundle, exported: LogitsModel, texts: Sequence[str]) -> Verification:
    """Compare greedy outputs and, for each position of them, the logits of the vocabulary."""
    expected = ReferenceOutputs.of(bundle, texts)
    outputs = exported.greedy(expected.sources, expected.limits)
    pairs = zip(expected.sources, expected.best, strict=True)
    differences = (
        np.abs(reference_logits(bundle, source, found.ids) - exported.logits(source, found.ids))
        for source, found in pairs
    )
    return expected.compare(outputs, (float(each.max()) for each in differences))


@torch.inference_mode()
def reference_logits(bundle: Bundle, source: Ids, target: Ids) -> np.ndarray:
    """The logits (position, vocabulary) of the original for each token of a target and its end."""
    template = bundle.template
    read = Ragged.of([torch.tensor(template.source(source))])
    prefix = Ragged.of([torch.tensor(template.decoder_input(target))])
    logits: np.ndarray = bundle.model(read, prefix).values[len(template.start) - 1 :].numpy()
    return logits


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
