"""Forecasts of the quality at the end of a run: before it starts from runs on other data, later
from its own evaluations. benchmarks/forecasts.py measures how far off they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.training import metrics
from regard.training.baselines import Scores

FORECAST = ("sequence_error_rate", "chrf")  # metrics, of which a run has one

# Fitted to 125 sets of pairs (SIGMORPHON 2017 and 2020, CMUdict slices, names; docs/log.md): logit
# of the sequence error rate = CONSTANT + PAIRS · ln pairs + NEAREST · logit of the symbol error
# rate of the nearest training source.
CONSTANT, PAIRS, NEAREST = -0.17, -0.09, 1.5
UNDERTRAINED = 0.2  # added per factor of e by which the epochs fall short of those on a GPU
START_SPREAD = 1.15  # of the logit: eight of ten runs are within it
OTHER_MINUTES = (10.0, 30.0, 60.0)  # that forecasts compare with the minutes of a run
FIRST_EVALUATION = 3  # forecasts by the run itself begin here: before, curves differ too much,
FIRST_SHARE = 0.3  # or later, if there are many evaluations
SLOPE_KEPT = 0.8  # of the slope of the last evaluations
MAX_SLOPE = 0.3  # in ln error over ln steps; steeper slopes do not last
END_SPREAD = 0.5  # of ln error, times the share that is left to the power of 1.5: eight of ten runs


@dataclass(frozen=True)
class Forecast:
    """A metric at the end of a run, with the range that eight of ten runs are in."""

    metric: str
    value: float
    low: float
    high: float

    def describe(self) -> str:
        """Such as `sequence error rate about 21 (18 to 25)`."""
        span = f"{self.low:.3g} to {self.high:.3g}"
        return f"{metrics.label(self.metric)} about {self.value:.3g} ({span})"


def forecast_start(
    baselines: Scores, pairs: int, *, epochs: float, full_epochs: float
) -> Forecast | None:
    """The quality after so many epochs, by the amount of data and what the nearest training source
    predicts; None for running text. `full_epochs`: as many as a GPU would train."""
    found = baselines.get("nearest_training_source", {})
    rates = [
        found[name] for unit in metrics.TASKS.values() if (name := f"{unit}_error_rate") in found
    ]
    if not rates:
        return None
    missing = max(0.0, math.log(full_epochs / epochs))
    middle = (
        CONSTANT + PAIRS * math.log(pairs) + NEAREST * _logit(rates[0]) + UNDERTRAINED * missing
    )
    low, value, high = (_rate(middle + spread) for spread in (-START_SPREAD, 0.0, START_SPREAD))
    return Forecast("sequence_error_rate", value, low, high)


def describe_start(forecast: Callable[[float], Forecast | None], minutes: float | None) -> str:
    """The forecast of a run before it starts, and what other amounts of time would buy.

    `forecast` takes the length of a run as a multiple of this one's.
    """
    own = forecast(1.0)
    assert own is not None
    found = own.describe()
    if minutes is not None:
        found += f" after {minutes:g} minutes"
        others = {other: forecast(other / minutes) for other in OTHER_MINUTES if other != minutes}
        bought = [f"{one.value:.3g} after {other:g}" for other, one in others.items() if one]
        found += f", {', '.join(bought)}"
    return f"{found}: a rough guess; it gets better as it trains"


def forecast_end(history: Sequence[Mapping[str, Any]], evaluations: int) -> Forecast | None:
    """The best model's quality at the end of a run, by its evaluations so far (evenly spread).

    Errors fall as a power of the steps: the slope between the last two evaluations is continued.
    None if it is too early to tell, or at the end.
    """
    done = len(history)
    if not max(FIRST_EVALUATION, FIRST_SHARE * evaluations) <= done < evaluations:
        return None
    name = next((name for name in FORECAST if name in history[-1]), None)
    if name is None:  # a task of the user
        return None
    errors = [_error(name, one[name]) for one in history]
    best = min(errors)
    if best <= 0:
        return None
    slope = math.log(errors[-2] / errors[-1]) / math.log(done / (done - 1))
    kept = SLOPE_KEPT * min(MAX_SLOPE, max(0.0, slope))
    value = best * (done / evaluations) ** kept
    spread = END_SPREAD * (1 - done / evaluations) ** 1.5
    bounds = (value * math.exp(-spread), min(best, value * math.exp(spread)))
    low, high = sorted(_error(name, one) for one in bounds)
    return Forecast(name, _error(name, value), low, high)


def _error(name: str, value: float) -> float:
    """A metric as an error in per cent, and back: 100 − x where higher is better."""
    return 100 - value if metrics.METRICS[name].higher else value


def _logit(rate: float) -> float:
    share = min(0.99, max(0.005, rate / 100))
    return math.log(share / (1 - share))


def _rate(logit: float) -> float:
    return 100 / (1 + math.exp(-logit))
