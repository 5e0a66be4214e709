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
from regard.plots.heat_map import (
    allowed,
    predicted,
    row_labels,
    step_labels,
    texts,
    token_labels,
)
from regard.plots.heat_map import allowed as allowed_keys
from regard.plots.maps import KEY_TITLE, QUERY_TITLE, check_masked, largest, weight_scale
from regard.plots.palette import INK, SIGNED, Ramp, head_colour
from regard.trace import Trace

_LABELLED = 16  # tokens up to which the outer maps have labels
_WIDEST = 6  # heads per row for a single layer

Scale = tuple[Ramp, tuple[float, float]]


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

    Each head has its colour and its number, counted from 0. Other arguments as for `plots.weights`.
    """
    given = tensor(weights)
    layered = given.ndim == 4
    table = numbers("weights", given if layered else given[None], "layer head query key")
    layers, count, height, width = table.shape
    visible = flags("allowed", allowed, table.shape)
    check_masked(table, visible)
    scale = weight_scale(table)
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
        image = _head_map(axes, table[layer, head], scale, visible[layer, head], head)
        if layered:
            axes.set_title(f"layer {layer} · head {head}", fontsize=9, pad=6, color=INK)
        if labelled and column == 0:
            heat_map.name_rows(axes, rows, "", cell)
        if labelled and row == down - 1:
            heat_map.name_columns(axes, columns, "", cell)
    _finish(figure, image, not visible.all(), title)
    return figure


def _head_map(
    axes: Axes, weights: Numbers, scale: Scale, visible: np.ndarray, head: int
) -> AxesImage:
    """Draw one head's weights without tokens, framed in the head's colour."""
    image = heat_map.draw(axes, weights, *scale, allowed=visible, printed=False)
    axes.set_title(f"head {head}", fontsize=9, pad=6, color=INK)
    _frame(axes, head_colour(head))
    axes.set(xticks=[], yticks=[])
    return image


def head_wall(trace: Trace, kind: str = "cross", *, title: str = "") -> Figure:
    """All layers and heads of one kind of attention: encoder, decoder or cross."""
    found = [one for one in trace.attentions if one.kind == kind]
    if not found:
        kinds = sorted({one.kind for one in trace.attentions})
        fix = f"choose from {', '.join(map(repr, kinds))}" if kinds else "it has no attention"
        raise RegardError(f"this model has no attention of kind {kind!r}; {fix}")
    first = found[0]
    return heads(
        torch.stack([trace[f"{one.name}.weights"] for one in found]),
        texts(trace, first.query),
        texts(trace, first.key),
        predicted=predicted(trace, first.query),
        allowed=torch.stack([allowed_keys(trace, one) for one in found]),
        title=title,
    )


def _across(count: int) -> int:
    """The number of heads per row of a single layer; rows are full if possible."""
    fitting = range(min(count, _WIDEST), 0, -1)
    return next(
        (across for across in fitting if count % across == 0 and across >= count / across), _WIDEST
    )


def _finish(figure: Figure, image: AxesImage, masked: bool, title: str) -> None:
    """Add the titles of both axes around all maps, and one colour scale."""
    maps, (across, up) = figure.get_tightbbox(), figure.get_size_inches()
    middle, centre = (maps.x0 + maps.x1) / 2, (maps.y0 + maps.y1) / 2
    tall = min(maps.height, 3.0)
    bar = place(figure, maps.x1 + 0.25, centre - tall / 2, 0.16, tall)
    low, high = image.get_clim()
    ticks = [low, (low + high) / 2, high]
    figure.colorbar(image, cax=bar, ticks=ticks, label="weight").outline.set_visible(False)
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
    """Frame a map in the colour of its head."""
    for spine in axes.spines.values():
        # Outward by half its width, so that it covers no cell.
        spine.set(position=("outward", 1.1), color=colour, linewidth=2.2)


_SIDE = 3.8  # inches for the longer side of a map
_GAP = 1.15  # inches between two maps, for the scale


def stages(trace: Trace, attention: str, head: int = 0, *, title: str = "") -> Figure:
    """One head of an attention at each recorded stage: dots, scores, bias, biased, masked, weights.

    Each stage of scores has its own signed scale. Masked keys (−∞) are hatched.

    >>> stages(regard.record(pipeline, "attention"), "dec.0.self", head=1)
    """
    one = trace.program.attention(attention)
    one.check_head(head)
    names = _stages(trace, attention)
    rows, columns = row_labels(trace, one.query), token_labels(texts(trace, one.key))
    cell = min(0.5, _SIDE / max(len(rows), len(columns)))
    figure, wide = blank(), cell * len(columns)
    for number, name in enumerate(names):
        axes = place(figure, number * (wide + _GAP), 0, wide, cell * len(rows))
        table = trace[name][head]
        if name == f"{attention}.weights":
            seen = allowed(trace, one)[head].numpy()
            _panel(axes, numbers(name, table, "query key"), seen, cell, weights=True)
        else:
            seen = ~table.isneginf().numpy()
            _panel(axes, numbers(name, table.where(~table.isneginf(), 0), "query key"), seen, cell)
        axes.set_title(name.removeprefix(f"{attention}."), fontsize=10.5, color=INK, pad=18)
        operation = trace.operation(name)
        formula = "no mask" if operation.kind == "copy" else operation.formula
        caption = axes.annotate(
            formula, (0.5, 1), (0, 3), "axes fraction", "offset points", ha="center", va="bottom"
        )
        caption.set(fontsize=7.5, color=INK, parse_math=False)
        heat_map.name_columns(axes, columns, KEY_TITLE, cell)
        axes.set_yticks([])
        if number == 0:
            heat_map.name_rows(axes, rows, QUERY_TITLE, cell)
    _add_title(figure, title or f"{attention} · head {head}", head)
    return trim(figure)


def _stages(trace: Trace, attention: str) -> list[str]:
    """The query–key maps of an attention in order of computation, without edited originals."""
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
    ramp, limits = weight_scale(table) if weights else (SIGNED, (-limit, limit))
    letters = min(8.5, cell / 0.062)  # −12.34 is as wide as a cell
    image = heat_map.draw(
        axes, table, ramp, limits, allowed=seen, printed=letters >= 6, letters=letters
    )
    bar = heat_map.scale_beside(axes, image, "weight" if weights else "")
    if weights and not seen.all():
        heat_map.add_mask_legend(bar)


def _add_title(figure: Figure, title: str, head: int) -> None:
    """Add the title above all maps, framed in the colour of the head."""
    drawn, (across, up) = figure.get_tightbbox(), figure.get_size_inches()
    middle = (drawn.x0 + drawn.x1) / 2 / across
    words = figure.text(
        middle, (drawn.y1 + 0.15) / up, title, ha="center", va="bottom", fontsize=12, color=INK
    )
    words.set(
        parse_math=False,
        bbox={"facecolor": "#ffffff", "edgecolor": head_colour(head), "linewidth": 1.6},
    )
