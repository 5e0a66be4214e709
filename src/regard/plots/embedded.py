"""Embedding: the vectors a sentence begins with, and where its tokens lie among their vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from torch import Tensor

from regard.plots import grid
from regard.plots.figures import blank, families, flags, numbers, owner, place, trim
from regard.plots.labels import token_labels, visible
from regard.plots.maps import largest
from regard.plots.palette import HEADS, INK, SIGNED
from regard.plots.stream import STACKS
from regard.plots.traced import Traced, own, spelled, texts
from regard.vectors import similarities

WHOLE, AROUND = 2_000, 20  # a larger vocabulary is shown by the tokens and this many neighbours of each
_NAMED = 120  # points up to which every one is named
HERE, OTHERS = HEADS["vermilion"], "#6b6b6b"


def embedding(trace: Traced, side: str = "source", *, title: str = "") -> Figure:
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


def embedding_plane(trace: Traced, side: str = "source", *, title: str = "", axes: Axes | None = None) -> Figure:
    """The embedding table of a side on the plane of its greatest variance; the tokens of the sentence stand out.

    Of a vocabulary of more than 2,000 the tokens and their nearest are drawn.
    """
    texts(trace, side)
    table = trace.numbers[trace.operation(own(trace, f"{STACKS[side][0]}.embed")).weights[0]].float()
    pieces = trace.source if side == "source" else trace.target
    here = sorted({piece.id for piece in pieces})
    shown = list(range(len(table)))
    if len(table) > WHOLE:
        near = similarities(table[here], table).topk(AROUND + 1).indices
        shown = sorted({*here, *near.flatten().tolist()})
    points, explained = plane(table[shown])
    alone = axes is None
    if axes is None:
        axes = place(blank(), 0, 0, 5.6, 5.0)
    tokenizer = getattr(trace.transducer.bundle, side)
    _points(axes, points.numpy(), [visible(spelled(tokenizer.label(id))) for id in shown], [id in here for id in shown])
    for axis, number, share in zip((axes.xaxis, axes.yaxis), ("first", "second"), explained, strict=True):
        axis.set_label_text(f"{number} component ({100 * share:.1f} % of the variance)")
    axes.set_title(title or f"{len(shown):,} of {len(table):,} {side} embeddings")
    return trim(owner(axes)) if alone else owner(axes)


def plane(vectors: Float[Tensor, "vector width"]) -> tuple[Float[Tensor, "vector 2"], tuple[float, float]]:
    """Vectors on their two principal components, and the share of the variance that each explains.

    The greatest entry of a component is positive: its sign is a convention, and so pictures do not flip.
    """
    centred = vectors.double() - vectors.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    places = torch.zeros(len(vectors), 2, dtype=torch.float64)
    shares = torch.zeros(2, dtype=torch.float64)
    count = min(2, len(sizes))  # one vector, or vectors of one dimension, span less than a plane
    places[:, :count] = centred @ (directions * signs)[:count].T
    shares[:count] = (sizes.square() / sizes.square().sum().clamp_min(1e-300))[:count]
    return places, (float(shares[0]), float(shares[1]))


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
