"""Pictures of attention with matplotlib (`pip install regard[plots]`). Each takes tensors and gives a Figure.

>>> from regard import plots
>>> plots.weights(weights, ["the", "man", "hit", "the", "car"]).savefig("weights.png")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.plots.curve import regression
    from regard.plots.distances import mean_scores, score_by_distance
    from regard.plots.maps import position_map, scores, similarity, weights
    from regard.plots.space import arrows
    from regard.plots.wall import heads

__all__ = [
    "arrows",
    "heads",
    "mean_scores",
    "position_map",
    "regression",
    "score_by_distance",
    "scores",
    "similarity",
    "weights",
]

_HOMES = {
    "arrows": "space",
    "heads": "wall",
    "mean_scores": "distances",
    "position_map": "maps",
    "regression": "curve",
    "score_by_distance": "distances",
    "scores": "maps",
    "similarity": "maps",
    "weights": "maps",
}


def __getattr__(name: str) -> Any:
    """A picture, with matplotlib loaded on first use: the palette is data, and a page reads it without matplotlib."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != "matplotlib":
            raise
        raise RegardError(
            f"plots.{name} draws with matplotlib, which is missing; pip install 'regard[plots]'"
        ) from None
