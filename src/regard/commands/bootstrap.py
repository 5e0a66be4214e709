"""Intervals: how far a metric may be off for want of questions, by resampling them (Efron 1979; Koehn 2004)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from regard.train import metrics

RESAMPLES, SEED = 1_000, 12_345
AT_ONCE = 1 << 22  # numbers drawn at a time, so that memory stays bounded however many questions there are

Sums = Float[np.ndarray, "resample statistic"]


def intervals(
    task: str, kind: str, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, tuple[float, float]]:
    """For each metric of the task the interval that holds 95 % of its values on resampled questions."""
    if task == "symbols":
        found = metrics.compared(predictions, references, kind=kind)
        counts = np.array([(one.wrong, one.edits, one.length) for one in found], dtype=np.float64)
        wrong, edits, length = resampled(counts).T
        wer = 100 * wrong / len(counts)
        rates = {"ser": 100 * edits / np.maximum(1, length), "wer": wer, "exact": 100 - wer}
        return {name: middle(values) for name, values in rates.items()}
    said, streams, judges = metrics.judges(predictions, references)
    bounds = {}
    for name, judge in judges.items():
        counts = np.array(judge._extract_corpus_statistics(said, streams), dtype=np.float64)
        scores = [judge._compute_score_from_stats(sums.tolist()).score for sums in resampled(counts)]
        bounds[name] = middle(np.array(scores))
    return bounds


def resampled(counts: Float[np.ndarray, "question statistic"], *, resamples: int = RESAMPLES, seed: int = SEED) -> Sums:
    """The sums of the statistics over as many questions as there are, drawn with replacement; for each resample."""
    chance, size = np.random.default_rng(seed), len(counts)
    rows = max(1, AT_ONCE // size)
    draw: Callable[[int], Sums] = lambda count: counts[chance.integers(size, size=(count, size))].sum(1)  # noqa: E731
    return np.concatenate([draw(min(rows, resamples - done)) for done in range(0, resamples, rows)])


def middle(values: Float[np.ndarray, " resample"]) -> tuple[float, float]:
    """Between which the middle 95 % lie."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
