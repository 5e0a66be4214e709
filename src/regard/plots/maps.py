"""Labelled heat maps: weights, scores, position vectors and cosines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.errors import RegardError, ShapeError
from regard.plots import heat_map
from regard.plots.figures import Flags, Numbers, Table, blank, flags, numbers, owner, place, trim
from regard.plots.heat_map import step_labels, token_labels
from regard.plots.palette import SIGNED, WEIGHTS, Ramp
from regard.vectors import similarities

QUERY_TITLE, KEY_TITLE = "query (attends)", "key (is matched)"


def weights(
    weights: Table,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    predicted: Sequence[str] | None = None,
    allowed: Table | None = None,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """The weights (query, key) of one head, on the scale from 0 to 1 that all plots share.

    Weights outside 0 to 1 (normaliser `none`, edits) are drawn on a signed scale. `queries` and
    `keys` are the tokens (keys default to the queries: self-attention); `predicted` are the tokens
    that a decoder predicted, for row labels such as "after the → Hund". `allowed` is True where a
    query may attend; other cells are hatched. Up to 12 × 12 cells contain their numbers.
    """
    table = numbers("weights", weights, "query key")
    visible = flags("allowed", allowed, table.shape)
    check_masked(table, visible)
    rows, columns = _tokens("weights", table, queries, keys, predicted)
    return _picture(
        table,
        *weight_scale(table),
        (rows, QUERY_TITLE),
        (columns, KEY_TITLE),
        "weight",
        visible,
        title,
        axes,
    )


def scores(
    scores: Table,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    predicted: Sequence[str] | None = None,
    allowed: Table | None = None,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """The scores (query, key) of one head, before normalisation, on a signed scale.

    Arguments as for `weights`.
    """
    table = numbers("scores", scores, "query key")
    visible = flags("allowed", allowed, table.shape)
    rows, columns = _tokens("scores", table, queries, keys, predicted)
    limit = largest(table[visible])
    return _picture(
        table,
        SIGNED,
        (-limit, limit),
        (rows, QUERY_TITLE),
        (columns, KEY_TITLE),
        "score",
        visible,
        title,
        axes,
    )


def position_map(
    vectors: Table, *, first: int = 0, title: str = "", axes: Axes | None = None
) -> Figure:
    """The vectors (position, dimension) of an additive position encoding.

    `first` is the position of the first row.

    >>> position_map(Sinusoidal(width=64)(torch.arange(50)))
    """
    table = numbers("vectors", vectors, "position dimension")
    rows, columns = (
        [str(i + start) for i in range(n)] for n, start in zip(table.shape, (first, 0), strict=True)
    )
    limit, everywhere = largest(table), flags("allowed", None, table.shape)
    named = (rows, "position"), (columns, "dimension")
    cell = min(0.62, 7.5 / max(table.shape))  # labels are numbers, of which some may be omitted
    return _picture(table, SIGNED, (-limit, limit), *named, "value", everywhere, title, axes, cell)


def similarity(
    vectors: Table,
    labels: Sequence[str],
    others: Table | None = None,
    other_labels: Sequence[str] | None = None,
    *,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """The cosines of vectors (vector, dimension) among themselves, or with `others`; −1 to 1."""
    if (others is None) != (other_labels is None):
        raise RegardError("give both others and other_labels: the other vectors and their names")
    down = numbers("vectors", vectors, "vector dimension")
    across = down if others is None else numbers("others", others, "vector dimension")
    if down.shape[1] != across.shape[1]:
        raise ShapeError(
            f"vectors have {down.shape[1]} dimensions but others have {across.shape[1]}"
        )
    table = similarities(torch.tensor(down), torch.tensor(across)).numpy()
    rows, columns = _tokens("vectors", table, labels, other_labels, None)
    everywhere = flags("allowed", None, table.shape)
    named = (rows, "vector"), (columns, "vector" if others is None else "other vector")
    return _picture(table, SIGNED, (-1, 1), *named, "cosine", everywhere, title, axes)


def weight_scale(table: Numbers) -> tuple[Ramp, tuple[float, float]]:
    """The colours of weights and their limits: 0 to 1, or signed if a weight lies outside."""
    if not outside_unit(table).any():
        return WEIGHTS, (0.0, 1.0)
    limit = largest(table)
    return SIGNED, (-limit, limit)


def outside_unit(table: Numbers) -> Flags:
    """Where numbers lie outside 0 to 1, apart from rounding."""
    return (table < -1e-6) | (table > 1 + 1e-6)


def check_masked(table: Numbers, allowed: Flags) -> None:
    """Raise if a masked key has a weight."""
    if (table[~allowed] != 0).any():
        place, value = first_cell(table, ~allowed & (table != 0))
        raise RegardError(
            f"weights{place} is {value:.3g} where allowed is False; in a mask True means may attend"
        )


def largest(values: Numbers) -> float:
    """The largest absolute value, for a signed scale; 1 if all numbers are zero."""
    return float(np.abs(values).max(initial=0)) or 1.0


def first_cell(table: Numbers, found: Flags) -> tuple[list[int], float]:
    """The first index where `found` is True, and the number there."""
    place = np.argwhere(found)[0].tolist()
    return place, float(table[tuple(place)])


def _tokens(
    name: str,
    table: Numbers,
    queries: Sequence[str],
    keys: Sequence[str] | None,
    predicted: Sequence[str] | None,
) -> tuple[list[str], list[str]]:
    """The labels of rows and columns, one for each."""
    keys = queries if keys is None else keys
    for side, size, labels in zip(("rows", "columns"), table.shape, (queries, keys), strict=True):
        if len(labels) != size:
            raise ShapeError(
                f"{name} have {size} {side} but {len(labels)} labels; give one label for each"
            )
    rows = token_labels(queries) if predicted is None else step_labels(queries, predicted)
    return rows, token_labels(keys)


def _picture(
    table: Numbers,
    ramp: Ramp,
    limits: tuple[float, float],
    rows: tuple[Sequence[str], str],
    columns: tuple[Sequence[str], str],
    scale: str,
    allowed: Flags,
    title: str,
    axes: Axes | None,
    cell: float | None = None,
) -> Figure:
    own = axes is None
    if axes is None:
        cell = cell or heat_map.cell_size(*table.shape)
        axes = place(blank(), 0, 0, cell * table.shape[1], cell * table.shape[0])
    else:
        area = axes.get_window_extent()
        cell = min(area.width / table.shape[1], area.height / table.shape[0]) / owner(axes).dpi
    image = heat_map.draw(
        axes, table, ramp, limits, allowed=allowed, printed=max(table.shape) <= heat_map.FEW
    )
    heat_map.name_rows(axes, *rows, cell)
    heat_map.name_columns(axes, *columns, cell)
    bar = heat_map.scale_beside(axes, image, scale)
    if not allowed.all():
        heat_map.add_mask_legend(bar)
    axes.set_title(title)
    return trim(owner(axes)) if own else owner(axes)
