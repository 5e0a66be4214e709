"""Positions: where tokens stand, told to a model in one of three places (see `position.py`)."""

from __future__ import annotations

import inspect
from typing import Any

from regard.errors import UnknownName, suggestion
from regard.positions.absolute import Learned, Sinusoidal
from regard.positions.position import Added, Biasing, Nowhere, Position, Turning
from regard.positions.relative import T5, Alibi, Distance, Shaw
from regard.positions.rotary import Rotary
from regard.registry import Registry

POSITIONS: Registry[type[Position]] = Registry(
    "position",
    {
        "none": Nowhere,
        "sinusoidal": Sinusoidal,
        "learned": Learned,
        "rotary": Rotary,
        "alibi": Alibi,
        "distance": Distance,
        "t5": T5,
        "shaw": Shaw,
    },
)


def position(name: str, *, width: int, heads: int, dim: int, causal: bool, **options: Any) -> Position:
    """The position encoding called `name`, given those of the model's sizes that it asks for."""
    kind = POSITIONS.choose(name)
    asked = inspect.signature(kind).parameters
    for option in options:
        if option not in asked:
            raise UnknownName(f"position {name!r} has no option {option!r}; {suggestion(option, asked)}")
    sizes = {"width": width, "heads": heads, "dim": dim, "causal": causal}
    return kind(**{size: value for size, value in sizes.items() if size in asked}, **options)


__all__ = [
    "POSITIONS",
    "T5",
    "Added",
    "Alibi",
    "Biasing",
    "Distance",
    "Learned",
    "Nowhere",
    "Position",
    "Rotary",
    "Shaw",
    "Sinusoidal",
    "Turning",
    "position",
]
