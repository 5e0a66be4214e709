"""NadarayaWatson against scikit-learn's estimator checks, statsmodels, and attend."""

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from statsmodels.nonparametric.kernel_regression import KernelReg

from regard.attention import attend
from regard.attention.scores import Gaussian
from regard.pooling import KERNELS, NadarayaWatson

pytestmark = pytest.mark.filterwarnings(
    "ignore:After 0.17:FutureWarning"
)  # statsmodels' plan for its random numbers


@parametrize_with_checks(
    [NadarayaWatson(), NadarayaWatson(bandwidth=1.0), NadarayaWatson(bandwidth="gradient")]
)
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


def data(count: int = 60, features: int = 1, seed: int = 0):
    generator = np.random.default_rng(seed)
    points = generator.uniform(-2, 2, (count, features))
    return (
        points,
        np.sin(2 * points).sum(1) + 0.3 * generator.standard_normal(count),
        generator.uniform(-2, 2, (17, features)),
    )


@pytest.mark.parametrize("bandwidth", [0.2, 1.3])
@pytest.mark.parametrize("features", [1, 3])
def test_matches_statsmodels_local_constant(features, bandwidth):
    points, y, queries = data(features=features)
    theirs = KernelReg(y, points, "c" * features, reg_type="lc", bw=[bandwidth] * features).fit(
        queries
    )[0]
    ours = NadarayaWatson(bandwidth=bandwidth).fit(points, y).predict(queries)
    np.testing.assert_allclose(ours, theirs, atol=1e-8, rtol=0)


def test_matches_statsmodels_with_many_bandwidths():
    points, y, queries = data(features=3)
    theirs = KernelReg(y, points, "ccc", reg_type="lc", bw=[0.3, 0.8, 2.0]).fit(queries)[0]
    ours = NadarayaWatson(bandwidth=[0.3, 0.8, 2.0]).fit(points, y).predict(queries)
    np.testing.assert_allclose(ours, theirs, atol=1e-8, rtol=0)


def cross_validation(points, y):
    """Statsmodels' leave-one-out error as a function of the bandwidths."""
    features = points.shape[1]
    regression = KernelReg(y, points, "c" * features, reg_type="lc", bw=[1.0] * features)
    return lambda bandwidth: regression.cv_loo(
        np.broadcast_to(bandwidth, features), regression.est["lc"]
    )


@pytest.mark.parametrize("bandwidth", ["leave-one-out", "gradient"])
def test_bandwidth_minimises_leave_one_out_error(bandwidth):
    points, y, _ = data(40)
    error = cross_validation(points, y)
    found = NadarayaWatson(bandwidth=bandwidth).fit(points, y).bandwidth_
    everywhere = np.geomspace(0.02, 8, 60)
    assert error(found) <= min(map(error, everywhere))
    assert error(found) < min(error(found * 1.01), error(found / 1.01))


def test_bandwidths_per_feature_reduce_the_error():
    points, y, _ = data(40, features=2)
    y = np.sin(2 * points[:, 0])  # the second feature means nothing
    error = cross_validation(points, y)
    one = NadarayaWatson(bandwidth="leave-one-out").fit(points, y).bandwidth_
    each = NadarayaWatson(bandwidth="gradient-per-feature").fit(points, y).bandwidth_
    assert error(each) < 0.5 * error(one)
    assert each[1] > 4 * each[0]
    for feature in range(2):
        for factor in (1.05, 1 / 1.05):
            moved = each.copy()
            moved[feature] *= factor
            assert error(moved) > error(each) * (1 - 1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_pooling_equals_attend(kernel):
    points, y, queries = data(features=3)
    ours = NadarayaWatson(kernel, bandwidth=2.5).fit(points, y).predict(queries)
    q, k, v = (torch.tensor(array)[None, None] for array in (queries, points, y[:, None]))
    truth = attend(
        q,
        k,
        v,
        score=Gaussian(1, 3, bandwidth=2.5),
        normaliser=KERNELS[kernel],
        backend="reference",
    )
    np.testing.assert_allclose(ours, truth[0, 0, :, 0].numpy(), atol=1e-12)


def test_works_in_scikit_learn_pipelines():
    points, y, queries = data()
    search = GridSearchCV(NadarayaWatson(), {"bandwidth": [0.01, 0.2, 50.0]}).fit(points, y)
    assert search.best_params_ == {"bandwidth": 0.2}
    assert make_pipeline(StandardScaler(), NadarayaWatson()).fit(points, y).predict(
        queries
    ).shape == (17,)
