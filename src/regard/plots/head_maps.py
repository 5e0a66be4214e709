"""Maps of attention heads: all heads of an attention, or one head stage by stage."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from regard.errors import RegardError, ShapeError
from regard.plots import heat_map
from regard.plots.figures import Numbers, Table, blank, flags, numbers, place, tensor, trim
from regard.plots.maps import KEY_TITLE, QUERY_TITLE, check_weights, largest
from regard.plots.palette import INK, SIGNED, WEIGHTS, head_colour
from regard.plots.token_labels import (
    allowed,
    predicted,
    row_labels,
    step_labels,
    texts,
    token_labels,
)
from regard.plots.token_labels import allowed as may_look
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

    Each head wears its colour and its number, counted from 0 as everywhere in the code. Other
    arguments as for `plots.weights`.
    """
    given = tensor(weights)
    layered = given.ndim == 4
    table = numbers("weights", given if layered else given[None], "layer head query key")
    layers, count, height, width = table.shape
    visible = flags("allowed", allowed, table.shape)
    check_weights(table, visible)
    keys = queries if keys is None else keys
    if (len(queries), len(keys)) != (height, width):
        raise ShapeError(
            f"weights are {height} queries × {width} keys; got {len(queries)} and {len(keys)} "
            "tokens"
        )
    rows = token_labels(queries) if predicted is None else step_labels(queries, predicted)
    columns = token_labels(keys)

    across = count if layered else _across(count)
    down = layers if layered else math.ceil(count / across)
    labelled = max(height, width) <= _LABELLED
    cell = max(1.15, min(2.2, 12 / across)) / max(height, width)
    figure = blank()
    for layer, head in itertools.product(range(layers), range(count)):
        row, column = (layer, head) if layered else divmod(head, across)
        corner = column * (cell * width + 0.16), (down - 1 - row) * (cell * height + 0.32)
        axes = place(figure, *corner, cell * width, cell * height)
        image = _head_map(axes, table[layer, head], visible[layer, head], head)
        if layered:
            axes.set_title(f"layer {layer} · head {head}", fontsize=9, pad=6, color=INK)
        if labelled and column == 0:
            heat_map.name_rows(axes, rows, "", cell)
        if labelled and row == down - 1:
            heat_map.name_columns(axes, columns, "", cell)
    _finish(figure, image, not visible.all(), title)
    return figure


def _head_map(axes: Axes, weights: Numbers, visible: np.ndarray, head: int) -> AxesImage:
    """Draw one head's weights without tokens, framed in the head's colour."""
    image = heat_map.draw(axes, weights, WEIGHTS, (0, 1), allowed=visible, printed=False)
    axes.set_title(f"head {head}", fontsize=9, pad=6, color=INK)
    _frame(axes, head_colour(head))
    axes.set(xticks=[], yticks=[])
    return image


def head_wall(trace: Trace, kind: str = "cross", *, title: str = "") -> Figure:
    """All layers and heads of one kind of attention: encoder, decoder or cross."""
    alike = [one for one in trace.attentions if one.kind == kind]
    if not alike:
        kinds = sorted({one.kind for one in trace.attentions})
        way_out = (
            f"give one of {', '.join(map(repr, kinds))}" if kinds else "it has no attention at all"
        )
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
    """The number of heads per row of a single layer; rows are full if possible."""
    fitting = range(min(count, _WIDEST), 0, -1)
    return next(
        (across for across in fitting if count % across == 0 and across >= count / across), _WIDEST
    )


def _finish(figure: Figure, image: AxesImage, masked: bool, title: str) -> None:
    """Titles of both axes around all maps, and one scale for all of them."""
    maps, (across, up) = figure.get_tightbbox(), figure.get_size_inches()
    middle, centre = (maps.x0 + maps.x1) / 2, (maps.y0 + maps.y1) / 2
    tall = min(maps.height, 3.0)
    bar = place(figure, maps.x1 + 0.25, centre - tall / 2, 0.16, tall)
    figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1], label="weight").outline.set_visible(False)
    if masked:
        heat_map.add_mask_legend(bar)
    figure.text(
        (maps.x0 - 0.1) / across,
        centre / up,
        QUERY_TITLE,
        rotation=90,
        ha="right",
        va="center",
        color=INK,
    )
    figure.text(middle / across, (maps.y0 - 0.1) / up, KEY_TITLE, ha="center", va="top", color=INK)
    if title:
        figure.text(
            middle / across,
            (maps.y1 + 0.12) / up,
            title,
            ha="center",
            va="bottom",
            fontsize=12,
            color=INK,
        )
    trim(figure)


