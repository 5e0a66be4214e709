"""Scores and kernels against scikit-learn, SciPy and statsmodels."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import cosine_similarity, polynomial_kernel, rbf_kernel
from sklearn.neighbors import KernelDensity
from statsmodels.sandbox.nonparametric import kernels

from regard import attend
from regard.attention.normalisers import NORMALISERS, Unnormalised
from regard.attention.scores import Cosine, Dot, Gaussian, General, ScaledDot, Score

QUERIES, KEYS, DIM = 5, 7, 3
BANDWIDTH = 1.7


def points(dim: int = DIM) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    return random.normal(size=(QUERIES, dim)), random.normal(size=(KEYS, dim))


def ours(
    score: Score, queries: np.ndarray, keys: np.ndarray, normaliser: str | None = None
) -> np.ndarray:
    """The scores, or the weights: what an attention to the unit vectors brings back."""
    q, k = (torch.tensor(x)[None, None] for x in (queries, keys))
    chosen = Unnormalised() if normaliser is None else NORMALISERS[normaliser]()
    units = torch.eye(len(keys), dtype=torch.float64)[None, None]
    return (
        attend(q, k, units, score=score, normaliser=chosen, backend="reference")[0, 0]
        .detach()
        .numpy()
    )


def test_cosine_matches_scikit_learn():
    q, k = points()
    np.testing.assert_allclose(ours(Cosine(1, DIM), q, k), cosine_similarity(q, k))
    np.testing.assert_allclose(
        ours(Cosine(1, DIM, scale=4.0), q, k), 4 * (1 - cdist(q, k, "cosine"))
    )


def test_dot_matches_scikit_learn_linear_kernel():
    q, k = points()
    plain = polynomial_kernel(q, k, degree=1, gamma=1, coef0=0)
    np.testing.assert_allclose(ours(Dot(1, DIM), q, k), plain)
    np.testing.assert_allclose(ours(ScaledDot(1, DIM), q, k), plain / np.sqrt(DIM))


def test_general_matches_scipy_mahalanobis():
    """qᵀWk = (‖q‖²_W + ‖k‖²_W − ‖q − k‖²_W) / 2 for symmetric W."""
    q, k = points()
    score = General(1, DIM).double()
    half = np.random.default_rng(2).normal(size=(DIM, DIM))
    form = half @ half.T
    with torch.no_grad():
        score.weight.copy_(torch.tensor(form))
    zero = np.zeros((1, DIM))
    lengths = [cdist(x, zero, "mahalanobis", VI=form) ** 2 for x in (q, k)]
    expected = (lengths[0] + lengths[1].T - cdist(q, k, "mahalanobis", VI=form) ** 2) / 2
    np.testing.assert_allclose(ours(score, q, k), expected)


def test_gaussian_matches_scikit_learn_rbf():
    q, k = points()
    kernel = rbf_kernel(q, k, gamma=1 / (2 * BANDWIDTH**2))
    np.testing.assert_allclose(np.exp(ours(Gaussian(1, DIM, bandwidth=BANDWIDTH), q, k)), kernel)
    weights = ours(Gaussian(1, DIM, bandwidth=BANDWIDTH), q, k, "softmax")
    np.testing.assert_allclose(weights, kernel / kernel.sum(1, keepdims=True))


DENSITIES = {
    "softmax": "gaussian",
    "boxcar": "tophat",
    "epanechnikov": "epanechnikov",
    "triangular": "linear",
}


@pytest.mark.parametrize("normaliser", DENSITIES)
def test_weights_match_scikit_learn_kernel_density(normaliser: str):
    """A key's density is its kernel; divided by the sum over all keys it is its weight."""
    q, k = points()
    density = KernelDensity(kernel=DENSITIES[normaliser], bandwidth=BANDWIDTH)
    columns = np.stack([np.exp(density.fit(key[None]).score_samples(q)) for key in k], axis=1)
    assert normaliser == "softmax" or (columns == 0).any()  # some keys are out of reach
    expected = columns / columns.sum(1, keepdims=True)
    np.testing.assert_allclose(
        ours(Gaussian(1, DIM, bandwidth=BANDWIDTH), q, k, normaliser), expected, atol=1e-12
    )


SHAPES = {
    "softmax": "Gaussian",
    "boxcar": "Uniform",
    "epanechnikov": "Epanechnikov",
    "triangular": "Triangular",
}


@pytest.mark.parametrize("normaliser", SHAPES)
def test_pooling_matches_statsmodels(normaliser: str):
    """Σ weightᵢ yᵢ on a line, where statsmodels smooths y at a point x."""
    keys = np.linspace(-2, 2, KEYS)
    places = np.array([-1.9, -0.4, 0.15, 1.3, 1.71])
    values = np.sin(3 * keys)
    kernel = getattr(kernels, SHAPES[normaliser])(h=BANDWIDTH / 2)
    expected = [kernel.smooth(keys, values, place) for place in places]
    weights = ours(
        Gaussian(1, 1, bandwidth=BANDWIDTH / 2), places[:, None], keys[:, None], normaliser
    )
    np.testing.assert_allclose(weights @ values, expected, atol=1e-12)


def test_uniform_is_the_mean():
    q, k = points()
    np.testing.assert_allclose(
        ours(Dot(1, DIM), q, k, "uniform"), np.full((QUERIES, KEYS), 1 / KEYS)
    )
