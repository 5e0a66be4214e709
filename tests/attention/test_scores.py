"""Every score on two queries and three keys, computed by hand."""

import math

import pytest
import torch

from regard import attend
from regard.attention import SCORES, Attention
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
    first = [
        [2.0, 1.0, -1.0],
        [6.0, 10.0, 25.0],
    ]  # qᵀW = [1, 0] and [3, 7]; were W transposed, [5, −2] and [1, 1]
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
    assert scores(Gaussian(1, 2, bandwidth=2.0)) == close(
        [[-x / 8 for x in row] for row in squares]
    )


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


@pytest.mark.parametrize("shift", [100.0, 1000.0])
def test_gaussian_does_not_depend_on_the_origin(shift: float):
    """Expanded to q · k − ‖k‖²/2 it would be wrong by 1e−3 at 100 and by 0.1 at 1000."""
    q, k, v = (
        torch.randn(2, 3, 5, 4) + shift,
        torch.randn(2, 3, 7, 4) + shift,
        torch.randn(2, 3, 7, 6),
    )
    doubles = (x.double() for x in (q, k, v))
    exact = attend(*doubles, score="gaussian", backend="reference")
    ours = attend(q, k, v, score="gaussian").double()
    torch.testing.assert_close(ours, exact, rtol=0, atol=1e-4)


def test_gaussian_over_a_wide_range_is_exact_on_auto():
    """Keys a thousand bandwidths apart, as in Nadaraya–Watson regression on a line."""
    keys = torch.arange(1001.0)[None, None, :, None]
    queries = torch.tensor([3.3, 500.2, 999.7])[None, None, :, None]
    values = torch.randn(1, 1, 1001, 6)
    doubles = (x.double() for x in (queries, keys, values))
    exact = attend(*doubles, score="gaussian", backend="reference")
    ours = attend(queries, keys, values, score="gaussian").double()
    torch.testing.assert_close(ours, exact, rtol=0, atol=1e-4)


def test_user_defined_score_is_computed_by_its_own_forward():
    class Half(ScaledDot):
        def forward(self, queries, keys):
            return super().forward(queries, keys) / 2

    class Manhattan(Score):
        def forward(self, queries, keys):
            return -(queries[:, :, :, None] - keys[:, :, None]).abs().sum(-1)

    q, k, v = torch.randn(3, 1, 2, 5, 8).unbind()
    for score in (Half(2, 8), Manhattan(2, 8)):
        assert not score.is_dot
        assert not score.is_scaled_dot
        attention = Attention(score)
        expected = score(q, k).softmax(-1) @ v
        torch.testing.assert_close(attention(q, k, v), attention.intermediates(q, k, v).context)
        torch.testing.assert_close(attend(q, k, v, score=score), expected)
    assert ScaledDot(2, 8).is_dot
    assert ScaledDot(2, 8).is_scaled_dot
