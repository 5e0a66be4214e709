"""The rows, tables and checks of benchmarks/mechanisms.py."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness import Check

from regard.attention import NORMALISERS, SCORES
from regard.positions import POSITIONS

EDGES = (5, 8, 11)  # letters: the longest word of each bucket but the last
NO_ATTENTION = "none"
# Bahdanau attends before each step, Luong after it; concat is Luong's additive score
ATTENTIONS = {
    "additive": {"attention": "bahdanau", "score": "additive"},
    "dot": {"attention": "luong", "score": "dot"},
    "general": {"attention": "luong", "score": "general"},
    "concat": {"attention": "luong", "score": "additive"},
}
KERNELS = ("boxcar", "epanechnikov", "triangular")  # defined for Gaussian scores only
AXES = ("attention", "position", "parts")
CLOSE, SEEDS = 1.0, 3  # rows closer than this, in % phone error rate, are trained with all seeds
USELESS = 50.0  # above this phone error rate a row has learned nothing; more seeds would not help

Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One row of the comparison: its axis, model family and the settings that differ."""

    axis: str
    family: str
    settings: dict[str, str]


def rows() -> dict[str, Row]:
    """Every row by name."""
    found = {NO_ATTENTION: Row("attention", "recurrent", {"attention": "none"})}
    found |= {name: Row("attention", "recurrent", parts) for name, parts in ATTENTIONS.items()}
    found |= {
        f"transformer, {name}": Row("position", "transformer", {"position": name})
        for name in POSITIONS
    }
    for score in SCORES:
        for normaliser in NORMALISERS:
            if _sensible(score, normaliser):
                settings = {"score": score, "normaliser": normaliser}
                found[f"{score} × {normaliser}"] = Row("parts", "transformer", settings)
    return found


def _sensible(score: str, normaliser: str) -> bool:
    """Uniform weights ignore the score, and the kernels read a score as a Gaussian distance."""
    if normaliser == "uniform":
        return score == "scaled-dot"
    return normaliser not in KERNELS or score == "gaussian"


def close_rows(results: Sequence[Result], close: float) -> list[str]:
    """The rows that differ from another row of their axis by less than `close` % phone errors."""
    axes: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if "error" not in result and result["phone_error_rate"] < USELESS:
            axes[result["axis"]].append(result)
    found: dict[str, None] = {}
    for group in axes.values():
        ordered = sorted(group, key=lambda result: result["phone_error_rate"])
        for first, second in pairwise(ordered):
            if second["phone_error_rate"] - first["phone_error_rate"] < close:
                found |= {first["name"]: None, second["name"]: None}
    return list(found)


def by_row(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The successful results of each row, in the order of the comparison."""
    good = [result for result in results if "error" not in result]
    grouped = {name: [one for one in good if one["name"] == name] for name in rows()}
    return {name: group for name, group in grouped.items() if group}


def mean(group: Sequence[Result], figure: str = "phone_error_rate") -> float:
    """The mean of a figure over seeds."""
    return statistics.fmean(result[figure] for result in group)


def cell(values: Sequence[float]) -> str:
    """Mean ± standard deviation over seeds; a single value alone."""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def length_table(groups: dict[str, list[Result]]) -> str:
    """A Markdown table of all rows: size, speed, error rates, phone error rate by word length."""
    spans = [f"≤ {EDGES[0]}", *(f"{a + 1}–{b}" for a, b in pairwise(EDGES)), f"≥ {EDGES[-1] + 1}"]
    columns = ["parameters", "tokens/s", "seeds", "phone error rate, %", "word error rate, %"]
    heads = ["", *columns, *(f"{span} letters" for span in spans)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, group in groups.items():
        speed = statistics.median(one["tokens"] / max(one["seconds"], 1e-9) for one in group)
        rates = [[one[key] for one in group] for key in ("phone_error_rate", "word_error_rate")]
        for bucket in range(len(spans)):
            rates.append([one["by_length"][bucket]["phone_error_rate"] for one in group])
        facts = [f"{group[0]['parameters']:,}", f"{speed:,.0f}", str(len(group))]
        lines.append("| " + " | ".join([name, *facts, *map(cell, rates)]) + " |")
    return "\n".join(lines)


def parts_table(groups: dict[str, list[Result]]) -> str:
    """A Markdown table of phone error rates: scores in rows, normalisers in columns."""
    used = [name for name in NORMALISERS if any(key.endswith(f" × {name}") for key in groups)]
    if not used:
        return ""
    lines = ["| score \\ normaliser | " + " | ".join(used) + " |", "|---" * (len(used) + 1) + "|"]
    for score in SCORES:
        found = [groups.get(f"{score} × {name}", []) for name in used]
        if any(found):
            rates = [[one["phone_error_rate"] for one in group] for group in found]
            cells = [cell(some) if some else "–" for some in rates]
            lines.append(f"| {score} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def checks(results: Sequence[Result]) -> list[Check]:
    """The claims as ratios of phone error rates, and whether every training completed."""
    good, groups = [one for one in results if "error" not in one], by_row(results)
    total = len(results)
    made = [Check("trainings completed", len(good), total, total, len(good) == total)]
    attention = [mean(groups[name]) for name in ATTENTIONS if name in groups]
    if NO_ATTENTION in groups and attention:
        times = mean(groups[NO_ATTENTION]) / max(min(attention), 1e-9)
        name = "without attention / best attention: phone error rate"
        made.append(Check(name, times, None, 1.0, times > 1))
    if NO_ATTENTION in groups and "additive" in groups:
        ratios = [
            _bucket(groups[NO_ATTENTION], bucket) / max(_bucket(groups["additive"], bucket), 1e-9)
            for bucket in (0, -1)
        ]
        name = "without attention / additive: phone error rate of the longest words"
        made.append(Check(name, ratios[1], None, ratios[0], ratios[1] > ratios[0]))
    if groups:
        best = min(groups, key=lambda name: mean(groups[name]))
        made.append(
            Check(f"best phone error rate, % ({best})", mean(groups[best]), 0.0, 100.0, True)
        )
    return made


def _bucket(group: Sequence[Result], bucket: int) -> float:
    return statistics.fmean(one["by_length"][bucket]["phone_error_rate"] for one in group)
