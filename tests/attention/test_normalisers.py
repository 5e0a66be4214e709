"""Every normaliser on a row of scores by hand, and the gradients of sparse normalisers."""

import math

import pytest
import torch

from regard.attention import NORMALISERS, Normaliser
from regard.attention.normalisers import (
    Boxcar,
    Entmax,
    Epanechnikov,
    Positive,
    Softmax,
    Sparsemax,
    Triangular,
    Uniform,
    Unnormalised,
)
from regard.errors import RegardError, UnknownName


def weights(
    normaliser: Normaliser, scores: list[float], allowed: list[int] | None = None
) -> list[float]:
    row = torch.tensor(scores, dtype=torch.float64).view(1, 1, 1, -1)
    may = torch.tensor(allowed or [1] * len(scores), dtype=torch.bool).view(1, 1, 1, -1)
    return normaliser(row, may).flatten().tolist()


def of_distances(*u: float) -> list[float]:
    """Distances in bandwidths as the scores that kernels read."""
    return [-(x**2) / 2 for x in u]


CASES = [
    (Softmax(), [math.log(1), math.log(2), math.log(5)], None, [1 / 8, 2 / 8, 5 / 8]),
    (Softmax(), [math.log(1), math.log(2), math.log(5)], [1, 1, 0], [1 / 3, 2 / 3, 0]),
    (Unnormalised(), [1.5, -2.0, 0.25], None, [1.5, -2.0, 0.25]),
    (Unnormalised(), [1.5, -2.0, 0.25], [0, 1, 1], [0, -2.0, 0.25]),
    (Positive("exp"), [math.log(3), math.log(1), math.log(4)], [1, 1, 0], [3 / 4, 1 / 4, 0]),
    (Positive("relu"), [1.0, -2.0, 3.0], None, [1 / 4, 0, 3 / 4]),
    (Positive("relu"), [-1.0, -2.0], None, [0, 0]),
    (Positive("sigmoid"), [0.0, math.log(3)], None, [2 / 5, 3 / 5]),
    (Positive("softplus"), [0.0, math.log(3), 9.0], [1, 1, 0], [1 / 3, 2 / 3, 0]),  # ln 2 and ln 4
    (Positive("elu"), [-math.log(2), 1.0], None, [1 / 5, 4 / 5]),  # ½ and 2
    (Boxcar(), of_distances(0.5, 1.0, 1.01), None, [1 / 2, 1 / 2, 0]),
    (Boxcar(), of_distances(0.5, 0.9, 0.1, 3.0), [1, 0, 1, 1], [1 / 2, 0, 1 / 2, 0]),
    (Epanechnikov(), of_distances(0.0, 0.5, 2.0), None, [4 / 7, 3 / 7, 0]),
    (Epanechnikov(), of_distances(1.5, 2.0), None, [0, 0]),
    (Triangular(), of_distances(0.5, 0.25, 2.0), None, [2 / 5, 3 / 5, 0]),
    (Triangular(), of_distances(0.0, 0.5, 0.1), [1, 1, 0], [2 / 3, 1 / 3, 0]),
    (Uniform(), [5.0, -7.0, 1e9], None, [1 / 3, 1 / 3, 1 / 3]),
    (Uniform(), [5.0, -7.0, 1e9], [1, 0, 1], [1 / 2, 0, 1 / 2]),
    (Sparsemax(), [1.0, 0.5, -1.0], None, [3 / 4, 1 / 4, 0]),  # τ = ¼
    (Sparsemax(), [2.0, 0.9, 0.0], None, [1, 0, 0]),
    (Sparsemax(), [0.3, 9.0, 0.3], [1, 0, 1], [1 / 2, 0, 1 / 2]),
    (Sparsemax(), [7.0, 7.0, 7.0, 7.0, 7.0], None, [1 / 5] * 5),
    (Entmax(1.5), [1.6, 1.2, -0.5], None, [0.64, 0.36, 0]),  # (s/2 − τ)² with τ = 0
    (Entmax(1.5), [101.6, 101.2, 99.5], None, [0.64, 0.36, 0]),
    (Entmax(1.5), [1.2, 99.0, 1.6], [1, 0, 1], [0.36, 0, 0.64]),
    (
        Entmax(1.25),
        [4 * 0.2**0.25, 4 * 0.5**0.25, 4 * 0.3**0.25],
        None,
        [0.2, 0.5, 0.3],
    ),  # (s/4 − τ)⁴, τ = 0
]


@pytest.mark.parametrize(
    ("normaliser", "scores", "allowed", "expected"), CASES, ids=lambda x: str(x)[:24]
)
def test_by_hand(
    normaliser: Normaliser, scores: list[float], allowed: list[int] | None, expected: list[float]
):
    assert weights(normaliser, scores, allowed) == pytest.approx(expected, abs=1e-12)


def test_every_normaliser_is_covered():
    assert {type(case[0]) for case in CASES} == set(NORMALISERS.values())


