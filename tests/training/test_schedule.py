"""Schedules, against numbers worked out by hand."""

import math

import pytest

from regard.errors import UnknownName
from regard.training.schedule import SCHEDULES, rate_factor


@pytest.mark.parametrize("name", SCHEDULES)
def test_warm_up_is_linear(name):
    assert [rate_factor(name, step, 4, 100) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cosine", [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0]),
        ("linear", [1, 0.75, 0.5, 0.25, 0]),
        ("stable", [1, 1, 1, 1, 0]),
    ],
)
def test_schedules_fall_from_the_peak_to_zero(name, expected):
    got = [rate_factor(name, step, 10, 90) for step in (10, 30, 50, 70, 90)]
    assert got == pytest.approx(expected, abs=1e-12)


def test_stable_falls_over_the_last_fifth():
    assert [rate_factor("stable", step, 0, 100) for step in (80, 85, 90, 95)] == pytest.approx(
        [1, 0.75, 0.5, 0.25]
    )


def test_inverse_sqrt_halves_in_four_times_the_steps():
    assert [rate_factor("inverse-sqrt", step, 4, 10) for step in (4, 16, 64)] == [1, 0.5, 0.25]


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warm_up_schedules_start_at_the_peak(name):
    assert rate_factor(name, 0, 0, 10) == 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_never_rise_after_warm_up(name):
    rates = [rate_factor(name, step, 5, 50) for step in range(5, 60)]
    assert rates == sorted(rates, reverse=True)
    assert min(rates) >= 0


def test_an_unknown_schedule_is_named():
    with pytest.raises(UnknownName, match="unknown schedule 'cosin'; did you mean 'cosine'"):
        rate_factor("cosin", 5, 1, 10)
