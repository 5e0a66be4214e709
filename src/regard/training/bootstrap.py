"""Bootstrap confidence intervals of metrics, by resampling test items (Efron 1979; Koehn 2004)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from regard.training import metrics

RESAMPLES, SEED = 1_000, 12_345
DRAWN_AT_ONCE = 1 << 22  # bounds the memory, whatever the number of items

Sums = Float[np.ndarray, "resample statistic"]


def intervals(
    task: str, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, tuple[float, float]]:
    """The 95 % bootstrap interval of each metric of the task."""
    values = resampled_metrics(task, predictions, references)
    return {name: percentile_interval(found) for name, found in values.items()}


def paired_difference(
    task: str,
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[Sequence[str]],
) -> tuple[float, float]:
    """How much the primary metric of `second` differs from that of `first`, and the two-sided
    p-value of a paired bootstrap (Koehn 2004): both are measured on the same resamples."""
    name, before, _ = metrics.primary_metric(metrics.measure(task, first, references))
    after = metrics.measure(task, second, references)[name]
    draws = [resampled_metrics(task, one, references)[name] for one in (second, first)]
    differences = draws[0] - draws[1]
    # ties count for both sides, so equal outputs have p = 1
    below, above = float((differences <= 0).mean()), float((differences >= 0).mean())
    return after - before, min(1.0, 2 * min(below, above))


def resampled_metrics(
    task: str, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, Float[np.ndarray, " resample"]]:
    """Each metric of the task on each resample; items are drawn alike for all predictions."""
    if task != "text":
        found = metrics.compare(predictions, references, task=task)
        counts = np.array([(one.wrong, one.edits, one.length) for one in found], dtype=np.float64)
        sums = resample(counts)
        wrong = 100 * sums[:, 0] / len(counts)
        edits = 100 * sums[:, 1] / np.maximum(1, sums[:, 2])
        return metrics.name_rates(task, edits, wrong, 100 - wrong)
    outputs, streams, judges = metrics.corpus_scorers(predictions, references)
    values = {}
    for name, judge in judges.items():
        counts = np.array(judge._extract_corpus_statistics(outputs, streams), dtype=np.float64)
        scores = [judge._compute_score_from_stats(sums.tolist()).score for sums in resample(counts)]
        values[name] = np.array(scores)
    return values


def resample(
    counts: Float[np.ndarray, "item statistic"], *, resamples: int = RESAMPLES, seed: int = SEED
) -> Sums:
    """The sums of the statistics over items drawn with replacement, for each resample."""
    random, size = np.random.default_rng(seed), len(counts)
    rows = max(1, DRAWN_AT_ONCE // size)
    sums = []
    for done in range(0, resamples, rows):
        shape = (min(rows, resamples - done), size)
        sums.append(counts[random.integers(size, size=shape)].sum(1))
    return np.concatenate(sums)


def percentile_interval(values: Float[np.ndarray, " resample"]) -> tuple[float, float]:
    """The 2.5th and the 97.5th percentile."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
