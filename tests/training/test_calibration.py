"""Calibration: its error against hand sums and numpy, its fit against scipy and known truth."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from regard.calibration import Calibration, confidence_terms, is_calibration
from regard.training.calibration_error import (
    calibration_error,
    error_floor,
    measure_calibration,
    reliability,
)
from regard.training.calibration_fit import (
    METHODS,
    Outcome,
    confidences,
    fit_calibration,
    fit_method,
)

TRUTH = Calibration(-0.8, 0.5, 2.0, 0.6)


def simulate(size: int, *, truth: Calibration = TRUTH, seed: int = 1) -> list[Outcome]:
    """Outputs of random log-probability and length that are right with the true confidence."""
    random = np.random.default_rng(seed)
    logps, lengths = -random.gamma(0.6, 1.5, size), random.integers(2, 20, size)
    draws = random.random(size)
    return [
        Outcome(float(logp), int(length), bool(draw < truth.confidence(logp, int(length))))
        for logp, length, draw in zip(logps, lengths, draws, strict=True)
    ]


def terms_of(outcomes: list[Outcome]) -> np.ndarray:
    return np.array([confidence_terms(one.logp, one.length) for one in outcomes])


def test_the_error_by_hand():
    # Ten bins of two: 0.9 and 1.0 sure, one of two right, so 45 points off; the others are exact.
    confidences_, right = [0.9, 1.0], [True, False]
    for _ in range(9):
        confidences_, right = [*confidences_, 0.0, 0.0], [*right, False, False]
    assert calibration_error(np.array(confidences_), np.array(right)) == pytest.approx(4.5)
    (zeros, sure) = reliability(np.array(confidences_), np.array(right))  # equal ones stay together
    assert (zeros.outputs, zeros.confidence, zeros.accuracy) == (18, 0.0, 0.0)
    assert (sure.outputs, sure.lowest, sure.highest) == (2, 90.0, 100.0)
    assert (sure.confidence, sure.accuracy) == (pytest.approx(95), pytest.approx(50))


@pytest.mark.parametrize("size", [1, 7, 10, 1_003])
def test_the_error_equals_that_of_numpy(size):
    random = np.random.default_rng(size)
    p, right = random.random(size), random.random(size) < 0.5
    order = np.argsort(p)
    cuts = [size * i // 10 for i in range(1, 10)]
    parts = [part for part in np.split(order, cuts) if len(part)]
    expected = sum(len(part) * abs(p[part].mean() - right[part].mean()) for part in parts) / size
    assert calibration_error(p, right) == pytest.approx(100 * expected)
    shuffled = random.permutation(size)
    assert calibration_error(p[shuffled], right[shuffled]) == pytest.approx(100 * expected)


def test_equal_confidences_do_not_depend_on_their_order():
    right = np.arange(100) < 30
    assert calibration_error(np.full(100, 0.4), right) == pytest.approx(10)
    assert calibration_error(np.full(100, 0.4), right[::-1]) == pytest.approx(10)


def test_the_floor_is_the_error_of_exact_confidences():
    p = np.random.default_rng(1_000).random(2_000)
    draws = [
        calibration_error(p, np.random.default_rng(seed).random(2_000) < p) for seed in range(100)
    ]
    assert error_floor(p) == pytest.approx(np.mean(draws), rel=0.05)
    assert error_floor(np.array([0.0, 1.0] * 50)) == 0


def test_known_confidences_are_recovered():
    outcomes = simulate(20_000)
    fit = fit_calibration(outcomes)
    assert fit.method == "beta with length"
    assert fit.calibration is not None
    fresh = simulate(5_000, seed=2)
    pairs = [(fit.calibration.confidence(*one[:2]), TRUTH.confidence(*one[:2])) for one in fresh]
    assert max(abs(found - true) for found, true in pairs) < 0.04
    own, right = [math.exp(one.logp) for one in fresh], [one.right for one in fresh]
    errors = measure_calibration(own, [found for found, _ in pairs], right)
    assert errors.before > 10
    assert errors.after < 2 * errors.floor
    assert fit.errors is not None
    assert fit.errors.after < 2 * fit.errors.floor


def test_exact_probabilities_stay_as_they_are():
    fit = fit_calibration(simulate(2_000, truth=Calibration(0, 1, 1)))
    assert (fit.method, fit.calibration) == ("none", Calibration(0, 1, 1))
    for logp in (-30.0, -2.0, -0.1, -1e-4):
        assert Calibration(0, 1, 1).confidence(logp, 7) == pytest.approx(math.exp(logp), rel=1e-6)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method])
def test_the_fit_has_the_largest_likelihood(name):
    """Against scipy's general minimiser, on the likelihood with Platt's targets."""
    outcomes = simulate(600)
    terms, right = terms_of(outcomes), np.array([one.right for one in outcomes])
    fitted = fit_method(METHODS[name], terms, right)
    yes, no = right.sum(), (~right).sum()
    targets = np.where(right, (yes + 1) / (yes + 2), 1 / (no + 2))

    def loss(weights: np.ndarray) -> float:
        total = terms @ (METHODS[name].columns @ weights[1:]) + weights[0]
        return float((np.logaddexp(0, total) - targets * total).sum())

    best = minimize(loss, np.zeros(1 + METHODS[name].columns.shape[1]), method="BFGS")
    total = terms @ (METHODS[name].columns @ best.x[1:]) + best.x[0]
    expected = 1 / (1 + np.exp(-total))
    assert confidences(fitted, terms) == pytest.approx(expected, abs=1e-3)
    one = outcomes[0]
    assert fitted.confidence(*one[:2]) == pytest.approx(expected[0], abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_confidence_never_falls_with_probability(seed):
    random = np.random.default_rng(seed)
    noise = [
        Outcome(-float(logp), int(length), bool(draw < 0.3 + 0.4 * (logp > 1)))
        for logp, length, draw in zip(
            random.gamma(1, 1, 300), random.integers(1, 9, 300), random.random(300), strict=True
        )
    ]  # improbable outputs are right more often
    fit = fit_calibration(noise)
    assert fit.calibration is not None
    for length in (1, 5, 40):
        row = [fit.calibration.confidence(logp, length) for logp in (-50, -5, -1, -0.1, -1e-9, 0)]
        assert row == sorted(row)
        assert 0 <= row[0] <= row[-1] <= 1
    assert fit.calibration.confidence(-math.inf, 1) == 0


def test_few_outputs_are_not_calibrated():
    short = fit_calibration(simulate(99))
    assert short.calibration is None
    assert "at least 100 held-out sources, 10 of them right and 10 wrong" in str(short.reason)
    right = [Outcome(-0.5, 3, True)] * 291 + [Outcome(-0.9, 3, False)] * 9
    few = fit_calibration(right)
    assert few.to_json()["method"] == "none"
    assert few.to_json()["reason"].endswith("291 of 300 are right")
    assert "weights" not in few.to_json()
    assert fit_calibration([*right, Outcome(-2.0, 3, False)]).calibration is not None


@pytest.mark.parametrize(
    "weights",
    [3, {}, {"intercept": 0}, {**Calibration(0, 1, 1).to_json(), "log_p": -1}]
    + [{**Calibration(0, 1, 1).to_json(), "intercept": value} for value in (1e10, True, "0", None)],
)
def test_odd_weights_on_a_card_are_refused(weights):
    assert is_calibration({"weights": Calibration(0, 1, 1).to_json()})
    assert is_calibration({"method": "none"})
    assert not is_calibration({"weights": weights})


def test_odd_errors_on_a_card_are_refused():
    fit = fit_calibration(simulate(200))
    card = fit.to_json()
    assert is_calibration(card)
    for odd in (3, {}, {**card["errors"], "bins": [3]}, {**card["errors"], "after": "low"}):
        assert not is_calibration({**card, "errors": odd})
    assert not is_calibration({**card, "outputs": "many"})
    assert not is_calibration([])
