"""Rotary positions: turns by hand, and what a turn must keep."""

import math

import pytest
import torch

from regard.errors import RegardError, ShapeError
from regard.positions import Rotary

S, C = math.sin, math.cos
HEADS, TIME, DIM = 3, 7, 10


def turned(rotary: Rotary, vector: list[float], place: int) -> list[float]:
    return rotary.rotate(torch.tensor([vector], dtype=torch.float64), torch.tensor([place]))[
        0
    ].tolist()


def test_halves_by_hand():
    """Coordinates 0 and 2 make a pair (rate 1), and 1 and 3 (rate 1/100)."""
    expected = [
        C(2) - 3 * S(2),
        2 * C(0.02) - 4 * S(0.02),
        3 * C(2) + S(2),
        4 * C(0.02) + 2 * S(0.02),
    ]
    assert turned(Rotary(4), [1, 2, 3, 4], 2) == pytest.approx(expected, abs=1e-12)


def test_neighbours_by_hand():
    """Coordinates 0 and 1 make a pair (rate 1), and 2 and 3 (rate 1/100)."""
    expected = [
        C(2) - 2 * S(2),
        2 * C(2) + S(2),
        3 * C(0.02) - 4 * S(0.02),
        4 * C(0.02) + 3 * S(0.02),
    ]
    assert turned(Rotary(4, pairs="neighbours"), [1, 2, 3, 4], 2) == pytest.approx(
        expected, abs=1e-12
    )


def test_position_zero_is_not_rotated():
    vectors = torch.randn(TIME, DIM)
    assert torch.equal(Rotary(DIM).rotate(vectors, torch.zeros(TIME, dtype=torch.long)), vectors)


PAIRS = pytest.mark.parametrize("pairs", ["halves", "neighbours"])


@PAIRS
def test_rotation_keeps_norms(pairs: str):
    vectors = torch.randn(HEADS, TIME, DIM, dtype=torch.float64)
    got = Rotary(DIM, pairs=pairs).rotate(vectors, torch.randint(1000, (TIME,)))
    torch.testing.assert_close(got.norm(dim=-1), vectors.norm(dim=-1))
    assert not torch.allclose(got, vectors, atol=0.1)


@PAIRS
@pytest.mark.parametrize(
    "options",
    [{}, {"fraction": 0.6}, {"scaling": "linear", "factor": 3.0}, {"base": 50.0}],
    ids=str,
)
def test_product_depends_on_distance_only(pairs: str, options: dict[str, float | str]):
    q, k = torch.randn(2, 1, DIM, dtype=torch.float64)
    rotary = Rotary(DIM, pairs=pairs, **options)

    def product(place: int, other: int) -> float:
        return (
            (rotary.rotate(q, torch.tensor([place])) * rotary.rotate(k, torch.tensor([other])))
            .sum()
            .item()
        )

    assert product(11, 4) == pytest.approx(product(7, 0), abs=1e-9)
    assert product(511, 504) == pytest.approx(product(7, 0), abs=1e-9)
    assert abs(product(7, 0) - product(0, 7)) > 1e-3  # it tells before from after
    assert abs(product(7, 0) - product(8, 0)) > 1e-3


@PAIRS
def test_fraction_leaves_other_dims_unchanged(pairs: str):
    vectors = torch.randn(TIME, DIM)
    places = torch.arange(1, TIME + 1)
    got = Rotary(DIM, fraction=0.4, pairs=pairs).rotate(vectors, places)
    assert torch.equal(got[:, 4:], vectors[:, 4:])
    expected = Rotary(4, pairs=pairs).rotate(
        vectors[:, :4], places
    )  # the rates are those of the turned part
    assert torch.equal(got[:, :4], expected)


def test_frequencies_by_hand():
    assert Rotary(6).frequencies == pytest.approx([1, 10000 ** (-1 / 3), 10000 ** (-2 / 3)])
    assert Rotary(4, base=100.0).frequencies == pytest.approx([1, 0.1])
    assert Rotary(8, fraction=0.5, base=100.0).frequencies == pytest.approx([1, 0.1])


