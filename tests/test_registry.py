"""Registry: user-defined parts by name, and errors for duplicate and unknown names."""

from typing import Any

import pytest

from regard.errors import RegardError, UnknownName
from regard.registry import Registry


class First:
    """A part."""


class Second:
    """Another part."""


def fresh() -> Registry[Any]:
    return Registry("colour", {"red": First})


def test_decorator_registers_and_returns_the_class():
    registry = fresh()

    @registry.register("blue")
    class Blue:
        """A part."""

    assert registry.choose("blue") is Blue
    assert sorted(registry) == ["blue", "red"]


def test_call_registers_a_class():
    registry = fresh()
    assert registry.register("green", Second) is Second
    assert registry["green"] is Second


def test_duplicate_name_is_refused():
    registry = fresh()
    with pytest.raises(
        RegardError, match=r"colour 'red' is already registered as .*First.*another"
    ):
        registry.register("red", Second)
    assert registry["red"] is First


def test_registering_the_same_class_again_is_allowed():
    """A notebook cell or a file imported twice defines the class again."""
    registry = fresh()
    again = type("First", (), {"__module__": First.__module__, "__qualname__": First.__qualname__})
    registry.register("red", again)
    assert registry["red"] is again


@pytest.mark.parametrize("name", ["", None, 3])
def test_name_must_be_a_string(name: Any):
    with pytest.raises(RegardError, match="a colour needs a name"):
        fresh().register(name, Second)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown colour 'redd'; did you mean 'red'\?"):
        fresh().choose("redd")
