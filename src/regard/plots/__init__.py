"""Plots of attention with matplotlib (`pip install regard[plots]`). Each returns a Figure.

Some take tensors; others take a trace and draw what the explorer's pages show.

>>> from regard import plots
>>> plots.weights(weights, ["the", "man", "hit", "the", "car"]).savefig("weights.png")
>>> plots.stages(regard.record(pipeline, "attention"), "dec.0.self", head=1).savefig("stages.svg")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.plots.curves import mean_scores, regression, score_by_distance
    from regard.plots.head_maps import head_wall, heads, stages
    from regard.plots.maps import position_map, scores, similarity, weights
    from regard.plots.trace_plots import alignment, alignment_lines, block_walk, output
    from regard.plots.vector_plots import arrows, embedding, embedding_plane

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
    "alignment": "trace_plots",
    "alignment_lines": "trace_plots",
    "arrows": "vector_plots",
    "block_walk": "trace_plots",
    "embedding": "vector_plots",
    "embedding_plane": "vector_plots",
    "head_wall": "head_maps",
    "heads": "head_maps",
    "mean_scores": "curves",
    "output": "trace_plots",
    "position_map": "maps",
    "regression": "curves",
    "score_by_distance": "curves",
    "scores": "maps",
    "similarity": "maps",
    "stages": "head_maps",
    "weights": "maps",
}


def __getattr__(name: str) -> Any:
    """A plot function; matplotlib is loaded on first use, so the palette works without it."""
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
