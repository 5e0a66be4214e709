"""Plots of vectors: embeddings, their PCA projection, and arrows in three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import Axes3D, proj3d  # type: ignore[import-untyped]

from regard.errors import ShapeError
from regard.plots import heat_map
from regard.plots.figures import Numbers, Table, blank, families, flags, numbers, owner, place, trim
from regard.plots.heat_map import spelled, texts, token_labels, visible
from regard.plots.maps import largest
from regard.plots.palette import HEADS, INK, PALE, SIGNED, head_colour
from regard.trace import Trace
from regard.trace.residual_analysis import STACKS, pca_projection

_NAMED = 120  # points up to which every one is named
HERE, OTHERS = HEADS["vermilion"], "#6b6b6b"


def embedding(trace: Trace, side: str = "source", *, title: str = "") -> Figure:
    """The token embeddings, the position vectors and their sum, one below the other on one scale.

    Without an additive position encoding, the embeddings alone.
    """
    labels, begin = token_labels(texts(trace, side)), STACKS[side][0]
    found = [
        name
        for name in (f"{begin}.{part}" for part in ("embed", "position", "sum"))
        if name in trace.names
    ]
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
        image = heat_map.draw(axes, table, SIGNED, (-limit, limit), allowed=seen, printed=False)
        axes.set_aspect("auto")
        axes.set_title(
            name if len(found) > 1 else f"{name} (no position is added)", fontsize=10.5, color=INK
        )
        heat_map.name_rows(axes, labels, "token", tall / len(labels))
        axes.set_xticks([])
        if number == len(found) - 1:
            heat_map.name_columns(axes, [str(i) for i in range(width)], "dimension", cell)
        heat_map.scale_beside(axes, image, "value")
    if title:
        figure.axes[0].set_title(f"{title}\n{figure.axes[0].get_title()}", fontsize=10.5, color=INK)
    return trim(figure)


def embedding_plane(
    trace: Trace, side: str = "source", *, title: str = "", axes: Axes | None = None
) -> Figure:
    """PCA projection of a side's embedding table; the tokens of the sentence are highlighted.

    Of a vocabulary above 2,000, only these tokens and their neighbours are drawn.
    """
    here = {piece.id for piece in trace.pieces(side)}
    ids, points, explained = pca_projection(trace, side)
    alone = axes is None
    if axes is None:
        axes = place(blank(), 0, 0, 5.6, 5.0)
    tokenizer = getattr(trace.pipeline.bundle, side)
    _points(
        axes,
        points.numpy(),
        [visible(spelled(tokenizer.label(id))) for id in ids],
        [id in here for id in ids],
    )
    for axis, number, share in zip(
        (axes.xaxis, axes.yaxis), ("first", "second"), explained, strict=True
    ):
        axis.set_label_text(f"{number} component ({100 * share:.1f} % of the variance)")
    axes.set_title(title or f"{len(ids):,} of {len(tokenizer):,} {side} embeddings")
    return trim(owner(axes)) if alone else owner(axes)


def _points(axes: Axes, points: np.ndarray, labels: list[str], here: list[bool]) -> None:
    """A labelled dot per token, larger for the sentence's; of many, only those are labelled."""
    axes.axhline(0, color="#e4e4e4", linewidth=0.8, zorder=0)
    axes.axvline(0, color="#e4e4e4", linewidth=0.8, zorder=0)
    found, (x, y) = np.array(here), points.T
    axes.scatter(x[~found], y[~found], s=9, color=OTHERS, linewidth=0, label="others")
    axes.scatter(
        x[found], y[found], s=36, color=HERE, linewidth=0, label="in this sentence", zorder=3
    )
    for point, label, named in zip(points, labels, here, strict=True):
        if named or len(points) <= _NAMED:
            word = axes.annotate(
                label, tuple(point), (4, 3), textcoords="offset points", fontsize=10 if named else 8
            )
            word.set(parse_math=False, fontfamily=families(), color=INK if named else OTHERS)
            word.set_fontweight("bold" if named else "normal")
            word.set(
                zorder=5 if named else 2,
                path_effects=[withStroke(linewidth=2, foreground="#ffffff")],
            )
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)


