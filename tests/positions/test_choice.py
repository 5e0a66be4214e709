"""Positions by name: each gets the sizes it takes, and an unknown option is an error."""

import pytest

from regard.errors import UnknownName
from regard.positions import POSITIONS, Learned, Position, Rotary, Shaw, Sinusoidal, position

SIZES = {"width": 24, "heads": 6, "dim": 4, "causal": True}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("none", "none"),
        ("sinusoidal", "additive"),
        ("learned", "additive"),
        ("rotary", "rotary"),
        ("alibi", "bias"),
        ("distance", "bias"),
        ("t5", "bias"),
        ("shaw", "bias"),
    ],
)
def test_each_position_acts_in_one_place(name: str, place: str):
    made = position(name, **SIZES)
    assert type(made) is POSITIONS[name]
    assert isinstance(made, Position)
    assert made.place == place


def test_every_position_is_covered():
    assert len(POSITIONS) == 8


def test_each_gets_the_sizes_it_takes():
    assert position("sinusoidal", **SIZES).width == 24
    assert position("learned", **SIZES).table.shape == (1024, 24)
    assert position("rotary", **SIZES).dim == 4
    assert position("alibi", **SIZES).slopes.shape == (6,)
    assert position("distance", **SIZES).table.shape == (6, 257)
    assert position("distance", **SIZES).scale == 0.5
    assert position("t5", **SIZES).table.shape == (6, 32)
    assert position("t5", **SIZES).causal is True
    assert position("t5", **{**SIZES, "causal": False}).causal is False
    assert position("shaw", **SIZES).table.shape == (33, 4)


def test_options_are_passed():
    made = position("rotary", **SIZES, base=500.0, pairs="neighbours")
    assert isinstance(made, Rotary)
    assert (made.pairs, made.frequencies[1]) == ("neighbours", pytest.approx(500**-0.5))
    learned, shaw = (
        position("learned", **SIZES, max_length=7),
        position("shaw", **SIZES, max_distance=3),
    )
    assert isinstance(learned, Learned)
    assert isinstance(shaw, Shaw)
    assert (learned.max_length, shaw.max_distance) == (7, 3)
    assert isinstance(position("sinusoidal", **SIZES, order="halves"), Sinusoidal)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rotory", {}, "unknown position 'rotory'; did you mean 'rotary'?"),
        (
            "absolute",
            {},
            "unknown position 'absolute'; choose from "
            "'alibi', 'distance', 'learned', 'none', 'rotary', 'shaw', 'sinusoidal', 't5'",
        ),
        ("rotary", {"bas": 5.0}, "position 'rotary' has no option 'bas'; did you mean 'base'?"),
        (
            "shaw",
            {"max_distanse": 5},
            "position 'shaw' has no option 'max_distanse'; did you mean 'max_distance'?",
        ),
        (
            "alibi",
            {"max_distance": 5},
            "position 'alibi' has no option 'max_distance'; choose from 'heads'",
        ),
    ],
)
def test_unknown_names_and_options(name: str, options: dict[str, float], message: str):
    with pytest.raises(UnknownName) as caught:
        position(name, **SIZES, **options)
    assert str(caught.value) == message
