"""Numbers of the first document, recomputed: embeddings, sinusoids, and word order."""

import math

import pytest
import torch

from regard import attend
from regard.positions import Sinusoidal
from regard.vectors import Vectors, cosine

WORDS = {
    "king": [0.9, 0.8, 0.7, 0.1, 0.2],
    "queen": [0.9, 0.8, 0.7, 0.1, 0.7],
    "man": [0.8, 0.6, 0.6, 0.2, 0.1],
    "woman": [0.8, 0.6, 0.6, 0.2, 0.6],
}
VECTORS = Vectors(list(WORDS), torch.tensor(list(WORDS.values()), dtype=torch.float64))


@pytest.mark.parametrize(
    ("a", "b", "claimed", "true"),
    [
        ("king", "queen", 0.98, 0.9485),
        ("man", "woman", 0.99, 0.9268),
        ("king", "man", None, 0.9910),
    ],
)
def test_cosines_of_the_royal_family(a: str, b: str, claimed: float | None, true: float):
    found = VECTORS.cosine(a, b)
    assert round(found, 4) == true
    assert claimed is None or abs(found - claimed) > 0.03
    dot = sum(x * y for x, y in zip(WORDS[a], WORDS[b], strict=True))
    assert found == pytest.approx(dot / math.hypot(*WORDS[a]) / math.hypot(*WORDS[b]), abs=1e-12)


def test_king_without_man_with_woman_is_queen_exactly():
    sum_of_three = VECTORS["king"] - VECTORS["man"] + VECTORS["woman"]
    torch.testing.assert_close(sum_of_three, VECTORS["queen"], rtol=0, atol=1e-15)
    assert cosine(sum_of_three, VECTORS["queen"]).item() == pytest.approx(1, abs=1e-12)
    assert VECTORS.analogy("man", "king", "woman", normalised=False)[0][0] == "queen"
    torch.testing.assert_close(
        VECTORS["queen"] - VECTORS["king"], VECTORS["woman"] - VECTORS["man"], rtol=0, atol=1e-15
    )


ENCODINGS = {  # the page's, positions counted from 1
    1: [0.8415, 0.5403, 0.0100, 0.9999],
    2: [0.9093, -0.4161, 0.0200, 0.9998],
    3: [0.1411, -0.9899, 0.0300, 0.9996],
}


@pytest.fixture
def double_precision():
    """cos(1/100) = 0.9999500004 rounds up; the nearest float32, 0.99994999, would round down."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
def test_sinusoids_match_the_page_up_to_rounding():
    found = Sinusoidal(4)(torch.tensor([1, 2, 3]))
    rounded = {
        p: [round(x, 4) for x in row] for p, row in zip(ENCODINGS, found.tolist(), strict=True)
    }
    differing = [(p, i) for p in ENCODINGS for i in range(4) if rounded[p][i] != ENCODINGS[p][i]]
    assert differing == [(1, 3), (3, 1)]
    assert rounded[1] == [0.8415, 0.5403, 0.0100, 1.0000]  # cos(1/100) = 0.99995…
    assert rounded[3] == [0.1411, -0.9900, 0.0300, 0.9996]  # cos 3 = −0.98999…
    assert [math.trunc(found[p - 1, i].item() * 10**4) / 10**4 for p, i in differing] == [
        0.9999,
        -0.9899,
    ]


MAN, HIT, CAR = torch.eye(4, dtype=torch.float64)[:3]


def contextual(sentence: list[torch.Tensor], positions: bool, **parts: str) -> torch.Tensor:
    """One context for each word of a sentence that attends to itself."""
    x = torch.stack(sentence)
    if positions:
        x = x + Sinusoidal(4)(torch.arange(1, len(x) + 1)).double()
    return attend(*(x[None, None],) * 3, **parts)[0, 0]


PLAIN = {"score": "dot", "normaliser": "none"}  # the document's setting: unnormalised dot products
PARTS = pytest.mark.parametrize(
    "parts", [PLAIN, {"score": "dot"}, {}], ids=["plain", "softmax", "scaled"]
)


@PARTS
def test_without_positions_order_is_invisible(parts: dict[str, str]):
    hitting, hit = (
        contextual([MAN, HIT, CAR], False, **parts)[0],
        contextual([CAR, HIT, MAN], False, **parts)[2],
    )
    torch.testing.assert_close(hitting, hit, rtol=0, atol=1e-15)


@PARTS
def test_with_positions_order_is_visible(parts: dict[str, str]):
    hitting, hit = (
        contextual([MAN, HIT, CAR], True, **parts)[0],
        contextual([CAR, HIT, MAN], True, **parts)[2],
    )
    assert (hitting - hit).abs().max() > 0.1


def test_the_man_with_positions_by_hand():
    """y = Σ (z₁ · zⱼ) zⱼ with z = v + p."""
    p = [[f(pos / scale) for scale in (1, 100) for f in (math.sin, math.cos)] for pos in (1, 2, 3)]
    z = [[p[i][c] + (c == i) for c in range(4)] for i in range(3)]
    weights = [sum(a * b for a, b in zip(z[0], other, strict=True)) for other in z]
    expected = [sum(w * other[c] for w, other in zip(weights, z, strict=True)) for c in range(4)]
    got = contextual([MAN, HIT, CAR], True, **PLAIN)[0].tolist()
    assert got == pytest.approx(expected, abs=1e-6)


def test_softmax_of_queries_times_keys():
    """The page writes softmax(Q, Kᵀ)V and means softmax(QKᵀ)V. By hand, for ln 3:"""
    q = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])
    k = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    v = torch.tensor([[4.0, 8.0, 0.0], [0.0, 4.0, 12.0]])
    got = attend(q[None, None], k[None, None], v[None, None], score="dot")[0, 0]
    torch.testing.assert_close(
        got, torch.tensor([[3.0, 7.0, 3.0], [2.0, 6.0, 6.0]])
    )  # weights ¾ ¼ and ½ ½
    apart = q.softmax(-1) @ k.T.softmax(-1) @ v  # each of the two by itself
    assert not torch.allclose(got, apart, atol=0.1)
