"""Numbers of the fifth document, recomputed: cosine tables and attention of six vectors."""

import itertools

import numpy as np
import pytest
import torch

from regard import MultiHead, attend
from regard.attention import Attention
from regard.attention.scores import ScaledDot
from regard.positions import Sinusoidal
from regard.vectors import similarities

TABLE_3 = [0.76, 0.74, 0.99, 0.79, 0.71, 1.00, 0.85, 0.21, 0.09, 0.83, 0.17, 0.05, 0.70, 0.61, 0.99]
BY_DISTANCE_512 = [0.97, 0.91, 0.83, 0.77, 0.74]
PAIRS = list(
    itertools.combinations(range(6), 2)
)  # v1v2, v1v3 … v5v6: the order of the page's table


def ours(width: int) -> torch.Tensor:
    return Sinusoidal(width)(torch.arange(6)).double()


def variant(width: int) -> torch.Tensor:
    """The page's code: column c has frequency 10000^(−c/width), so sin and cos differ."""
    places, columns = np.arange(6)[:, None], np.arange(width)
    angles = places / 10000.0 ** (columns / width)
    return torch.tensor(np.where(columns % 2, np.cos(angles), np.sin(angles)))


def table(encodings: torch.Tensor) -> list[float]:
    cosines = similarities(encodings)
    return [round(cosines[i, j].item(), 2) for i, j in PAIRS]


@pytest.mark.parametrize("width", [3, 4, 7])
def test_page_uses_other_frequencies_than_the_paper(width: int):
    paper, page = ours(width), variant(width)
    torch.testing.assert_close(paper[:, 0::2], page[:, 0::2], rtol=0, atol=1e-6)
    expected = np.cos(
        np.arange(6)[:, None] / 10000 ** (np.arange(0, width - 1, 2) / width)
    )  # the sine's exponent
    torch.testing.assert_close(paper[:, 1::2], torch.tensor(expected), rtol=0, atol=1e-6)
    assert (paper[1:, 1::2] - page[1:, 1::2]).abs().amax(0).gt(1e-5).all()


def test_table_in_three_dimensions_needs_the_variant():
    assert table(variant(3)) == TABLE_3
    assert table(ours(3))[:5] == [0.54, -0.42, -0.99, -0.65, 0.28]
    assert all(abs(a - b) > 0.004 for a, b in zip(table(ours(3))[:5], TABLE_3[:5], strict=True))


@pytest.mark.parametrize("encodings", [ours, variant])
def test_table_in_512_dimensions_holds_for_both(encodings):
    assert table(encodings(512)) == [BY_DISTANCE_512[j - i - 1] for i, j in PAIRS]


SIX = torch.tensor(
    [[1, 0, 0], [0.95, 0.1, 0], [0, 1, 0], [0, 0.95, 0.1], [-1, 0, 0], [0.5, 0.5, 0.5]],
    dtype=torch.float64,
)
W_Q = torch.tensor([[1, 1, 0, 0, 0, 2], [0] * 6, [0, 0, 1, 0, 0, 0]], dtype=torch.float64)
W_K = torch.tensor([[1, 1, 0, 0, 0, 2], [0] * 6, [0, 0, 5, 3, 5, 0]], dtype=torch.float64)
WEIGHTS_1 = [0.424, 0.375, 0.037, 0.037, 0.003, 0.125]
OUTPUTS = {0: [0.839, 0.171, 0.066], 5: [0.636, 0.324, 0.136]}


def test_the_weights_of_the_six_vectors():
    q, k, v = (x[None, None] for x in (SIX @ W_Q, SIX @ W_K, SIX))
    seen = Attention(ScaledDot(1, 6)).intermediates(q, k, v)
    assert seen.weights[0, 0, 0].tolist() == pytest.approx(WEIGHTS_1, abs=5e-4)
    assert seen.weights[0, 0, 2].tolist() == pytest.approx([1 / 6] * 6, abs=1e-15)
    for row, expected in OUTPUTS.items():
        assert seen.context[0, 0, row].tolist() == pytest.approx(expected, abs=5e-4)
        assert attend(q, k, v)[0, 0, row].tolist() == pytest.approx(expected, abs=5e-4)


def test_the_six_vectors_through_the_module():
    """d_X = 3, d_attn = 6, W_V = I: a MultiHead of one head gives the same outputs."""
    heads = MultiHead(3, 1, attention=6, values=3, biases=False).double()
    with torch.no_grad():
        for project, matrix in ((heads.queries, W_Q), (heads.keys, W_K)):
            project.weight.copy_(matrix.T)
        for project in (heads.values, heads.out):
            project.weight.copy_(torch.eye(3))
    outputs = heads(SIX[None])[0]
    for row, expected in OUTPUTS.items():
        assert outputs[row].tolist() == pytest.approx(expected, abs=5e-4)


def test_v6_comes_closer_to_all_of_them():
    """The page says that v6 moves towards v1 and away from v3 and v4; only the first is true."""
    q, k, v = (x[None, None] for x in (SIX @ W_Q, SIX @ W_K, SIX))
    outputs = attend(q, k, v)[0, 0]

    def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
        return round(float(a @ b / (a.norm() * b.norm())), 2)

    assert [cosine(SIX[5], SIX[i]) for i in (0, 2, 3)] == [0.58, 0.58, 0.63]
    assert [cosine(outputs[5], outputs[i]) for i in (0, 2, 3)] == [0.96, 0.84, 0.84]
