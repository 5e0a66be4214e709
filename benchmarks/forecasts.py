"""Forecasts of `regard train` against what became of the runs: quality and time.

    python benchmarks/forecasts.py runs/a runs/b …      # folders of finished runs
    python benchmarks/forecasts.py OUT/*/*/*/run        # those of benchmarks/defaults.py --out OUT

Reads the log of each run: the forecast before it started, those at its evaluations (computed again
from their metrics), and the quality of the best model; and the time left that a run reported at
its first evaluation against the time it took. The error of a quality is relative: ln(forecast /
actual), of errors in per cent (of running text, 100 − chrF).
"""

import argparse
import json
import math
import statistics
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from harness import Check, report

from regard.training.forecast import forecast_end

LATER = (0.375, 0.5, 0.75)  # shares of the evaluations at which forecasts are compared


class Compared(NamedTuple):
    """A forecast and what happened: ln(forecast / actual), and whether it was in the range."""

    error: float
    inside: bool


def read(run: Path) -> dict[str, Any]:
    """The forecasts of a run by their share of it (0: before the start), its quality and time."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    started = next(one for one in events if one["event"] == "started")
    evaluated = [one for one in events if one["event"] == "evaluated" and one["step"]]
    planned = json.loads((run / "settings.json").read_text())["train"]["evaluations"]
    forecasts = {0.0: started["forecast"]} if "forecast" in started else {}
    history = [one["metrics"] for one in evaluated]
    for number in range(1, planned):
        found = forecast_end(history[:number], planned)
        if number <= len(history) and found is not None:
            forecasts[number / planned] = asdict(found)
    name = next(n for n in ("sequence_error_rate", "chrf") if n in evaluated[-1]["metrics"])
    values = [one["metrics"][name] for one in evaluated]
    best = 100 - max(values) if name == "chrf" else min(values)
    times = [datetime.fromisoformat(one["time"]) for one in (started, evaluated[0], evaluated[-1])]
    first, took = ((time - times[0]).total_seconds() for time in times[1:])
    expected = first * len(evaluated)  # evaluations are evenly spread; some runs stop early
    return {"forecasts": forecasts, "error": best, "expected": expected, "took": took}


def errors(forecast: dict[str, Any]) -> list[float]:
    """The low, forecast and high value of a forecast as errors in per cent."""
    found = [forecast[key] for key in ("low", "value", "high")]
    return [100 - one for one in reversed(found)] if forecast["metric"] == "chrf" else found


def compare(forecast: dict[str, Any], actual: float) -> Compared:
    """How far a forecast is off."""
    low, value, high = errors(forecast)
    return Compared(math.log(max(value, 0.1) / max(actual, 0.1)), low <= actual <= high * 1.0001)


def main() -> None:
    """Parse the command line and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    found = {str(run): read(run) for run in parser.parse_args().runs}
    print("| run | error, % | before the start | at 3/8 | at 1/2 | at 3/4 | minutes | forecast |")
    print("|---|---|---|---|---|---|---|---|")
    for name, run in found.items():
        shown = [f"{errors(run['forecasts'][at])[1]:.1f}" if at in run["forecasts"] else "–"
                 for at in (0.0, *LATER)]  # fmt: skip
        minutes = f"{run['took'] / 60:.1f} | {run['expected'] / 60:.1f}"
        print(f"| {name} | {run['error']:.1f} | {' | '.join(shown)} | {minutes} |")
    report("forecasts", checks(list(found.values())))


def checks(runs: list[dict[str, Any]]) -> list[Check]:
    """Mean absolute errors, and the share of runs within the range (eight of ten are meant to)."""
    made = [Check("runs", len(runs), None, 20, len(runs) >= 20)]
    for at, label in zip((0.0, *LATER), ("before the start", "at 3/8", "at 1/2", "at 3/4"),
                         strict=True):  # fmt: skip
        some = [compare(run["forecasts"][at], run["error"]) for run in runs
                if at in run["forecasts"]]  # fmt: skip
        if some:
            error = 100 * statistics.fmean(abs(one.error) for one in some)
            inside = 100 * statistics.fmean(one.inside for one in some)
            made.append(Check(f"quality {label}: mean error, % of it", error, None, None, ok=True))
            made.append(Check(f"quality {label}: runs within its range, %", inside, None, None,
                              ok=True))  # fmt: skip
    times = [100 * abs(math.log(run["expected"] / run["took"])) for run in runs]
    made.append(Check("time at the first evaluation: mean error, %", statistics.fmean(times), None,
                      None, ok=True))  # fmt: skip
    return made


if __name__ == "__main__":
    main()
