"""Arrows in space: vectors of three dimensions, and where attention moved them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import Axes3D, proj3d  # type: ignore[import-untyped]

from regard.errors import ShapeError
from regard.plots.figures import Numbers, Table, blank, families, numbers, place, trim
from regard.plots.labels import token_labels
from regard.plots.palette import INK, PALE, head_colour


def arrows(
    vectors: Table,
    labels: Sequence[str],
    *,
    after: Table | None = None,
    titles: tuple[str, str] = ("before attention", "after attention"),
    view: tuple[float, float] = (22, -55),
) -> Figure:
    """Arrows from the origin to vectors (vector, 3), each with its label; with `after`, the same vectors afterwards
    beside them, in the same colours and the same limits. `view` is the eye's elevation and azimuth in degrees.
    """
    given = [vectors] if after is None else [vectors, after]
    tables = [numbers(name, table, "vector 3") for name, table in zip(("vectors", "after"), given, strict=False)]
    for name, table in zip(("vectors", "after"), tables, strict=False):
        if table.shape[1] != 3:
            raise ShapeError(f"{name} must have 3 dimensions to be drawn in space; got {table.shape[1]}")
        if len(table) != len(labels):
            raise ShapeError(f"{name} are {len(table)} but there are {len(labels)} labels; give one for each")
    limit = 1.05 * max(float(np.abs(table).max()) for table in tables) or 1.0
    figure = blank()
    for number, table in enumerate(tables):
        with rc_context({"grid.color": "#e4e4e4", "grid.linewidth": 0.6}):  # axes in space take these when made
            axes = place(figure, 4.7 * number, 0, 4.6, 4.4, projection="3d")
        _space(axes, limit, view)
        _draw(axes, table, token_labels(labels))
        if after is not None:
            axes.set_title(titles[number], y=1.0, color=INK)
    return trim(figure)


def _space(axes: Axes3D, limit: float, view: tuple[float, float]) -> None:
    """Three axes of one scale, seen from one side, and their zero lines."""
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), zlim=(-limit, limit), xlabel="x₁", ylabel="x₂", zlabel="x₃")
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
        axes.quiver(0, 0, 0, *vector, color=head_colour(number), linewidth=2.2, arrow_length_ratio=0.09)
        axes.scatter(*vector, color=head_colour(number), s=6)  # a vector of length zero is still to be seen
    texts = []
    for number, (label, vector) in enumerate(zip(labels, table, strict=True)):
        frame = {
            "boxstyle": "round,pad=0.2",
            "facecolor": "#ffffff",
            "edgecolor": head_colour(number),
            "linewidth": 1.4,
        }
        text = axes.text(*vector, label, color=INK, fontsize=8.5, ha="center", va="center", bbox=frame, zorder=10)
        text.set(parse_math=False, fontfamily=families())
        texts.append(text)
    _move_apart(axes, texts)


HIGHEST = 400  # lifts; seen from above, none of them moves a label


def _move_apart(axes: Axes3D, texts: Sequence[Any]) -> None:
    """Labels stand over the tips of their arrows; each is lifted until it covers no tip and no label below it."""
    projection, lift = axes.get_proj(), 0.01 * axes.get_zlim()[1]
    tips = [_seen(axes, text.get_position_3d(), projection) for text in texts]
    taken = [(tip, np.array([1.0, 1.0])) for tip in tips]
    for i in np.argsort([tip[1] for tip in tips], kind="stable"):
        extent = texts[i].get_window_extent()
        half = np.array([extent.width / 2 + 6, extent.height / 2 + 5])  # and the frame around it
        x, y, z = texts[i].get_position_3d()
        for _ in range(HIGHEST):
            here = _seen(axes, (x, y, z), projection)
            if not any((np.abs(here - other) < half + size).all() for other, size in taken):
                break
            z += lift
        texts[i].set_position_3d((x, y, z))
        taken.append((_seen(axes, (x, y, z), projection), half))


def _seen(axes: Axes3D, place: Sequence[float], projection: Numbers) -> Numbers:
    """The pixel on which a place in space falls."""
    x, y, _ = proj3d.proj_transform(*place, projection)
    return np.asarray(axes.transData.transform((x, y)))
