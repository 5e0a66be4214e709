"""Embedding: the vectors a sentence begins with, and where its tokens lie among their vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from regard.plots import grid
from regard.plots.figures import blank, families, flags, numbers, owner, place, trim
from regard.plots.labels import token_labels, visible
from regard.plots.maps import largest
from regard.plots.palette import HEADS, INK, SIGNED
from regard.plots.traced import spelled, texts
from regard.trace import Trace
from regard.trace.embedding_space import placed
from regard.trace.residual_norms import STACKS

_NAMED = 120  # points up to which every one is named
HERE, OTHERS = HEADS["vermilion"], "#6b6b6b"


def embedding(trace: Trace, side: str = "source", *, title: str = "") -> Figure:
    """The token vectors, what their positions add, and the sum, one above the other on one scale.

    Where no position is added the sum is the embedding, and one map is all.
    """
    labels, begin = token_labels(texts(trace, side)), STACKS[side][0]
    found = [name for name in (f"{begin}.{part}" for part in ("embed", "position", "sum")) if name in trace.names]
    if found[1:] == [f"{begin}.sum"] and torch.equal(*(trace[name] for name in found)):
        found = found[:1]
    tables = {name: numbers(name, trace[name], "token width") for name in found}
    limit = max(largest(table) for table in tables.values())
    width = tables[found[0]].shape[1]
    cell, tall = 7.2 / width, min(0.24, 9 / len(labels)) * len(labels)
    figure = blank()
    for number, (name, table) in enumerate(tables.items()):
        axes = place(figure, 0, -number * (tall + 0.42), 7.2, tall)
        seen = flags("allowed", None, table.shape)
        image = grid.draw(axes, table, SIGNED, (-limit, limit), allowed=seen, printed=False)
        axes.set_aspect("auto")
        axes.set_title(name if len(found) > 1 else f"{name} (no position is added)", fontsize=10.5, color=INK)
        grid.name_rows(axes, labels, "token", tall / len(labels))
        axes.set_xticks([])
        if number == len(found) - 1:
            grid.name_columns(axes, [str(i) for i in range(width)], "dimension", cell)
        grid.scale_beside(axes, image, "value")
    if title:
        figure.axes[0].set_title(f"{title}\n{figure.axes[0].get_title()}", fontsize=10.5, color=INK)
    return trim(figure)


def embedding_plane(trace: Trace, side: str = "source", *, title: str = "", axes: Axes | None = None) -> Figure:
    """The embedding table of a side on the plane of its greatest variance; the tokens of the sentence stand out.

    Of a vocabulary of more than 2,000 the tokens and their nearest are drawn.
    """
    here = {piece.id for piece in trace.pieces(side)}
    ids, points, explained = placed(trace, side)
    alone = axes is None
    if axes is None:
        axes = place(blank(), 0, 0, 5.6, 5.0)
    tokenizer = getattr(trace.pipeline.bundle, side)
    _points(axes, points.numpy(), [visible(spelled(tokenizer.label(id))) for id in ids], [id in here for id in ids])
    for axis, number, share in zip((axes.xaxis, axes.yaxis), ("first", "second"), explained, strict=True):
        axis.set_label_text(f"{number} component ({100 * share:.1f} % of the variance)")
    axes.set_title(title or f"{len(ids):,} of {len(tokenizer):,} {side} embeddings")
    return trim(owner(axes)) if alone else owner(axes)


def _points(axes: Axes, points: np.ndarray, labels: list[str], here: list[bool]) -> None:
    """A dot with its name for each; those of the sentence last and larger. Of many, only those are named."""
    axes.axhline(0, color="#e4e4e4", linewidth=0.8, zorder=0)
    axes.axvline(0, color="#e4e4e4", linewidth=0.8, zorder=0)
    found, (x, y) = np.array(here), points.T
    axes.scatter(x[~found], y[~found], s=9, color=OTHERS, linewidth=0, label="others")
    axes.scatter(x[found], y[found], s=36, color=HERE, linewidth=0, label="in this sentence", zorder=3)
    for point, label, named in zip(points, labels, here, strict=True):
        if named or len(points) <= _NAMED:
            word = axes.annotate(label, tuple(point), (4, 3), textcoords="offset points", fontsize=10 if named else 8)
            word.set(parse_math=False, fontfamily=families(), color=INK if named else OTHERS)
            word.set_fontweight("bold" if named else "normal")
            word.set(zorder=5 if named else 2, path_effects=[withStroke(linewidth=2, foreground="#ffffff")])
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