@pytest.mark.parametrize("name", NORMALISERS)
def test_fully_masked_row_has_zero_weights(name: str):
    assert weights(NORMALISERS[name](), [-0.1, -0.2, -0.3], [0, 0, 0]) == [0, 0, 0]


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_scores_do_not_overflow(name: str, dtype: torch.dtype):
    scores = torch.tensor([[[[3e4, -3e4, 2e4], [-3e4, -3e4, 3e38]]]], dtype=dtype)
    allowed = torch.tensor([[[[True, True, True], [True, True, False]]]])
    got = NORMALISERS[name]()(scores, allowed).float()
    torch.testing.assert_close(got, torch.tensor([[[[1.0, 0, 0], [0.5, 0.5, 0]]]]))


@pytest.mark.parametrize("name", NORMALISERS)
@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_masked_score_has_no_influence(name: str, score: float):
    normaliser = NORMALISERS[name]()
    alone = weights(normaliser, [-0.1, -0.3])
    assert weights(normaliser, [-0.1, score, -0.3], [1, 0, 1]) == pytest.approx(
        [alone[0], 0, alone[1]], abs=1e-12
    )


def gradient(normaliser: Normaliser, scores: list[float], of: int) -> list[float]:
    row = torch.tensor(scores, dtype=torch.float64).view(1, 1, 1, -1).requires_grad_()
    normaliser(row, torch.ones_like(row, dtype=torch.bool))[..., of].sum().backward()
    return row.grad.flatten().tolist()


def test_gradient_of_sparsemax_by_hand():
    """1[i = j] − 1/n inside the support of n keys, else 0 (Martins & Astudillo 2016, eq. 9)."""
    assert gradient(Sparsemax(), [1.0, 0.5, -1.0], of=0) == pytest.approx(
        [1 / 2, -1 / 2, 0], abs=1e-12
    )
    assert gradient(Sparsemax(), [1.0, 0.5, -1.0], of=2) == pytest.approx([0, 0, 0], abs=1e-12)
    assert gradient(Sparsemax(), [0.1, 0.0, 0.2, -3.0], of=1) == pytest.approx(
        [-1 / 3, 2 / 3, -1 / 3, 0], abs=1e-12
    )


def test_gradient_of_entmax_by_hand():
    """s_i 1[i = j] − s_i s_j / Σ s, where s = p^(2 − α), here √p (Peters et al. 2019, eq. 14)."""
    expected = [0.8 - 0.64 / 1.4, -0.48 / 1.4, 0]
    assert gradient(Entmax(1.5), [1.6, 1.2, -0.5], of=0) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "normaliser", [Sparsemax(), Entmax(1.2), Entmax(1.5), Entmax(1.9)], ids=repr
)
def test_gradients_inside_the_support(normaliser: Normaliser):
    scores = torch.tensor(
        [[[[1.0, 0.6, -9.0, 0.9], [0.3, 0.2, 0.1, 0.25]]]], dtype=torch.float64, requires_grad=True
    )
    allowed = torch.tensor([[[[True, True, True, True], [True, True, False, True]]]])
    assert torch.autograd.gradcheck(lambda x: normaliser(x, allowed), scores)


def test_triangular_gradient_is_finite_on_a_key():
    assert all(map(math.isfinite, gradient(Triangular(), of_distances(0.0, 0.5), of=0)))


@pytest.mark.parametrize("alpha", [1, 1.0, 0.5, 2.01, float("nan")])
def test_alpha_out_of_bounds(alpha: float):
    expected = (
        rf"^alpha must be above 1 and at most 2; got {alpha} \(alpha 1 is normaliser 'softmax'\)$"
    )
    with pytest.raises(RegardError, match=expected):
        Entmax(alpha)


def test_unknown_phi_suggests_the_nearest():
    with pytest.raises(UnknownName, match=r"^unknown phi 'soft-plus'; did you mean 'softplus'\?$"):
        Positive("soft-plus")


def test_positive_exp_equals_softmax_for_large_scores():
    scores = torch.tensor([[[[100.0, 100.0]]]])
    weights = Positive("exp")(scores, torch.ones_like(scores, dtype=torch.bool))
    assert weights.tolist() == [[[[0.5, 0.5]]]]


def test_positive_exp_ignores_masked_scores_in_its_maximum():
    """With the masked score in the maximum, the allowed ones would underflow to 0."""
    scores = torch.tensor([[[[-200.0, -200.0, 5.0]]]])
    allowed = torch.tensor([[[[True, True, False]]]])
    assert Positive("exp")(scores, allowed).tolist() == [[[[0.5, 0.5, 0.0]]]]


def test_masked_nan_score_has_zero_weight_in_a_kernel():
    scores, allowed = torch.tensor([[[[torch.nan, -0.1]]]]), torch.tensor([[[[False, True]]]])
    assert Epanechnikov()(scores, allowed).tolist() == [[[[0.0, 1.0]]]]


def test_only_softmax_declares_itself_softmax():
    class Sharper(Softmax):
        """A subclass computes something else."""

    assert [name for name, kind in NORMALISERS.items() if kind.is_softmax] == ["softmax"]
    assert not Sharper.is_softmax