def test_linear_scaling_divides_every_frequency():
    assert Rotary(4, scaling="linear", factor=4.0).frequencies == pytest.approx([1 / 4, 1 / 400])
    vectors = torch.randn(1, 4, dtype=torch.float64)
    stretched = Rotary(4, scaling="linear", factor=4.0).rotate(vectors, torch.tensor([20]))
    torch.testing.assert_close(stretched, Rotary(4).rotate(vectors, torch.tensor([5])))


def test_ntk_keeps_the_highest_frequency():
    """base · factor^(d/(d−2)): with d = 4, 100 · 3² = 900, so 1 and 1/30 instead of 1 and 1/10."""
    assert Rotary(4, base=100.0, scaling="ntk", factor=3.0).frequencies == pytest.approx(
        [1, 1 / 30]
    )
    wide, plain = (
        torch.tensor(r.frequencies) for r in (Rotary(10, scaling="ntk", factor=5.0), Rotary(10))
    )
    ratios = (plain / wide).tolist()
    assert ratios == pytest.approx([5 ** (i / 4) for i in range(5)])  # from 1 to the factor


@pytest.mark.parametrize("scaling", ["linear", "ntk"])
def test_factor_one_changes_nothing(scaling: str):
    assert Rotary(DIM, scaling=scaling, factor=1.0).frequencies == Rotary(DIM).frequencies


def test_far_positions_are_exact():
    place = 10**6 + 1
    expected = [C(place), S(place)]
    got = Rotary(2).rotate(torch.tensor([[1.0, 0.0]]), torch.tensor([place]))[0].tolist()
    assert got == pytest.approx(expected, abs=1e-6)


def test_positions_of_each_sequence_broadcast_over_heads():
    vectors = torch.randn(2, HEADS, TIME, DIM)
    places = torch.randint(100, (2, TIME))
    got = Rotary(DIM).rotate(vectors, places[:, None])
    for b in range(2):
        for h in range(HEADS):
            torch.testing.assert_close(got[b, h], Rotary(DIM).rotate(vectors[b, h], places[b]))


@pytest.mark.parametrize(
    ("dim", "options", "error", "message"),
    [
        (
            4,
            {"pairs": "both"},
            RegardError,
            "pairs must be one of ('halves', 'neighbours'); got 'both'",
        ),
        (
            4,
            {"scaling": "yarn"},
            RegardError,
            "scaling must be one of ('none', 'linear', 'ntk'); got 'yarn'",
        ),
        (
            5,
            {},
            ShapeError,
            "rotary rotates pairs, so fraction · dim must be even and above 0; got 1.0 · 5",
        ),
        (
            6,
            {"fraction": 0.5},
            ShapeError,
            "rotary rotates pairs, so fraction · dim must be even and above 0; got 0.5 · 6",
        ),
        (
            6,
            {"fraction": 0.0},
            ShapeError,
            "rotary rotates pairs, so fraction · dim must be even and above 0; got 0.0 · 6",
        ),
        (
            6,
            {"fraction": 1.5},
            ShapeError,
            "rotary rotates pairs, so fraction · dim must be even and above 0; got 1.5 · 6",
        ),
        (
            4,
            {"factor": 4.0},
            RegardError,
            "factor = 4.0 has no effect without scaling; use scaling='linear' or 'ntk'",
        ),
        (
            4,
            {"scaling": "linear", "factor": 0.5},
            RegardError,
            "factor must be at least 1 (and ntk needs at least 4 rotated dims); got 0.5",
        ),
        (
            2,
            {"scaling": "ntk", "factor": 2.0},
            RegardError,
            "factor must be at least 1 (and ntk needs at least 4 rotated dims); got 2.0",
        ),
    ],
)
def test_invalid_options(
    dim: int, options: dict[str, object], error: type[Exception], message: str
):
    with pytest.raises(error) as caught:
        Rotary(dim, **options)
    assert str(caught.value) == message
