"""NadarayaWatson by hand: kernels, bandwidths, unsupported queries and memory."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from regard import pooling
from regard.errors import RegardError, UnknownName
from regard.pooling import KERNELS, NadarayaWatson

FORMULAS = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "boxcar": lambda u: 1.0 * (u <= 1),
    "epanechnikov": lambda u: np.maximum(0, 1 - u**2),
    "triangular": lambda u: np.maximum(0, 1 - u),
    "constant": lambda u: np.ones_like(u),
}


def formula(kernel, points, queries, bandwidth):
    distance = np.sqrt((((queries[:, None] - points[None]) / bandwidth) ** 2).sum(-1))
    parts = FORMULAS[kernel](distance)
    return parts / parts.sum(-1, keepdims=True)


def data(count: int = 23, features: int = 2):
    generator = np.random.default_rng(0)
    points = generator.uniform(-1, 1, (count, features))
    return (
        points,
        np.stack([points.sum(1), np.sin(4 * points[:, 0])], 1),
        generator.uniform(-1, 1, (11, features)),
    )


def leave_one_out(kernel, points, y, bandwidth):
    """The mean squared error of predicting each point from the others, one point at a time."""
    others = [np.arange(len(points)) != i for i in range(len(points))]
    predictions = [
        formula(kernel, points[o], points[i : i + 1], bandwidth)[0] @ y[o]
        for i, o in enumerate(others)
    ]
    return ((np.array(predictions) - y) ** 2).mean()


def test_every_kernel_has_a_formula_here():
    assert set(FORMULAS) == set(KERNELS)


@pytest.mark.parametrize("kernel", FORMULAS)
@pytest.mark.parametrize("bandwidth", [1.1, [0.9, 1.4]])
def test_weights_and_predictions_follow_the_formula(kernel, bandwidth):
    points, y, queries = data()
    model = NadarayaWatson(kernel, bandwidth).fit(points, y)
    weights = formula(kernel, points, queries, np.array(bandwidth))
    np.testing.assert_allclose(model.weights(queries), weights, atol=1e-12)
    np.testing.assert_allclose(model.predict(queries), weights @ y, atol=1e-12)
    np.testing.assert_allclose(
        model.fit(points, y[:, 0]).predict(queries), weights @ y[:, 0], atol=1e-12
    )


def test_weights_by_hand():
    points, y = np.array([[0.0], [1.0], [3.0]]), np.array([10.0, 20.0, 40.0])
    query = np.array([[1.0]])
    by_hand = {
        "boxcar": [1 / 2, 1 / 2, 0],  # the boundary is included
        "epanechnikov": [0, 1, 0],
        "triangular": [0, 1, 0],
        "constant": [1 / 3, 1 / 3, 1 / 3],
    }
    for kernel, weights in by_hand.items():
        model = NadarayaWatson(kernel, 1.0).fit(points, y)
        np.testing.assert_allclose(model.weights(query)[0], weights, atol=1e-15)
        np.testing.assert_allclose(model.predict(query), np.dot(weights, y))
    np.testing.assert_allclose(
        NadarayaWatson("triangular", 4.0).fit(points, y).weights(query)[0], np.array([3, 4, 2]) / 9
    )


def test_gaussian_supports_distant_queries():
    model = NadarayaWatson(bandwidth=0.1).fit([[0.0], [1.0]], [5.0, 7.0])
    assert model.predict([[1e6]]) == [7.0]  # the kernels underflow, their ratios do not


@pytest.mark.parametrize("kernel", ["boxcar", "epanechnikov", "triangular"])
def test_query_without_support_is_nan_with_a_warning(kernel, monkeypatch):
    monkeypatch.setattr(pooling, "_MAX_ENTRIES", 3)  # one query at a time
    model = NadarayaWatson(kernel, 0.5).fit([[0.0], [1.0]], [5.0, 7.0])
    with pytest.warns(RuntimeWarning) as caught:
        prediction = model.predict([[9.0], [0.1], [-9.0]])
    np.testing.assert_equal(prediction, [np.nan, 5.0, np.nan])
    assert [str(warning.message) for warning in caught] == [
        "2 of 3 queries have no training point within bandwidth 0.5 "
        "and are NaN; use a larger bandwidth or kernel='gaussian'"
    ]
    np.testing.assert_equal(model.weights([[9.0], [0.1]]), [[0, 0], [1, 0]])


@pytest.mark.parametrize("kernel", ["gaussian", "boxcar", "epanechnikov", "triangular"])
def test_leave_one_out_minimises_the_error(kernel, monkeypatch):
    monkeypatch.setattr(pooling, "_MAX_ENTRIES", 200)  # four points at a time
    points, y, _ = data()
    found = NadarayaWatson(kernel, "leave-one-out").fit(points, y).bandwidth_
    with np.errstate(invalid="ignore"):  # 0/0 where a point has no neighbour
        errors = [
            leave_one_out(kernel, points, y, bandwidth) for bandwidth in np.geomspace(0.01, 5, 400)
        ]
    assert leave_one_out(kernel, points, y, found) <= np.nanmin(errors) * (
        1.00001 if kernel == "gaussian" else 1.01
    )  # the others are not smooth


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov", "triangular"])
def test_gradient_finds_a_minimum(kernel, monkeypatch):
    monkeypatch.setattr(pooling, "_MAX_ENTRIES", 200)
    points, y, _ = data()
    found = NadarayaWatson(kernel, "gradient").fit(points, y).bandwidth_
    assert isinstance(found, float)
    here = leave_one_out(kernel, points, y, found)
    with np.errstate(invalid="ignore"):  # 0/0 where a point has no neighbour
        around = [
            leave_one_out(kernel, points, y, found * factor)
            for factor in (0.98, 0.995, 1.005, 1.02)
        ]
    assert here <= np.nanmin(around)
    assert not np.isnan(around[2:]).any()


def test_bandwidths_per_feature_scale_with_units():
    points, y, _ = data(40)
    units = np.array([1e-3, 1e4])
    found = NadarayaWatson(bandwidth="gradient-per-feature").fit(points, y).bandwidth_
    again = NadarayaWatson(bandwidth="gradient-per-feature").fit(points * units, 1e5 * y).bandwidth_
    np.testing.assert_allclose(again, found * units, rtol=1e-4)


def test_constant_feature():
    points, y, _ = data()
    points = np.c_[points, np.full(len(points), 3.0)]
    model = NadarayaWatson(bandwidth="gradient-per-feature").fit(points, y)
    assert np.isfinite(model.bandwidth_).all()
    assert model.score(points, y) > 0.5


@pytest.mark.parametrize("bandwidth", ["leave-one-out", "gradient", "gradient-per-feature"])
@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
def test_repeated_points_and_constant_targets(kernel, bandwidth):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = NadarayaWatson(kernel, bandwidth).fit([[2.0], [2.0], [2.0]], [1.0, 2.0, 6.0])
        assert same.predict([[2.0]]) == [3.0]
        flat = NadarayaWatson(kernel, bandwidth).fit([[1.0], [1.0], [2.0], [5.0]], [4.0] * 4)
        np.testing.assert_allclose(flat.predict([[1.0], [5.0]]), [4.0, 4.0])


def test_prediction_never_builds_the_whole_map(monkeypatch):
    sizes = []
    scores = pooling._scores
    monkeypatch.setattr(
        pooling, "_scores", lambda q, k: sizes.append(q.numel() * len(k)) or scores(q, k)
    )
    generator = np.random.default_rng(0)
    points = generator.uniform(size=(3000, 2))
    prediction = (
        NadarayaWatson(bandwidth=0.1)
        .fit(points, points[:, 0])
        .predict(generator.uniform(size=(2000, 2)))
    )
    assert prediction.shape == (2000,)
    assert (len(sizes), max(sizes) <= pooling._MAX_ENTRIES, sum(sizes)) == (
        3,
        True,
        2000 * 3000 * 2,
    )


def test_computes_in_double_precision():
    model = NadarayaWatson(bandwidth=1.0).fit(np.float32([[0], [1]]), [1, 2])
    assert (model.predict([[0.5]]).dtype, model.weights([[0.5]]).dtype) == (np.float64, np.float64)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    "wrong", [0, -1.0, float("nan"), float("inf"), [1.0, 2.0, 3.0], [1.0, -2.0], None, {}]
)
def test_invalid_bandwidth_is_named(wrong):
    points, y, _ = data()
    with pytest.raises(RegardError) as error:
        NadarayaWatson(bandwidth=wrong).fit(points, y)
    assert str(error.value) == (
        "bandwidth must be a positive number, 2 of them (one per feature), or one of "
        f"'leave-one-out', 'gradient', 'gradient-per-feature'; got {wrong!r}"
    )


def test_errors_name_the_mistake():
    points, y, _ = data()
    with pytest.raises(UnknownName, match=r"^unknown kernel 'gausian'; did you mean 'gaussian'\?$"):
        NadarayaWatson("gausian").fit(points, y)
    with pytest.raises(
        UnknownName, match=r"^unknown kernel '7'; choose from 'boxcar', 'constant', 'epanechnikov'"
    ):
        NadarayaWatson(7).fit(points, y)
    with pytest.raises(
        UnknownName, match=r"^unknown bandwidth 'gradients'; did you mean 'gradient'\?$"
    ):
        NadarayaWatson(bandwidth="gradients").fit(points, y)
    with pytest.raises(
        RegardError, match=r"^bandwidth='gradient' needs at least 2 points; got n_samples=1$"
    ):
        NadarayaWatson(bandwidth="gradient").fit(points[:1], y[:1])
    with pytest.raises(
        RegardError,
        match=r"^the squared distance between points overflows; scale the features down",
    ):
        NadarayaWatson().fit([[1e200], [-1e200]], [1.0, 2.0])
    for kernel in ("boxcar", "constant"):
        message = f"^kernel '{kernel}' has no gradient; use bandwidth='leave-one-out'$"
        with pytest.raises(RegardError, match=message):
            NadarayaWatson(kernel, "gradient").fit(points, y)


def test_fit_copies_the_points():
    points, values = np.arange(6.0)[:, None], np.arange(6.0)
    model = NadarayaWatson(bandwidth=1.0).fit(points, values)
    before = model.predict(np.array([[2.0]]))
    points += 5
    assert model.predict(np.array([[2.0]])) == before


def leave_one_out_error(
    kernel: str, points: np.ndarray, values: np.ndarray, bandwidth: float
) -> float:
    """The squared error of predicting each point from the others, with the public estimator."""
    wrong = 0.0
    for i in range(len(points)):
        others = NadarayaWatson(kernel, bandwidth=bandwidth).fit(
            np.delete(points, i, 0), np.delete(values, i)
        )
        wrong += (others.predict(points[i : i + 1])[0] - values[i]) ** 2
    return wrong


@pytest.mark.parametrize("kernel", ["boxcar", "epanechnikov", "triangular"])
def test_bandwidth_of_kernels_with_finite_support(kernel):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(25 + seed, 1))
        values = np.sin(2 * points[:, 0]) + 0.2 * rng.normal(size=len(points))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = NadarayaWatson(kernel).fit(points, values).bandwidth_
        least = (abs(points - points.T) + 1e9 * np.eye(len(points))).min(1).max() * (1 + 1e-9)
        assert leave_one_out_error(kernel, points, values, found) <= leave_one_out_error(
            kernel, points, values, least
        ) * (1 + 1e-6)


def test_arrays_of_any_memory_layout():
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0)
    for bandwidth in (0.3, "leave-one-out"):
        whole = NadarayaWatson(bandwidth=bandwidth).fit(x.copy(), y)
        turned = NadarayaWatson(bandwidth=bandwidth).fit(x[::-1], y[::-1])
        np.testing.assert_allclose(turned.predict(x[::-1]), whole.predict(x)[::-1], rtol=1e-6)


def test_fitted_bandwidth_is_a_copy():
    bandwidth = np.array([1.0, 1.0])
    made = NadarayaWatson(bandwidth=bandwidth).fit(np.eye(2), [0.0, 1.0])
    bandwidth *= 5
    assert made.bandwidth_.tolist() == [1.0, 1.0]


def test_query_whose_distance_overflows():
    made = NadarayaWatson(bandwidth=1e-3).fit([[0.0], [1.0]], [0.0, 1.0])
    assert made.weights([[1e152], [0.5]]).tolist() == [[0.0, 0.0], [0.5, 0.5]]
    with pytest.warns(RuntimeWarning, match=r"use a larger bandwidth$"):
        assert np.isnan(made.predict([[1e152]])).all()


@pytest.mark.parametrize("module", ["sklearn", "scipy"])
def test_the_missing_extra_is_named(module):
    code = f"""
import sys
sys.modules[{module!r}] = None
import regard
try:
    regard.pooling
except regard.RegardError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "regard.pooling builds on scikit-learn, which is missing; pip install 'regard[pooling]'\n"
    )
