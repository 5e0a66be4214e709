"""Normalisers against SciPy: softmax, a root finder, and an optimiser of their objective."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import torch

from regard.attention.normalisers import Entmax, Normaliser, Positive, Softmax, Sparsemax

ROWS, KEYS = 5, 7
ALLOWED = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 0, 1, 0, 1, 1, 0],
        [0, 0, 0, 1, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0] * 7,
    ],
    dtype=bool,
)
SPREADS = pytest.mark.parametrize("spread", [0.1, 1.0, 20.0])


def ours(normaliser: Normaliser, scores: np.ndarray, allowed: np.ndarray = ALLOWED) -> np.ndarray:
    rows = torch.tensor(scores)[None, None], torch.tensor(allowed)[None, None]
    return normaliser(*rows)[0, 0].numpy()


def rowwise(share, scores: np.ndarray) -> np.ndarray:
    """Apply a function to the allowed scores of each row; all other weights are 0."""
    weights = np.zeros_like(scores)
    for i, allowed in enumerate(ALLOWED):
        if allowed.any():
            weights[i, allowed] = share(scores[i, allowed])
    return weights


def scores(spread: float) -> np.ndarray:
    return np.random.default_rng(0).normal(0, spread, (ROWS, KEYS))


@pytest.mark.parametrize("spread", [0.1, 1.0, 20.0, 3000.0])
def test_softmax(spread: float):
    z = scores(spread)
    np.testing.assert_allclose(
        ours(Softmax(), z), rowwise(scipy.special.softmax, z), rtol=1e-12, atol=1e-300
    )


PHI = {
    "exp": np.exp,
    "softplus": lambda z: np.logaddexp(0, z),
    "sigmoid": scipy.special.expit,
    "relu": lambda z: np.maximum(z, 0),
    "elu": lambda z: np.where(z > 0, z + 1, np.exp(np.minimum(z, 0))),
}


@SPREADS
@pytest.mark.parametrize("phi", PHI)
def test_positive(phi: str, spread: float):
    def share(z: np.ndarray) -> np.ndarray:
        parts = PHI[phi](z)
        return parts / parts.sum() if parts.sum() else parts

    z = scores(spread)
    np.testing.assert_allclose(ours(Positive(phi), z), rowwise(share, z), rtol=1e-6, atol=1e-12)


def projected(z: np.ndarray) -> np.ndarray:
    """Projection onto the simplex: the support whose own solution is feasible."""
    for size in range(1, len(z) + 1):
        for support in itertools.combinations(range(len(z)), size):
            inside = np.isin(np.arange(len(z)), support)
            threshold = (z[inside].sum() - 1) / size
            if (z[inside] > threshold).all() and (z[~inside] <= threshold).all():
                return np.where(inside, z - threshold, 0)
    raise AssertionError("one support always fits")


@SPREADS
def test_sparsemax_projects_onto_the_simplex(spread: float):
    z = scores(spread)
    np.testing.assert_allclose(ours(Sparsemax(), z), rowwise(projected, z), rtol=1e-12, atol=1e-12)


def test_sparsemax_matches_slsqp():
    def nearest(z: np.ndarray) -> np.ndarray:
        return least(lambda p: ((p - z) ** 2).sum(), lambda p: 2 * (p - z), len(z))

    z = scores(1.0)
    np.testing.assert_allclose(ours(Sparsemax(), z), rowwise(nearest, z), atol=1e-6)


@pytest.mark.parametrize("alpha", [1.1, 1.5, 1.8, 2.0])
def test_entmax_matches_slsqp(alpha: float):
    """argmax p · z + H(p), H = Σ (p − p^α) / (α (α − 1)) (Peters et al. 2019, eq. 4 and 7)."""

    def most(z: np.ndarray) -> np.ndarray:
        def value(p: np.ndarray) -> float:
            return -(p @ z + (p - p**alpha).sum() / (alpha * (alpha - 1)))

        def slope(p: np.ndarray) -> np.ndarray:
            return -(z + (1 - alpha * p ** (alpha - 1)) / (alpha * (alpha - 1)))

        return least(value, slope, len(z))

    z = scores(1.0)
    np.testing.assert_allclose(ours(Entmax(alpha), z), rowwise(most, z), atol=2e-5)


def least(value, slope, size: int) -> np.ndarray:
    """The least value over the simplex."""
    found = scipy.optimize.minimize(
        lambda p: value(np.maximum(p, 0)),
        np.full(size, 1 / size),
        jac=lambda p: slope(np.maximum(p, 0)),
        method="SLSQP",
        bounds=[(0, 1)] * size,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(size)},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success, found.message
    return found.x


@SPREADS
@pytest.mark.parametrize("alpha", [1.05, 1.25, 1.5, 1.75, 2.0])
def test_entmax_threshold_matches_brentq(alpha: float, spread: float):
    def root(z: np.ndarray) -> np.ndarray:
        def weights(threshold: float) -> np.ndarray:
            return np.maximum((alpha - 1) * z - threshold, 0) ** (1 / (alpha - 1))

        top = (alpha - 1) * z.max()
        return weights(
            scipy.optimize.brentq(
                lambda t: weights(t).sum() - 1, top - 1.1, top, xtol=1e-15, rtol=1e-14
            )
        )

    z = scores(spread)
    np.testing.assert_allclose(ours(Entmax(alpha), z), rowwise(root, z), rtol=1e-6, atol=1e-9)


def test_entmax_approaches_softmax_as_alpha_nears_one():
    z = scores(1.0)
    soft = rowwise(scipy.special.softmax, z)
    apart = [np.abs(ours(Entmax(alpha), z) - soft).max() for alpha in (1.1, 1.01, 1.001, 1.0001)]
    assert apart[-1] < 1e-4
    for further, nearer in itertools.pairwise(apart):
        assert nearer < further / 5  # ten times nearer to one, about ten times nearer to softmax
