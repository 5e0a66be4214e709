"""Position encodings by name. Each acts in one of three places (see `absolute.py`).

Register your own with `@POSITIONS.register("name")` on a subclass of `AdditivePosition`,
`RotaryPosition` or `BiasPosition`.
"""

from __future__ import annotations

import inspect
from typing import Any

from regard.errors import UnknownName, suggestion
from regard.positions.absolute import (
    AdditivePosition,
    BiasPosition,
    Learned,
    NoPosition,
    Position,
    RotaryPosition,
    Sinusoidal,
)
from regard.positions.relative import T5, Alibi, Distance, Shaw
from regard.positions.rotary import Rotary
from regard.registry import Registry

POSITIONS: Registry[type[Position]] = Registry(
    "position",
    {
        "none": NoPosition,
        "sinusoidal": Sinusoidal,
        "learned": Learned,
        "rotary": Rotary,
        "alibi": Alibi,
        "distance": Distance,
        "t5": T5,
        "shaw": Shaw,
    },
)


def position(
    name: str, *, width: int, heads: int, dim: int, causal: bool, **options: Any
) -> Position:
    """Build the position encoding `name`; it gets those model sizes that its constructor takes."""
    kind = POSITIONS.choose(name)
    accepted = inspect.signature(kind).parameters
    for option in options:
        if option not in accepted:
            known = suggestion(option, accepted)
            raise UnknownName(f"position {name!r} has no option {option!r}; {known}")
    sizes = {"width": width, "heads": heads, "dim": dim, "causal": causal}
    return kind(**{size: value for size, value in sizes.items() if size in accepted}, **options)


__all__ = [
    "POSITIONS",
    "T5",
    "AdditivePosition",
    "Alibi",
    "BiasPosition",
    "Distance",
    "Learned",
    "NoPosition",
    "Position",
    "Rotary",
    "RotaryPosition",
    "Shaw",
    "Sinusoidal",
    "position",
]