def arrows(
    vectors: Table,
    labels: Sequence[str],
    *,
    after: Table | None = None,
    titles: tuple[str, str] = ("before attention", "after attention"),
    view: tuple[float, float] = (22, -55),
) -> Figure:
    """Arrows from the origin to vectors (vector, 3), each with its label.

    `after` are the same vectors later, drawn next to them with the same colours and limits. `view`
    is the elevation and azimuth of the camera in degrees.
    """
    given = [vectors] if after is None else [vectors, after]
    tables = [
        numbers(name, table, "vector 3")
        for name, table in zip(("vectors", "after"), given, strict=False)
    ]
    for name, table in zip(("vectors", "after"), tables, strict=False):
        if table.shape[1] != 3:
            raise ShapeError(f"{name} must have 3 dimensions; got {table.shape[1]}")
        if len(table) != len(labels):
            raise ShapeError(
                f"{name} has {len(table)} vectors, but there are {len(labels)} labels; give one "
                "for each"
            )
    limit = 1.05 * max(float(np.abs(table).max()) for table in tables) or 1.0
    figure = blank()
    for number, table in enumerate(tables):
        # 3D axes read the style of their grid when they are created.
        with rc_context({"grid.color": "#e4e4e4", "grid.linewidth": 0.6}):
            axes = place(figure, 4.7 * number, 0, 4.6, 4.4, projection="3d")
        _set_up_axes(axes, limit, view)
        _draw(axes, table, token_labels(labels))
        if after is not None:
            axes.set_title(titles[number], y=1.0, color=INK)
    return trim(figure)


def _set_up_axes(axes: Axes3D, limit: float, view: tuple[float, float]) -> None:
    """Set up three axes with the same scale, the view and the zero lines."""
    axes.set(
        xlim=(-limit, limit),
        ylim=(-limit, limit),
        zlim=(-limit, limit),
        xlabel="x₁",
        ylabel="x₂",
        zlabel="x₃",
    )
    axes.set_box_aspect((1, 1, 1), zoom=1.0)
    axes.view_init(elev=view[0], azim=view[1])
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_pane_color("#ffffff")
    axes.tick_params(labelsize=7, pad=0)
    for direction in np.eye(3) * limit:
        axes.plot(*zip(-direction, direction, strict=True), color=PALE, linewidth=0.9)


def _draw(axes: Axes3D, table: Numbers, labels: Sequence[str]) -> None:
    for number, vector in enumerate(table):
        axes.quiver(
            0, 0, 0, *vector, color=head_colour(number), linewidth=2.2, arrow_length_ratio=0.09
        )
        axes.scatter(*vector, color=head_colour(number), s=6)  # shows vectors of length zero
    texts = []
    for number, (label, vector) in enumerate(zip(labels, table, strict=True)):
        frame = {
            "boxstyle": "round,pad=0.2",
            "facecolor": "#ffffff",
            "edgecolor": head_colour(number),
            "linewidth": 1.4,
        }
        text = axes.text(
            *vector, label, color=INK, fontsize=8.5, ha="center", va="center", bbox=frame, zorder=10
        )
        text.set(parse_math=False, fontfamily=families())
        texts.append(text)
    _move_apart(axes, texts)


MAX_MOVES = 400  # upward moves per label; in a view from above they have no effect


def _move_apart(axes: Axes3D, texts: Sequence[Any]) -> None:
    """Move labels up from their arrow tips until none covers a tip or another label."""
    projection, lift = axes.get_proj(), 0.01 * axes.get_zlim()[1]
    tips = [_pixel(axes, text.get_position_3d(), projection) for text in texts]
    taken = [(tip, np.array([1.0, 1.0])) for tip in tips]
    for i in np.argsort([tip[1] for tip in tips], kind="stable"):
        extent = texts[i].get_window_extent()
        half = np.array([extent.width / 2 + 6, extent.height / 2 + 5])  # and the frame around it
        x, y, z = texts[i].get_position_3d()
        for _ in range(MAX_MOVES):
            here = _pixel(axes, (x, y, z), projection)
            if not any((np.abs(here - other) < half + size).all() for other, size in taken):
                break
            z += lift
        texts[i].set_position_3d((x, y, z))
        taken.append((_pixel(axes, (x, y, z), projection), half))


def _pixel(axes: Axes3D, place: Sequence[float], projection: Numbers) -> Numbers:
    """The pixel of a point in space."""
    x, y, _ = proj3d.proj_transform(*place, projection)
    return np.asarray(axes.transData.transform((x, y)))
