"""Formulas of the third and fourth documents: Bahdanau's score and the relative term."""

import math

import torch

from regard import attend
from regard.attention.scores import Additive, ScaledDot
from regard.positions import Distance

QUERIES, KEYS, DIM, STATE, HIDDEN = 2, 3, 4, 5, 6


def test_bahdanau_score_needs_the_vector_v():
    """The page writes tanh(W[s; h] + b), a vector; the paper has v · tanh(W[s; h] + b)."""
    s, h = (
        torch.randn(QUERIES, STATE, dtype=torch.float64),
        torch.randn(KEYS, HIDDEN, dtype=torch.float64),
    )
    w = torch.randn(DIM, STATE + HIDDEN, dtype=torch.float64)
    b = torch.randn(DIM, dtype=torch.float64)
    score = Additive(1, DIM).double()
    projected = (
        (s @ w[:, :STATE].T + b)[None, None],
        (h @ w[:, STATE:].T)[None, None],
    )  # W[s; h] = W₁s + W₂h
    scores = score(*projected)[0, 0]
    assert scores.shape == (QUERIES, KEYS)
    for i in range(QUERIES):
        for j in range(KEYS):
            page = torch.tanh(w @ torch.cat([s[i], h[j]]) + b)
            assert page.shape == (DIM,)  # no number that softmax could weigh against other keys
            torch.testing.assert_close(scores[i, j], score.v[0] @ page)


def relative() -> tuple[list[torch.Tensor], Distance, torch.Tensor]:
    vectors = [torch.randn(1, 1, KEYS, DIM, dtype=torch.float64) for _ in range(3)]
    distance = Distance(1, DIM, max_distance=2).double()
    with torch.no_grad():
        distance.table.copy_(
            torch.tensor([[0.5, -1.0, 2.0, 3.0, -4.0]])
        )  # for key − query = −2 … 2
    r = torch.tensor([[2.0, 3.0, -4.0], [-1.0, 2.0, 3.0], [0.5, -1.0, 2.0]], dtype=torch.float64)
    return vectors, distance, r


def test_relative_term_is_inside_the_scaling():
    """softmax((QKᵀ + R)/√d)V as the page writes it, so R is divided by √d too."""
    (q, k, v), distance, r = relative()
    got = attend(q, k, v, bias=distance)[0, 0]
    product = q[0, 0] @ k[0, 0].T
    torch.testing.assert_close(got, ((product + r) / math.sqrt(DIM)).softmax(-1) @ v[0, 0])
    outside = (product / math.sqrt(DIM) + r).softmax(-1) @ v[0, 0]
    assert (got - outside).abs().max() > 0.1


def test_uniform_weights_sum_to_one():
    """Weights are not negative and sum to one; equal keys get equal weights, so the mean."""
    q, v = torch.randn(1, 1, QUERIES, DIM), torch.randn(1, 1, KEYS, HIDDEN)
    same = torch.randn(1, 1, 1, DIM).expand(-1, -1, KEYS, -1)
    mean = v.mean(2, keepdim=True).expand(-1, -1, QUERIES, -1)
    torch.testing.assert_close(attend(q, same, v), mean)
    torch.testing.assert_close(
        attend(q, torch.randn(1, 1, KEYS, DIM), v, normaliser="uniform"), mean
    )
    ones = torch.ones(1, 1, KEYS, 1)
    torch.testing.assert_close(
        attend(q, torch.randn(1, 1, KEYS, DIM), ones), torch.ones(1, 1, QUERIES, 1)
    )


def test_scaled_dot_divides_by_the_root_of_dim():
    q, k = torch.full((1, 1, 1, 9), 2.0), torch.full((1, 1, 1, 9), 5.0)
    assert ScaledDot(1, 9)(q, k).item() == 30.0  # 90 / 3
