"""Alignment plots: cross-attention weights as a matrix with links, and as lines."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.plots.figures import Numbers, blank, families, numbers, owner, place, trim
from regard.plots.maps import weights
from regard.plots.palette import HEADS, INK
from regard.plots.token_labels import predicted, row_labels, texts, token_labels
from regard.trace import Trace
from regard.trace.attention_analysis import MEAN, alignment_matrix, links

LINK, OTHER = HEADS["vermilion"], HEADS["blue"]
_THICK = 7.0  # points that a line of weight 1 is wide
_SEEN = 0.01  # the least weight that is drawn as a line


def alignment(
    trace: Trace,
    attention: str = MEAN,
    head: int | None = None,
    *,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """Cross-attention weights (target, source) of one attention or the mean of all, with links.

    A frame marks link i-j: target token j gives source token i its largest weight. A token whose
    largest weight is on the end has no link.
    """
    matrix = alignment_matrix(trace, attention, head)
    words = texts(trace, "target"), texts(trace, "source")
    following = predicted(trace, "target")
    figure = weights(
        matrix, *words, predicted=following, title=title or _named(attention, head), axes=axes
    )
    drawn = figure.axes[0] if axes is None else axes
    frame = {"fill": False, "edgecolor": LINK, "linewidth": 2.2, "zorder": 3}
    for i, j in links(matrix):
        drawn.add_patch(Rectangle((i - 0.46, j - 0.46), 0.92, 0.92, **frame))  # type: ignore[arg-type]
    key = Rectangle((0, 0), 1, 1, **frame)  # type: ignore[arg-type]
    drawn.legend(
        [key],
        ["link i-j"],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        borderaxespad=0.2,
        frameon=False,
    )
    return figure if axes is not None else trim(figure)


def alignment_lines(
    trace: Trace, attention: str = MEAN, head: int | None = None, *, title: str = ""
) -> Figure:
    """The same as lines from the source to the answer, as thick as the weight; links stand out.
    Less than 0.01 of weight leaves no line."""
    matrix = numbers("weights", alignment_matrix(trace, attention, head), "target source")
    left, right = token_labels(texts(trace, "source")), row_labels(trace, "target")
    count = max(len(left), len(right))
    line = max(0.15, min(0.3, 12 / count))  # inches
    tall = line * count
    axes = place(blank(), 0, 0, 3.2, tall)
    heights = [np.linspace(tall, 0, 2 * len(side) + 1)[1::2] for side in (left, right)]
    _lines(axes, matrix, *heights)
    for x, side, labels, places in (
        (-0.02, "right", left, heights[0]),
        (1.02, "left", right, heights[1]),
    ):
        for y, label in zip(places, labels, strict=True):
            word = axes.text(
                x, y, label, ha=side, va="center", fontsize=min(10, 47 * line), color=INK
            )
            word.set(parse_math=False, fontfamily=families())
    axes.set(xlim=(0, 1), ylim=(0, tall), xticks=[], yticks=[])
    axes.set_frame_on(False)
    axes.annotate(
        "key (is matched)", (0, 1), (-2, 6), "axes fraction", "offset points", ha="right", color=INK
    )
    axes.annotate(
        "query (attends)", (1, 1), (2, 6), "axes fraction", "offset points", ha="left", color=INK
    )
    axes.set_title(title or _named(attention, head), pad=26)
    return trim(owner(axes))


def _lines(axes: Axes, matrix: Numbers, left: Numbers, right: Numbers) -> None:
    """All lines, the links last, so that they lie on top."""
    linked = {(i, j) for i, j in links(torch.from_numpy(matrix))}
    drawn = [(i, j) for j, i in np.argwhere(matrix >= _SEEN).tolist()]
    drawn.sort(key=lambda pair: (pair in linked, matrix[pair[1], pair[0]]))
    axes.add_collection(
        LineCollection(
            [[(0, left[i]), (1, right[j])] for i, j in drawn],
            linewidths=[_THICK * matrix[j, i] for i, j in drawn],
            colors=[LINK if pair in linked else OTHER for pair in drawn],
            alpha=0.8,
            capstyle="round",
        )
    )


def _named(attention: str, head: int | None) -> str:
    if attention == MEAN:
        return "alignment, mean of all heads"
    return f"{attention} · head {head}" if head is not None else f"{attention}, mean of its heads"
