"""Sinusoidal and learned positions, by hand."""

import math

import pytest
import torch

from regard.errors import RegardError, ShapeError
from regard.positions import Learned, Sinusoidal

S, C = math.sin, math.cos


def test_four_dimensions():
    """Rates 1 and 1/100."""
    expected = [[0, 1, 0, 1], [S(1), C(1), S(0.01), C(0.01)], [S(2), C(2), S(0.02), C(0.02)]]
    torch.testing.assert_close(Sinusoidal(4)(torch.arange(3)), torch.tensor(expected))


def test_odd_width_ends_with_a_sine():
    """Width 3: rates 1 and 10000^(−2/3)."""
    slow = 10000 ** (-2 / 3)
    expected = [[0, 1, 0], [S(1), C(1), S(slow)], [S(2), C(2), S(2 * slow)]]
    torch.testing.assert_close(Sinusoidal(3)(torch.arange(3)), torch.tensor(expected))
    halves = [[0, 0, 1], [S(1), S(slow), C(1)], [S(2), S(2 * slow), C(2)]]
    torch.testing.assert_close(Sinusoidal(3, order="halves")(torch.arange(3)), torch.tensor(halves))


def test_halves_put_all_sines_first():
    expected = [[S(2), S(0.02), C(2), C(0.02)]]
    torch.testing.assert_close(
        Sinusoidal(4, order="halves")(torch.tensor([2])), torch.tensor(expected)
    )


def test_width_one_is_a_sine():
    torch.testing.assert_close(
        Sinusoidal(1)(torch.tensor([0, 1, 5])), torch.tensor([[0.0], [S(1)], [S(5)]])
    )


def test_another_base():
    expected = [[S(3), C(3), S(3 / 4), C(3 / 4)]]  # 16^(−2/4)
    torch.testing.assert_close(Sinusoidal(4, base=16.0)(torch.tensor([3])), torch.tensor(expected))


def test_any_shape_of_positions():
    places = torch.tensor([[5, 0, 2], [1, 1, 9]])
    assert Sinusoidal(4)(places).shape == (2, 3, 4)
    torch.testing.assert_close(Sinusoidal(4)(places)[1, 2], Sinusoidal(4)(torch.tensor([9]))[0])


def test_far_position_is_as_exact_as_a_near_one():
    place = 10**6 + 1
    got = Sinusoidal(4)(torch.tensor([place]))[0].double()
    expected = torch.tensor(
        [S(place), C(place), S(place / 100), C(place / 100)], dtype=torch.float64
    )
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-7)


def test_product_of_encodings_depends_on_distance():
    """Σ sin a sin b + cos a cos b = Σ cos((p − m) · rate)."""
    waves = Sinusoidal(6)(torch.arange(30)).double()
    products = waves @ waves.T
    for distance in (0, 1, 7):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-6)
    rates = [10000 ** (-2 * i / 6) for i in range(3)]
    assert products[4, 11].item() == pytest.approx(sum(C(7 * rate) for rate in rates), abs=1e-6)


def test_invalid_sinusoidal_options():
    with pytest.raises(RegardError, match=r"^order must be 'paired' or 'halves'; got 'half'$"):
        Sinusoidal(4, order="half")
    with pytest.raises(ShapeError, match=r"^width must be at least 1; got 0$"):
        Sinusoidal(0)


def test_learned_positions_are_rows_of_a_table():
    learned = Learned(3, max_length=5)
    places = torch.tensor([[4, 0], [2, 2]])
    got = learned(places)
    assert got.shape == (2, 2, 3)
    for i in range(2):
        for j in range(2):
            assert torch.equal(got[i, j], learned.table[places[i, j]])
    got[1].sum().backward()
    assert learned.table.grad.tolist() == [[0] * 3, [0] * 3, [2] * 3, [0] * 3, [0] * 3]


@pytest.mark.parametrize("place", [5, 800])
def test_position_beyond_the_table_names_the_fix(place: int):
    with pytest.raises(RegardError) as caught:
        Learned(3, max_length=5)(torch.tensor([[0, place], [1, 2]]))
    assert str(caught.value) == (
        f"position {place} is beyond the 5 learned positions; use a larger 'max_length', "
        "or an encoding that is computed, such as 'sinusoidal' or 'rotary'"
    )


def test_negative_position_is_an_error():
    with pytest.raises(RegardError, match=r"^positions start at 0; got -2$"):
        Learned(3, max_length=5)(torch.tensor([0, -2, -1]))


def test_empty_positions_are_allowed():
    assert Learned(3, max_length=5)(torch.zeros(0, dtype=torch.long)).shape == (0, 3)
    assert Sinusoidal(4)(torch.zeros(0, dtype=torch.long)).shape == (0, 4)
