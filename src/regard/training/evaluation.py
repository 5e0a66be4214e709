"""Evaluation during training: greedy decoding of the held-out set and the task's metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int32

from regard.errors import RegardError
from regard.inference import inference_model, search_all
from regard.models import Model, is_finite
from regard.search import Greedy
from regard.search.length_batching import EXTRA, RATIO
from regard.text import Tokenizer
from regard.training import metrics

SAMPLES = 3
MAX_RATIO = 16.0  # of output to source length; longer outputs are errors of the data or the model

Lengths = Int32[np.ndarray, " pair"]
Sample = tuple[str, str, str]  # source, prediction, reference


@dataclass(frozen=True)
class HeldOutSet:
    """Held-out sources with their references, and the metrics that compare outputs with them."""

    source: Tokenizer
    target: Tokenizer
    references: Mapping[str, Sequence[str]]
    task: str
    max_length: int
    ratio: float = RATIO

    def evaluate(self, model: Model, device: torch.device) -> tuple[dict[str, Any], list[Sample]]:
        """The metrics, and a few samples: always of the same sources."""
        sources = list(self.references)
        outputs = decode(
            model,
            self.source,
            self.target,
            sources,
            max_length=self.max_length,
            ratio=self.ratio,
            device=device,
        )
        references = list(self.references.values())
        values = metrics.measure(self.task, self.target.kind, outputs, references)
        indices = dict.fromkeys(len(sources) * (i + 1) // (SAMPLES + 1) for i in range(SAMPLES))
        return values, [(sources[i], outputs[i], references[i][0]) for i in indices]


def decode(
    model: Model,
    source: Tokenizer,
    target: Tokenizer,
    lines: Sequence[str],
    *,
    max_length: int,
    ratio: float = RATIO,
    device: torch.device,
) -> list[str]:
    """The greedy output for each line, in order."""
    training = model.training
    model.eval()
    encoded = [source.encode(line) for line in lines]
    search_model = inference_model(model)
    results = search_all(
        Greedy(), search_model, encoded, most=max_length, ratio=ratio, device=device
    )
    model.train(training)
    return [target.decode(result.hypotheses[0].ids) for result in results]


def sample_references(references: dict[str, list[str]], max_sources: int) -> dict[str, list[str]]:
    """At most this many sources, evenly spread because corpora are often sorted."""
    items, count = list(references.items()), min(max_sources, len(references))
    return dict(items[i * len(items) // count] for i in range(count))


def length_ratio(sources: Lengths, targets: Lengths) -> float:
    """How many times as long as its source an output may be: enough for 99.9 % of the pairs."""
    needed = (targets - EXTRA) / (sources + 1)
    return float(min(MAX_RATIO, max(RATIO, np.percentile(needed, 99.9, method="higher"))))


def check_finite(model: Model, step: int) -> None:
    """Raise if weights are not finite: search would find no output."""
    if not is_finite(model):
        raise RegardError(
            f"weights are not finite at step {step:,}; lower train.learning_rate or "
            "train.weight_decay and use another --out"
        )