def _frame(axes: Axes, colour: str) -> None:
    """The head's colour around its map."""
    for spine in axes.spines.values():
        spine.set(
            position=("outward", 1.1), color=colour, linewidth=2.2
        )  # outward by half, to cover no cell


_ROOM = 3.8  # inches for the longer side of a map
_BESIDE = 1.15  # inches between two maps, for the scale


def stages(trace: Trace, attention: str, head: int = 0, *, title: str = "") -> Figure:
    """One head of one attention at each stage that the trace has: dots, scores, bias, biased,
    masked, weights.

    Scores have a scale of their own each, with zero in its middle; weights run from 0 to 1. What is
    −∞ is hatched, and so is what gets no weight for it.

    >>> stages(regard.record(pipeline, "attention"), "dec.0.self", head=1)
    """
    one = trace.program.attention(attention)
    one.check_head(head)
    names = _stages(trace, attention)
    rows, columns = row_labels(trace, one.query), token_labels(texts(trace, one.key))
    cell = min(0.5, _ROOM / max(len(rows), len(columns)))
    figure, wide = blank(), cell * len(columns)
    for number, name in enumerate(names):
        axes = place(figure, number * (wide + _BESIDE), 0, wide, cell * len(rows))
        table = trace[name][head]
        if name == f"{attention}.weights":
            seen = allowed(trace, one)[head].numpy()
            _panel(axes, numbers(name, table, "query key"), seen, cell, weights=True)
        else:
            seen = ~table.isneginf().numpy()
            _panel(axes, numbers(name, table.where(~table.isneginf(), 0), "query key"), seen, cell)
        axes.set_title(name.removeprefix(f"{attention}."), fontsize=10.5, color=INK, pad=18)
        operation = trace.operation(name)
        formula = "nothing is hidden" if operation.kind == "copy" else operation.formula
        says = axes.annotate(
            formula, (0.5, 1), (0, 3), "axes fraction", "offset points", ha="center", va="bottom"
        )
        says.set(fontsize=7.5, color=INK, parse_math=False)
        heat_map.name_columns(axes, columns, KEY_TITLE, cell)
        axes.set_yticks([])
        if number == 0:
            heat_map.name_rows(axes, rows, QUERY_TITLE, cell)
    _entitle(figure, title or f"{attention} · head {head}", head)
    return trim(figure)


def _stages(trace: Trace, attention: str) -> list[str]:
    """The maps of an attention in the order in which they arise.

    What is called `….own` is no map of its own.
    """
    shape = trace.axes(f"{attention}.weights")
    return [
        name
        for name in trace.names
        if name.rpartition(".")[0] == attention and trace.axes(name) == shape
    ]


def _panel(
    axes: Axes, table: Numbers, seen: np.ndarray, cell: float, *, weights: bool = False
) -> None:
    limit = largest(table[seen])
    ramp, limits = (WEIGHTS, (0.0, 1.0)) if weights else (SIGNED, (-limit, limit))
    letters = min(8.5, cell / 0.062)  # −12.34 is as wide as a cell
    image = heat_map.draw(
        axes, table, ramp, limits, allowed=seen, printed=letters >= 6, letters=letters
    )
    bar = heat_map.scale_beside(axes, image, "weight" if weights else "")
    if weights and not seen.all():  # said once, at the end
        heat_map.add_mask_legend(bar)


def _entitle(figure: Figure, title: str, head: int) -> None:
    """The title over all maps, in the middle, underlined in the head's colour."""
    drawn, (across, up) = figure.get_tightbbox(), figure.get_size_inches()
    middle = (drawn.x0 + drawn.x1) / 2 / across
    words = figure.text(
        middle, (drawn.y1 + 0.15) / up, title, ha="center", va="bottom", fontsize=12, color=INK
    )
    words.set(
        parse_math=False,
        bbox={"facecolor": "#ffffff", "edgecolor": head_colour(head), "linewidth": 1.6},
    )
