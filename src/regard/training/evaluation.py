"""Evaluation during training: greedy decoding of the held-out set and the task's metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int32

from regard.decoding_options import EXTRA, RATIO
from regard.disk import write_atomically
from regard.errors import RegardError
from regard.inference import inference_model, search_all
from regard.models import Model, is_finite
from regard.search import Greedy
from regard.text import Tokenizer
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.training import bootstrap, metrics

SAMPLES = 3
ENOUGH = 99.9 / 100  # the share of pairs whose length ratio is allowed
CHUNK_PAIRS = 1 << 18  # whose length ratios are computed at once
MAX_RATIO = 16.0  # of output to source length; longer outputs are errors of the data or the model

Lengths = Int32[np.ndarray, " pair"]
Sample = tuple[str, str, str]  # source, prediction, reference


@dataclass(frozen=True)
class Metric:
    """A user-defined metric: a function of predictions and references (a list for each)."""

    function: Callable[[Sequence[str], Sequence[Sequence[str]]], float]
    higher_is_better: bool = True


@dataclass(frozen=True)
class Evaluation:
    """Metrics on the held-out set, their 95 % intervals, and a few samples."""

    metrics: dict[str, Any]
    intervals: dict[str, tuple[float, float]]
    samples: list[Sample]
    outputs: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class HeldOutSet:
    """Held-out sources with their references, and the metrics that compare outputs with them."""

    source: Tokenizer
    target: Tokenizer
    references: Mapping[str, Sequence[str]]
    task: str
    max_length: int
    ratio: float = RATIO
    extra_metrics: Mapping[str, Metric] = field(default_factory=dict)
    template: Template = DEFAULT_TEMPLATE

    def evaluate(self, model: Model, device: torch.device) -> Evaluation:
        """Decode all sources and measure; the samples are always of the same sources."""
        sources = list(self.references)
        outputs = decode(
            model,
            self.source,
            self.target,
            sources,
            max_length=self.max_length,
            ratio=self.ratio,
            device=device,
            template=self.template,
        )
        references = list(self.references.values())
        values = metrics.measure(self.task, outputs, references)
        for name, metric in self.extra_metrics.items():
            values[name] = float(metric.function(outputs, references))
        indices = dict.fromkeys(len(sources) * (i + 1) // (SAMPLES + 1) for i in range(SAMPLES))
        samples = [(sources[i], outputs[i], references[i][0]) for i in indices]
        bounds = bootstrap.intervals(self.task, outputs, references)
        return Evaluation(values, bounds, samples, dict(zip(sources, outputs, strict=True)))

    def save_outputs(self, path: Path, outputs: Mapping[str, str]) -> None:
        """Write source, output and references of every source as JSON lines, for reports."""
        rows = (
            {"source": source, "output": outputs[source], "references": list(references)}
            for source, references in self.references.items()
        )
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_atomically(path, "".join(lines))

    def primary(self, values: Mapping[str, Any], name: str | None) -> tuple[float, bool]:
        """The value of the metric that selects the best model, and whether higher is better."""
        name, value, higher = metrics.primary_metric(values, name)
        if name in self.extra_metrics:
            higher = self.extra_metrics[name].higher_is_better
        return value, higher


def decode(
    model: Model,
    source: Tokenizer,
    target: Tokenizer,
    lines: Sequence[str],
    *,
    max_length: int,
    ratio: float = RATIO,
    device: torch.device,
    template: Template = DEFAULT_TEMPLATE,
) -> list[str]:
    """The greedy output for each line, in order."""
    training = model.training
    model.eval()
    encoded = [source.encode(line) for line in lines]
    search_model = inference_model(model)
    results = search_all(
        Greedy(),
        search_model,
        encoded,
        max_length=max_length,
        ratio=ratio,
        device=device,
        template=template,
    )
    model.train(training)
    return [target.decode(result.hypotheses[0].ids) for result in results]


def sample_references(references: dict[str, list[str]], max_sources: int) -> dict[str, list[str]]:
    """At most this many sources, evenly spread because corpora are often sorted."""
    items, count = list(references.items()), min(max_sources, len(references))
    return dict(items[i * len(items) // count] for i in range(count))


def length_ratio(sources: Lengths, targets: Lengths) -> float:
    """How many times as long as its source an output may be: enough for 99.9 % of the pairs.

    Only the highest 0.1 % are kept: the ratios of all pairs would take more memory than the plan
    of an epoch.
    """
    count = len(sources)
    kept = count - math.ceil(ENOUGH * (count - 1))  # at least one
    highest = np.empty(0)
    for start in range(0, count, CHUNK_PAIRS):
        chunk = slice(start, start + CHUNK_PAIRS)
        needed = (targets[chunk] - EXTRA) / (sources[chunk] + 1)
        highest = np.concatenate([highest, needed])
        highest = np.partition(highest, max(0, len(highest) - kept))[-kept:]
    return float(min(MAX_RATIO, max(RATIO, highest.min())))


def check_finite(model: Model, step: int) -> None:
    """Raise if weights are not finite: search would find no output."""
    if not is_finite(model):
        raise RegardError(
            f"weights are not finite at step {step:,}; lower train.learning_rate or "
            "train.weight_decay and use another --out"
        )
