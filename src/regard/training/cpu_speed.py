"""The speed of training on this CPU, measured before the size of a model is chosen."""

from __future__ import annotations

import statistics
import time

from regard.config import ModelSettings, parse
from regard.device import bypass_onednn
from regard.models import FAMILIES, build
from regard.training.auto_settings import RequestedSettings
from regard.training.dataset import Dataset
from regard.training.objective import Objective

BATCH_TOKENS = 2_048
BATCHES = 4  # of which the first is not counted


def measure_training_speed(requested: RequestedSettings, dataset: Dataset) -> float:
    """Tokens/s of the gradients of a mini model, without updates: the median of a few batches,
    which take about a second on two slow cores."""
    preset = FAMILIES[requested.family].presets["mini"]
    values = {"kind": requested.family, **preset, **requested.model}
    held_out = dataset.held_out
    model = build(parse(ModelSettings, values, "model"), len(held_out.source), len(held_out.target))
    smoothing = requested.train.label_smoothing
    objective = Objective(model, label_smoothing=smoothing, rdrop=0.0, template=held_out.template)
    batches, speeds = dataset.batches(requested.train, BATCH_TOKENS), []
    with bypass_onednn():
        for step in range(min(BATCHES, batches.steps(0))):
            batch = batches.at(0, step)
            start = time.perf_counter()
            objective(batch).backward()
            speeds.append(batch.total_tokens / (time.perf_counter() - start))
    return statistics.median(speeds[1:] or speeds)
