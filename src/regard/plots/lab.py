"""The attention lab as a row of maps: one head from dot products to weights."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plots import grid
from regard.plots.figures import Numbers, blank, numbers, place, trim
from regard.plots.labels import token_labels
from regard.plots.maps import ANSWERS, ASKS, largest
from regard.plots.palette import INK, SIGNED, WEIGHTS, head_colour
from regard.plots.traced import allowed, row_labels, texts
from regard.trace import Trace

_ROOM = 3.8  # inches for the longer side of a map
_BESIDE = 1.15  # inches between two maps, for the scale


def stages(trace: Trace, attention: str, head: int = 0, *, title: str = "") -> Figure:
    """One head of one attention at each stage that the trace has: dots, scores, bias, biased, masked, weights.

    Scores have a scale of their own each, with zero in its middle; weights run from 0 to 1. What is −∞ is hatched, and
    so is what gets no weight for it.

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
        says = axes.annotate(formula, (0.5, 1), (0, 3), "axes fraction", "offset points", ha="center", va="bottom")
        says.set(fontsize=7.5, color=INK, parse_math=False)
        grid.name_columns(axes, columns, ANSWERS, cell)
        axes.set_yticks([])
        if number == 0:
            grid.name_rows(axes, rows, ASKS, cell)
    _entitle(figure, title or f"{attention} · head {head}", head)
    return trim(figure)


def _stages(trace: Trace, attention: str) -> list[str]:
    """The maps of an attention in the order in which they arise. What is called `….own` is no map of its own."""
    shape = trace.axes(f"{attention}.weights")
    return [name for name in trace.names if name.rpartition(".")[0] == attention and trace.axes(name) == shape]


def _panel(axes: Axes, table: Numbers, seen: np.ndarray, cell: float, *, weights: bool = False) -> None:
    limit = largest(table[seen])
    ramp, limits = (WEIGHTS, (0.0, 1.0)) if weights else (SIGNED, (-limit, limit))
    letters = min(8.5, cell / 0.062)  # −12.34 is as wide as a cell
    image = grid.draw(axes, table, ramp, limits, allowed=seen, printed=letters >= 6, letters=letters)
    bar = grid.scale_beside(axes, image, "weight" if weights else "")
    if weights and not seen.all():  # said once, at the end
        grid.say_masked(bar)


def _entitle(figure: Figure, title: str, head: int) -> None:
    """The title over all maps, in the middle, underlined in the head's colour."""
    drawn, (across, up) = figure.get_tightbbox(), figure.get_size_inches()
    middle = (drawn.x0 + drawn.x1) / 2 / across
    words = figure.text(middle, (drawn.y1 + 0.15) / up, title, ha="center", va="bottom", fontsize=12, color=INK)
    words.set(parse_math=False, bbox={"facecolor": "#ffffff", "edgecolor": head_colour(head), "linewidth": 1.6})
