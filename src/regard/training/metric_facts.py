"""Metrics as text, with their 95 % intervals: "phone error rate 8.25 (7.91–8.60)"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.terminal import format_number
from regard.training.metrics import label

Intervals = Mapping[str, tuple[float, float]]
NO_INTERVALS: Intervals = {}


def format_metrics(metrics: Mapping[str, Any], intervals: Intervals = NO_INTERVALS) -> str:
    """The numbers among metrics with their 95 % intervals; signatures go to the log only."""
    return ", ".join(f"{name} {value}" for name, value in metric_facts(metrics, intervals).items())


def metric_facts(metrics: Mapping[str, Any], intervals: Intervals = NO_INTERVALS) -> dict[str, str]:
    """Each number among metrics by its label, as "8.25 (7.91–8.60)"."""
    facts = {}
    for name, value in metrics.items():
        if isinstance(value, int | float):
            low, high = intervals.get(name, (None, None))
            interval = "" if low is None else f" ({low:.2f}–{high:.2f})"
            facts[label(name)] = f"{format_number(value)}{interval}"
    return facts
