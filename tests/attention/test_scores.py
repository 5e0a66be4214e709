"""Every score on two queries and three keys, computed by hand."""

import math

import pytest
import torch

from regard.attention import SCORES
from regard.attention.scores import Additive, Cosine, Dot, Gaussian, General, ScaledDot, Score
from regard.errors import RegardError

Q = [[1.0, 2.0], [3.0, -1.0]]
K = [[2.0, 0.0], [1.0, 1.0], [-1.0, 4.0]]
DOTS = [[2.0, 3.0, 7.0], [6.0, 2.0, -7.0]]


def scores(score: Score, heads: int = 1) -> list:
    q, k = (torch.tensor(x, dtype=torch.float64).expand(1, heads, -1, -1) for x in (Q, K))
    made = score.double()(q, k)[0].detach()
    return made[0].tolist() if heads == 1 else made.tolist()


def close(table: list) -> object:
    return [pytest.approx(row, abs=1e-12) for row in table]


def test_dot():
    assert scores(Dot(1, 2)) == close(DOTS)


def test_scaled_dot():
    assert scores(ScaledDot(1, 2)) == close([[x / math.sqrt(2) for x in row] for row in DOTS])


def test_general_has_a_matrix_per_head():
    score = General(2, 2)
    with torch.no_grad():
        score.weight.copy_(torch.tensor([[[1.0, 2.0], [0.0, -1.0]], [[0.0, 0.0], [0.0, 10.0]]]))
    first = [[2.0, 1.0, -1.0], [6.0, 10.0, 25.0]]  # qᵀW = [1, 0] and [3, 7]; were W transposed, [5, −2] and [1, 1]
    second = [[0.0, 20.0, 80.0], [0.0, -10.0, -40.0]]  # ten times the second coordinates
    assert scores(score, heads=2) == [close(first), close(second)]


def test_additive_has_a_vector_per_head():
    score = Additive(2, 2)
    with torch.no_grad():
        score.v.copy_(torch.tensor([[2.0, -3.0], [0.0, 1.0]]))
    t = math.tanh
    first = [
        [2 * t(3) - 3 * t(2), 2 * t(2) - 3 * t(3), 2 * t(0) - 3 * t(6)],
        [2 * t(5) - 3 * t(-1), 2 * t(4) - 3 * t(0), 2 * t(2) - 3 * t(3)],
    ]
    second = [[t(2), t(3), t(6)], [t(-1), t(0), t(3)]]
    assert scores(score, heads=2) == [close(first), close(second)]


def test_cosine():
    lengths_q, lengths_k = [math.sqrt(5), math.sqrt(10)], [2, math.sqrt(2), math.sqrt(17)]
    cosines = [[DOTS[i][j] / lengths_q[i] / lengths_k[j] for j in range(3)] for i in range(2)]
    assert scores(Cosine(1, 2)) == close(cosines)
    assert scores(Cosine(1, 2, scale=10.0)) == close([[10 * x for x in row] for row in cosines])


def test_cosine_of_a_zero_vector_is_zero():
    q = torch.zeros(1, 1, 1, 2, requires_grad=True)
    score = Cosine(1, 2)(q, torch.ones(1, 1, 1, 2))
    score.sum().backward()
    assert score.item() == 0
    assert q.grad.isfinite().all()


def test_gaussian():
    squares = [[5.0, 1.0, 8.0], [2.0, 8.0, 41.0]]
    assert scores(Gaussian(1, 2)) == close([[-x / 2 for x in row] for row in squares])
    assert scores(Gaussian(1, 2, bandwidth=2.0)) == close([[-x / 8 for x in row] for row in squares])


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_bandwidth_must_be_positive(bandwidth: float):
    with pytest.raises(RegardError, match=rf"^bandwidth must be above 0; got {bandwidth}$"):
        Gaussian(1, 2, bandwidth=bandwidth)


def test_additive_is_not_a_dot_product():
    with pytest.raises(RegardError, match=r"^Additive is not a dot product$"):
        Additive(1, 2).as_dot(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    assert [name for name, kind in SCORES.items() if not kind.is_dot] == ["additive", "gaussian"]


def test_scores_stay_within_sequence_and_head():
    for name, kind in SCORES.items():
        q, k = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5)
        score = kind(3, 5)
        whole = score(q, k)
        k[1, 2] += 1  # another sequence and head
        again = score(q, k)
        changed = (whole != again).flatten(2).any(-1)
        assert changed.tolist() == [[False] * 3, [False, False, True]], name
