"""Baselines: what a program without a model would answer, scored like a model.

copy_source repeats the source, most_frequent_target always gives the same answer, and
nearest_training_source gives the target of the training source with the fewest edits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from regard.text import TokenizedPairs, Tokenizer
from regard.training import metrics

LABELS = {
    "copy_source": "copy the source",
    "most_frequent_target": "most frequent target",
    "nearest_training_source": "nearest training source",
}
MAX_QUERIES = 500  # sources whose nearest training source is searched
MAX_PAIRS = 20_000  # training pairs searched,
MAX_CHARACTERS = 400_000  # and their characters: the cost grows with both
Scores = dict[str, dict[str, float]]
TextPairs = Sequence[tuple[str, str]]


def most_frequent_target(pairs: TextPairs) -> str:
    """The most frequent target; of equally frequent ones the first."""
    return Counter(target for _, target in pairs).most_common(1)[0][0]


def score_baselines(
    task: str,
    references: Mapping[str, Sequence[str]],
    *,
    frequent: str | None = None,
    pairs: TextPairs = (),
) -> Scores:
    """The metrics of each baseline. Without `frequent` or training `pairs`, theirs are omitted."""
    sources, right = list(references), list(references.values())
    scores = {"copy_source": _numbers(metrics.measure(task, sources, right))}
    if frequent is not None:
        outputs = [frequent] * len(sources)
        scores["most_frequent_target"] = _numbers(metrics.measure(task, outputs, right))
    if pairs:
        chosen = _spread(len(sources), MAX_QUERIES)
        outputs = nearest_targets([sources[i] for i in chosen], pairs)
        found = metrics.measure(task, outputs, [right[i] for i in chosen])
        scores["nearest_training_source"] = _numbers(found)
    return scores


def nearest_targets(sources: Sequence[str], pairs: TextPairs) -> list[str]:
    """For each source, the target of the nearest of (a sample of) the training sources."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    characters = sum(len(source) for source, _ in pairs)
    limit = min(MAX_PAIRS, max(1, int(len(pairs) * MAX_CHARACTERS / max(1, characters))))
    sample = [pairs[i] for i in _spread(len(pairs), limit)]
    keys = [source for source, _ in sample]
    targets = []
    for start in range(0, len(sources), 32):  # 32 rows of distances at a time
        block = sources[start : start + 32]
        distances = cdist(block, keys, scorer=Levenshtein.distance, dtype=np.int32)
        targets += [sample[i][1] for i in distances.argmin(1)]
    return targets


def compare_with_baselines(
    model: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    scores: Scores,
    primary: str | None = None,
) -> str | None:
    """A warning if the model is not clearly better than the best baseline; None if it is."""
    name, value, higher = metrics.primary_metric(model, primary)
    compared = {key: found[name] for key, found in scores.items() if name in found}
    if not compared:
        return None
    key = (max if higher else min)(compared, key=lambda one: compared[one])
    best, sign = compared[key], 1 if higher else -1
    what = f"{LABELS[key]!r} ({metrics.label(name)} {value:.2f} against {best:.2f})"
    if sign * (value - best) <= 0:
        return f"the model is not better than the baseline {what}; train longer, or on more pairs"
    low, high = intervals.get(name, (value, value))
    if low <= best <= high:
        return f"the model is not clearly better than the baseline {what}"
    return None


def beats_baselines(model: Mapping[str, float], scores: Scores, primary: str | None = None) -> bool:
    """Whether the model is better than every baseline that has its primary metric."""
    name, value, higher = metrics.primary_metric(model, primary)
    known = [found[name] for found in scores.values() if name in found]
    return all(value > one if higher else value < one for one in known)


def describe_baselines(scores: Scores, metric: str) -> str:
    """The baselines in one line, by one metric."""
    parts = (f"{LABELS[key]} {found[metric]:.2f}" for key, found in scores.items())
    return ", ".join(parts)


def training_pairs(run: Path, source: Tokenizer, target: Tokenizer) -> TextPairs:
    """A sample of the training pairs of a run folder, from its token ids; empty without them."""
    if not (run / "data/ids/ids.json").is_file():
        return []
    stored = TokenizedPairs.open(run / "data/ids")
    prints = stored.counts["fingerprint"]
    names = ("source tokenizer", source.fingerprint), ("target tokenizer", target.fingerprint)
    if any(prints.get(name) != value for name, value in names):
        return []  # of another model
    chosen = np.array(_spread(len(stored), MAX_PAIRS))
    sides = []
    for tokenizer, (values, ends) in zip((source, target), stored.gather(chosen), strict=True):
        ranges = pairwise(ends)
        sides.append([tokenizer.decode(values[start:end].tolist()) for start, end in ranges])
    return list(zip(*sides, strict=True))


def _spread(total: int, limit: int) -> list[int]:
    """At most `limit` indices, evenly spread."""
    count = min(total, limit)
    return [i * total // count for i in range(count)]


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
