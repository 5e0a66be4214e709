"""`regard sweep`: trainings over a grid or a random sample of settings × seeds, resumable."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.commands.formats import format_table
from regard.config import read_toml
from regard.disk import write_atomically
from regard.errors import RegardError, suggestion
from regard.reports.markup import sweep_page
from regard.seeds import train_seeds
from regard.training import metrics
from regard.training.interruption import Interrupted

KEYS = ("data", "held_out", "out", "seeds", "trials", "seed", "fixed", "grid", "random")
Trial = dict[str, Any]  # values of settings by dotted name


@dataclass(frozen=True)
class SweepPlan:
    """A sweep file: data, fixed settings, the settings of each trial, and the number of seeds."""

    data: list[str]
    out: Path
    trials: list[Trial]
    held_out: list[str] | None = None
    seeds: int = 1
    fixed: Trial = field(default_factory=dict)


@dataclass(frozen=True)
class TrialResult:
    """A trial with the mean and spread of each metric over its seeds, or its error."""

    settings: Trial
    scores: dict[str, tuple[float, float]]
    error: str = ""


def sweep(file: Path, *, device: str, command: Sequence[str]) -> None:
    """Run all trials of a sweep file, and print and write the results, the best first."""
    plan = read_sweep(file)
    results = []
    for number, trial in enumerate(plan.trials, 1):
        shown = ", ".join(f"{name}={value}" for name, value in trial.items())
        print(f"trial {number} of {len(plan.trials)}: {shown}", file=sys.stderr)
        settings: dict[str, Any] = {**group({**plan.fixed, **trial})}
        try:
            found = train_seeds(
                plan.data,
                plan.out / f"trial-{number}",
                plan.seeds,
                ensemble=False,
                held_out=plan.held_out,
                device=device,
                command=command,
                **settings,
            )
            results.append(TrialResult(trial, found.summary()))
        except Interrupted:
            raise
        except RegardError as error:
            results.append(TrialResult(trial, {}, str(error)))
    ordered = sort_results(results)
    head, rows = tabulate(ordered)
    lines = ["\t".join(row) for row in (head, *rows)]
    write_atomically(plan.out / "sweep.tsv", "\n".join(lines) + "\n")
    write_atomically(plan.out / "sweep.html", sweep_page(file.stem, head, rows, _bars(ordered)))
    print(format_table(head, rows, left=len(head)))
    print(f"\n{plan.out / 'sweep.tsv'}, {plan.out / 'sweep.html'}")


def read_sweep(file: Path) -> SweepPlan:
    """Read and check a sweep file."""
    values = read_toml(file)
    for key in values:
        if key not in KEYS:
            raise RegardError(f"unknown key {key!r} in {str(file)!r}; {suggestion(key, KEYS)}")
    if "data" not in values or ("grid" in values) == ("random" in values):
        raise RegardError(f"{str(file)!r} needs data, and either [grid] or [random]")
    if "grid" in values:
        trials = list(grid(flatten(values["grid"])))
    else:
        space, draw = flatten(values["random"]), random.Random(int(values.get("seed", 1)))
        trials = [sample(space, draw) for _ in range(int(values.get("trials", 10)))]
    return SweepPlan(
        data=_as_list(values["data"]),
        out=Path(values.get("out", f"runs/{file.stem}")),
        trials=trials,
        held_out=_as_list(values["held_out"]) if "held_out" in values else None,
        seeds=int(values.get("seeds", 1)),
        fixed=flatten(values.get("fixed", {})),
    )


def grid(space: dict[str, Any]) -> Iterator[Trial]:
    """Every combination of the values of each setting."""
    for name, choices in space.items():
        if not isinstance(choices, list):
            raise RegardError(f"{name} in [grid] must be a list of values; got {choices!r}")
    for values in itertools.product(*space.values()):
        yield dict(zip(space, values, strict=True))


def sample(space: dict[str, Any], draw: random.Random) -> Trial:
    """A random value of each setting: one of a list, or from {low, high, log}."""
    trial = {}
    for name, choices in space.items():
        if isinstance(choices, list):
            trial[name] = draw.choice(choices)
        elif isinstance(choices, dict) and {"low", "high"} <= choices.keys():
            low, high = choices["low"], choices["high"]
            if choices.get("log"):
                trial[name] = math.exp(draw.uniform(math.log(low), math.log(high)))
            elif isinstance(low, int) and isinstance(high, int):
                trial[name] = draw.randint(low, high)
            else:
                trial[name] = draw.uniform(low, high)
        else:
            raise RegardError(
                f"{name} in [random] must be a list or {{low, high, log}}; got {choices!r}"
            )
    return trial


def flatten(groups: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted name: {"model": {"width": [64]}} becomes {"model.width": [64]}."""
    flat: dict[str, Any] = {}
    for group_name, values in groups.items():
        if group_name not in ("model", "text", "train") or not isinstance(values, dict):
            raise RegardError(f"expected settings such as train.steps; got {group_name!r}")
        flat |= {f"{group_name}.{name}": value for name, value in values.items()}
    return flat


def group(flat: Trial) -> dict[str, dict[str, Any]]:
    """Settings by group, the inverse of `flatten`."""
    groups: dict[str, dict[str, Any]] = {"model": {}, "text": {}, "train": {}}
    for name, value in flat.items():
        group_name, _, key = name.partition(".")
        groups[group_name][key] = value
    return groups


def sort_results(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The best trial first, failed ones last."""

    def key(result: TrialResult) -> tuple[bool, float]:
        if not result.scores:
            return True, 0.0
        _, value, higher = metrics.primary_metric(_means(result))
        return False, -value if higher else value

    return sorted(results, key=key)


def tabulate(results: Sequence[TrialResult]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of results."""
    settings = list(dict.fromkeys(name for result in results for name in result.settings))
    names = list(next((result.scores for result in results if result.scores), {}))
    head = [*settings, *(metrics.label(name) for name in names)]
    rows = []
    for result in results:
        cells = [_shown(result.settings.get(name, "")) for name in settings]
        scores = [f"{mean:.2f} ± {std:.2f}" for mean, std in result.scores.values()]
        rows.append([*cells, *(scores or [result.error, *[""] * (len(names) - 1)])])
    return head, rows


def _bars(results: Sequence[TrialResult]) -> tuple[str, list[tuple[str, float, str]]]:
    """The primary metric of each trial, for the plot."""
    done = [result for result in results if result.scores]
    if not done:
        return "", []
    name = metrics.primary_metric(_means(done[0]))[0]
    bars = []
    for result in done:
        label = ", ".join(map(_shown, result.settings.values()))
        bars.append((label, result.scores[name][0], "model"))
    return metrics.label(name), bars


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _means(result: TrialResult) -> dict[str, float]:
    return {name: mean for name, (mean, _) in result.scores.items()}


def _as_list(paths: Any) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)
