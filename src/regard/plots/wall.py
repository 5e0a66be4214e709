"""The wall: every head of every layer of one attention, side by side on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from regard.errors import RegardError, ShapeError
from regard.plots import grid
from regard.plots.figures import Table, blank, flags, numbers, place, tensor, trim
from regard.plots.labels import step_labels, token_labels
from regard.plots.maps import ANSWERS, ASKS, check_weights
from regard.plots.palette import INK, WEIGHTS, head_colour
from regard.plots.traced import allowed as may_look
from regard.plots.traced import predicted, texts
from regard.trace import Trace

_LABELLED = 16  # tokens up to which the outer maps carry them
_WIDEST = 6  # heads side by side when there is one layer alone


def heads(
    weights: Table,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    predicted: Sequence[str] | None = None,
    allowed: Table | None = None,
    title: str = "",
) -> Figure:
    """The weights (layer, head, query, key) of one attention, or (head, query, key) of one layer.

    Each head wears its colour and its number, counted from 0 as everywhere in the code. Other arguments as for
    `plots.weights`.
    """
    given = tensor(weights)
    layered = given.ndim == 4
    table = numbers("weights", given if layered else given[None], "layer head query key")
    layers, count, height, width = table.shape
    visible = flags("allowed", allowed, table.shape)
    check_weights(table, visible)
    keys = queries if keys is None else keys
    if (len(queries), len(keys)) != (height, width):
        raise ShapeError(f"weights are {height} queries × {width} keys; got {len(queries)} and {len(keys)} tokens")
    rows = token_labels(queries) if predicted is None else step_labels(queries, predicted)
    columns = token_labels(keys)

    across = count if layered else _across(count)
    down = layers if layered else math.ceil(count / across)
    labelled = max(height, width) <= _LABELLED
    cell = max(1.15, min(2.2, 12 / across)) / max(height, width)
    figure = blank()
    for layer in range(layers):
        for head in range(count):
            row, column = (layer, head) if layered else divmod(head, across)
            corner = column * (cell * width + 0.16), (down - 1 - row) * (cell * height + 0.32)
            axes = place(figure, *corner, cell * width, cell * height)
            image = grid.draw(axes, table[layer, head], WEIGHTS, (0, 1), allowed=visible[layer, head], printed=False)
            axes.set_title(f"layer {layer} · head {head}" if layered else f"head {head}", fontsize=9, pad=6, color=INK)
            _frame(axes, head_colour(head))
            axes.set(xticks=[], yticks=[])
            if labelled and column == 0:
                grid.name_rows(axes, rows, "", cell)
            if labelled and row == down - 1:
                grid.name_columns(axes, columns, "", cell)
    _finish(figure, image, not visible.all(), title)
    return figure


def head_wall(trace: Trace, kind: str = "cross", *, title: str = "") -> Figure:
    """Every layer and head of the encoder's self-attention, the decoder's, or the cross-attention of a trace."""
    alike = [one for one in trace.attentions if one.kind == kind]
    if not alike:
        kinds = sorted({one.kind for one in trace.attentions})
        way_out = f"give one of {', '.join(map(repr, kinds))}" if kinds else "it has no attention at all"
        raise RegardError(f"this model has no attention of kind {kind!r}; {way_out}")
    first = alike[0]
    return heads(
        torch.stack([trace[f"{one.name}.weights"] for one in alike]),
        texts(trace, first.query),
        texts(trace, first.key),
        predicted=predicted(trace, first.query),
        allowed=torch.stack([may_look(trace, one) for one in alike]),
        title=title,
    )


def _across(count: int) -> int:
    """How many heads of one layer stand side by side: as many as fit, in full rows if that can be."""
    fitting = range(min(count, _WIDEST), 0, -1)
    return next((across for across in fitting if count % across == 0 and across >= count / across), _WIDEST)


def _finish(figure: Figure, image: AxesImage, masked: bool, title: str) -> None:
    """Titles of both axes around all maps, and one scale for all of them."""
    maps, (across, up) = figure.get_tightbbox(), figure.get_size_inches()
    middle, centre = (maps.x0 + maps.x1) / 2, (maps.y0 + maps.y1) / 2
    tall = min(maps.height, 3.0)
    bar = place(figure, maps.x1 + 0.25, centre - tall / 2, 0.16, tall)
    figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1], label="weight").outline.set_visible(False)
    if masked:
        grid.say_masked(bar)
    figure.text((maps.x0 - 0.1) / across, centre / up, ASKS, rotation=90, ha="right", va="center", color=INK)
    figure.text(middle / across, (maps.y0 - 0.1) / up, ANSWERS, ha="center", va="top", color=INK)
    if title:
        figure.text(middle / across, (maps.y1 + 0.12) / up, title, ha="center", va="bottom", fontsize=12, color=INK)
    trim(figure)


def _frame(axes: Axes, colour: str) -> None:
    """The head's colour around its map."""
    for spine in axes.spines.values():
        spine.set(position=("outward", 1.1), color=colour, linewidth=2.2)  # outward by half, to cover no cell
