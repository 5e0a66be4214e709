"""Numbers of the second document, recomputed: rows and columns, three spaces, variances."""

import math

import pytest
import torch

from regard import MultiHead, attend
from regard.attention import attend_columns
from regard.attention.scores import Dot, ScaledDot

X = [1.2, 2.1, -0.4]
A = [[2.0, 0.0, -1.0], [-1.0, 3.0, 0.0], [1.0, 1.0, 1.0]]


def one_word(matrix: torch.Tensor) -> MultiHead:
    """An attention with values x · matrix. A single word has weight 1, so this is its output."""
    heads = MultiHead(3, 1, biases=False).double()
    with torch.no_grad():
        heads.values.weight.copy_(matrix.T)
        heads.out.weight.copy_(torch.eye(3))
    return heads


def test_row_times_matrix():
    x, matrix = torch.tensor([[X]], dtype=torch.float64), torch.tensor(A, dtype=torch.float64)
    assert one_word(matrix)(x)[0, 0].tolist() == pytest.approx([-0.1, 5.9, -1.6], abs=1e-12)
    wrong_side = one_word(matrix.T)(x)[0, 0].tolist()  # A x, as columns would have it
    assert wrong_side == pytest.approx([2.8, 5.1, 2.9], abs=1e-12)


def test_columns_are_rows_transposed():
    q, k, v = (
        torch.randn(size, dtype=torch.float64) for size in ((4, 5), (4, 7), (3, 7))
    )  # columns are vectors
    rows = attend(q.T[None, None], k.T[None, None], v.T[None, None])[0, 0]
    torch.testing.assert_close(attend_columns(q, k, v), rows.T)
    weights = (k.T @ q / math.sqrt(4)).exp()
    torch.testing.assert_close(attend_columns(q, k, v), v @ (weights / weights.sum(0)))


def test_one_output_per_query():
    d_attn, d_out, l_x, l_z = 4, 3, 5, 7
    out = attend_columns(
        torch.randn(d_attn, l_x), torch.randn(d_attn, l_z), torch.randn(d_out, l_z)
    )
    assert out.shape == (d_out, l_x)
    assert out.shape != (d_out, l_z)  # as the page says


def test_three_spaces_have_their_own_widths():
    d_x, d_z, d_attn, d_out, l_x, l_z = 6, 10, 4, 3, 5, 7
    heads = MultiHead(d_x, 1, context=d_z, attention=d_attn, values=d_out, out=d_out)
    assert [tuple(p.weight.shape) for p in (heads.queries, heads.keys, heads.values)] == [
        (d_attn, d_x),
        (d_attn, d_z),
        (d_out, d_z),
    ]
    assert heads(torch.randn(2, l_x, d_x), torch.randn(2, l_z, d_z)).shape == (2, l_x, d_out)


def test_one_query_at_a_time_equals_all_at_once():
    heads = MultiHead(6, 2, context=10, attention=4, values=8, out=3).double()
    x, z = torch.randn(1, 5, 6, dtype=torch.float64), torch.randn(1, 7, 10, dtype=torch.float64)
    alone = torch.cat([heads(word, z) for word in x.split(1, dim=1)], dim=1)
    torch.testing.assert_close(alone, heads(x, z))


A_HALF, PAIRS = 1.5, 20_000


def variance(score: Dot | ScaledDot, dim: int) -> float:
    x, y = torch.empty(2, PAIRS, 1, 1, dim, dtype=torch.float64).uniform_(-A_HALF, A_HALF)
    return score(x, y).var().item()


@pytest.mark.parametrize("dim", [4, 16, 100])
def test_scaling_keeps_the_variance_of_dot_products(dim: int):
    """Uniform on ±a: Var(x y) = (a²/3)² = a⁴/9, added over the terms; 20 000 samples: ± 2 %."""
    one = A_HALF**4 / 9
    assert variance(Dot(1, dim), dim) == pytest.approx(dim * one, rel=0.06)
    assert variance(ScaledDot(1, dim), dim) == pytest.approx(one, rel=0.06)
