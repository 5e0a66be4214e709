"""Pictures of attention with matplotlib (`pip install regard[plots]`). Each gives a Figure.

Some take tensors; others take a whole trace, and draw from it what the explorer's pages show.

>>> from regard import plots
>>> plots.weights(weights, ["the", "man", "hit", "the", "car"]).savefig("weights.png")
>>> plots.stages(regard.record(pipeline, "attention"), "dec.0.self", head=1).savefig("stages.svg")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.plots.curve import regression
    from regard.plots.distances import mean_scores, score_by_distance
    from regard.plots.embedded import embedding, embedding_plane
    from regard.plots.lab import stages
    from regard.plots.likely import output
    from regard.plots.links import alignment, alignment_lines
    from regard.plots.maps import position_map, scores, similarity, weights
    from regard.plots.space import arrows
    from regard.plots.stream import block_walk
    from regard.plots.wall import head_wall, heads

__all__ = [
    "alignment",
    "alignment_lines",
    "arrows",
    "block_walk",
    "embedding",
    "embedding_plane",
    "head_wall",
    "heads",
    "mean_scores",
    "output",
    "position_map",
    "regression",
    "score_by_distance",
    "scores",
    "similarity",
    "stages",
    "weights",
]

_HOMES = {
    "alignment": "links",
    "alignment_lines": "links",
    "arrows": "space",
    "block_walk": "stream",
    "embedding": "embedded",
    "embedding_plane": "embedded",
    "head_wall": "wall",
    "heads": "wall",
    "mean_scores": "distances",
    "output": "likely",
    "position_map": "maps",
    "regression": "curve",
    "score_by_distance": "distances",
    "scores": "maps",
    "similarity": "maps",
    "stages": "lab",
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
