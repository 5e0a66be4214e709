"""Confidence intervals of metrics: by resampling test items (Efron 1979; Koehn 2004), and Wilson's
for the share of right outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from regard.training import metrics

RESAMPLES, SEED = 1_000, 12_345
LEVEL = 0.95
DRAWN_AT_ONCE = 1 << 22  # bounds the memory, whatever the number of items

Sums = Float[np.ndarray, "resample statistic"]


def intervals(
    task: str, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, tuple[float, float]]:
    """The 95 % interval of each metric of the task: bootstrap, and Wilson's for shares of outputs.

    A bootstrap of outputs that are all right or all wrong would claim certainty from a few."""
    if task == "text":
        values = resampled_metrics(task, predictions, references)
        return {name: percentile_interval(draws) for name, draws in values.items()}
    counts = _error_counts(task, predictions, references)
    unit_rate, _, _ = _resampled_rates(counts)
    wrong, size = int(counts[:, 0].sum()), len(counts)
    shares = wilson_interval(wrong, size), wilson_interval(size - wrong, size)
    return metrics.name_rates(task, percentile_interval(unit_rate), *shares)


def wilson_interval(count: int, size: int) -> tuple[float, float]:
    """The 95 % interval of a share, in percent, of which `count` of `size` were seen (Wilson
    1927)."""
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    share, scale = count / size, 1 + z * z / size
    middle = (share + z * z / (2 * size)) / scale
    half = z * math.sqrt(share * (1 - share) / size + z * z / (4 * size * size)) / scale
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


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
        rates = _resampled_rates(_error_counts(task, predictions, references))
        return metrics.name_rates(task, *rates)
    outputs, streams, judges = metrics.corpus_scorers(predictions, references)
    values = {}
    for name, judge in judges.items():
        counts = np.array(judge._extract_corpus_statistics(outputs, streams), dtype=np.float64)
        scores = [judge._compute_score_from_stats(sums.tolist()).score for sums in resample(counts)]
        values[name] = np.array(scores)
    return values


def _error_counts(
    task: str, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> Float[np.ndarray, "item 3"]:
    """For each prediction: wrong or not, edits, and length of the reference."""
    found = metrics.compare(predictions, references, task=task)
    return np.array([(one.wrong, one.edits, one.length) for one in found], dtype=np.float64)


def _resampled_rates(counts: Float[np.ndarray, "item 3"]) -> tuple[np.ndarray, ...]:
    """The unit error rate, sequence error rate and accuracy of each resample, in percent."""
    sums = resample(counts)
    wrong = 100 * sums[:, 0] / len(counts)
    return 100 * sums[:, 1] / np.maximum(1, sums[:, 2]), wrong, 100 - wrong


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
