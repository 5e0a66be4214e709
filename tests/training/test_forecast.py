"""Forecasts of a run's quality: its curve continued as a power of the steps, carefully."""

import math

import pytest

from regard.training.forecast import Forecast, describe_start, forecast_end, forecast_start

NEAREST = {"nearest_training_source": {"phone_error_rate": 40.0, "sequence_error_rate": 98.0}}


def curve(values, name="sequence_error_rate"):
    return [{"step": i + 1, name: value} for i, value in enumerate(values)]


def test_a_power_of_the_steps_is_continued():
    rates = [80 * (i / 8) ** -0.1 for i in range(1, 9)]
    found = forecast_end(curve(rates[:4]), 8)
    assert found.value == pytest.approx(80 * 2 ** (0.2 * 0.1), rel=1e-9)  # 0.8 of the slope is kept
    assert found.low < rates[-1] < found.high


def test_a_plateau_stays_where_it_is():
    found = forecast_end(curve([50.0, 20.0, 20.0, 21.0]), 8)
    assert (found.value, found.high) == (20.0, 20.0)  # the best model is kept
    assert found.low == pytest.approx(20 * math.exp(-0.5 * 0.5**1.5))


def test_the_range_narrows_as_a_run_goes_on():
    early, late = (forecast_end(curve([20.0] * done), 8) for done in (3, 6))
    assert early.low < late.low < late.value == early.value == 20.0


def test_steep_starts_do_not_last():
    steep = forecast_end(curve([90.0, 60.0, 20.0]), 8)
    assert steep.value == pytest.approx(20 * (3 / 8) ** 0.24)


def test_scores_of_text_rise():
    found = forecast_end(curve([40.0, 50.0, 55.0], "chrf"), 8)
    assert 55 <= found.low < found.value < found.high < 100
    assert found.describe().startswith("chrF about ")


@pytest.mark.parametrize(
    ("values", "evaluations"),
    [([50.0, 40.0], 8), ([50.0, 40.0, 30.0], 3), ([9.0] * 5, 40), ([1.0, 0.0, 0.0], 8)],
)
def test_no_forecast_too_early_at_the_end_or_without_errors(values, evaluations):
    assert forecast_end(curve(values), evaluations) is None


def test_metrics_of_users_are_not_forecast():
    assert forecast_end(curve([3.0, 2.0, 1.0], "mine"), 8) is None


def test_more_pairs_more_time_and_easier_data_help():
    def rate(nearest=40.0, pairs=3_000, epochs=40.0):
        scores = {"nearest_training_source": {"phone_error_rate": nearest}}
        return forecast_start(scores, pairs, epochs=epochs, full_epochs=40.0).value

    assert rate(pairs=30_000) < rate() < rate(epochs=4.0)
    assert rate(nearest=20.0) < rate() == rate(epochs=80.0)


def test_running_text_has_no_forecast_before_it_starts():
    scores = {"nearest_training_source": {"chrf": 20.0, "bleu": 3.0}}
    assert forecast_start(scores, 3_000, epochs=40.0, full_epochs=40.0) is None


def test_the_forecast_is_the_logistic_of_a_sum():
    found = forecast_start(NEAREST, 3_600, epochs=10.0, full_epochs=40.0)
    odds = math.exp(-0.17 - 0.09 * math.log(3_600) + 0.2 * math.log(4)) * (40 / 60) ** 1.5
    assert found.value == pytest.approx(100 * odds / (1 + odds), rel=1e-9)
    assert found.low < found.value < found.high


def test_a_run_of_some_minutes_says_what_more_time_buys():
    def at(share):
        return Forecast("sequence_error_rate", 30 / share, 24 / share, 36 / share)

    span = "sequence error rate about 30 (24 to 36)"
    guess = ": a rough guess; it gets better as it trains"
    assert describe_start(at, 10.0) == f"{span} after 10 minutes, 10 after 30, 5 after 60{guess}"
    assert describe_start(at, 5.0) == (
        f"{span} after 5 minutes, 15 after 10, 5 after 30, 2.5 after 60{guess}"
    )
    assert describe_start(at, None) == span + guess
