"""Score against distance: what a position encoding does to the score of a query with a key so far away."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.attention import Attention
from regard.attention.scores import ScaledDot
from regard.errors import RegardError, ShapeError
from regard.plots.figures import Numbers, Table, blank, numbers, owner, place, trim
from regard.plots.palette import HEADS, PALE
from regard.positions import Added, Biasing, Position, Turning

_DASHES = ("-", "--", "-.", ":")
_COLOURS = [colour for name, colour in HEADS.items() if name != "yellow"]  # a thin line of which is lost on white


@torch.no_grad()
def mean_scores(
    position: Position,
    *,
    dim: int,
    heads: int,
    reach: int = 32,
    contents: Float[Tensor, "content dim"] | None = None,
) -> Float[Tensor, " distance"]:
    """The mean score of a query with a key at each distance key − query from −reach to reach.

    Query and key are the same content at two places, without projections, compared by scaled-dot; the mean is over
    contents, heads and places. Without `contents` it is the mean over all directions, of length √dim. Shaw's term is
    a dot product with the query, so over all directions it is 0 on average: give contents to see it.
    """
    if reach < 1:
        raise RegardError(f"reach must be at least 1; got {reach}")
    device = next(chain(position.parameters(), position.buffers()), torch.empty(0)).device
    if contents is None:
        # Each axis both ways: any isotropic distribution has this mean, and it is exact.
        axis = torch.eye(dim, device=device) * dim**0.5
        contents = torch.cat([axis, -axis])
    elif contents.ndim != 2 or not len(contents) or contents.shape[1] != dim:
        raise ShapeError(f"contents must be (content, {dim}), one at least; got shape {tuple(contents.shape)}")
    places = torch.arange(2 * reach + 1, device=device)  # so each distance is met at least reach + 1 times
    if isinstance(position, Added) and (width := position(places[:1]).shape[-1]) != dim:
        raise ShapeError(f"{type(position).__name__} adds vectors of {width}, and dim is {dim}; make both the same")
    attention = Attention(ScaledDot(heads, dim), bias=position if isinstance(position, Biasing) else None)
    total = torch.zeros(len(places), len(places), device=device)
    for content in contents.to(device):
        tokens = content.expand(1, heads, len(places), dim)
        if isinstance(position, Added):
            tokens = tokens + position(places)
        if isinstance(position, Turning):
            tokens = position.turn(tokens, places)
        total += attention.steps(tokens, tokens, tokens).biased.mean((0, 1))
    mean = total / len(contents)
    return torch.stack([mean.diagonal(apart).mean() for apart in range(-reach, reach + 1)])


def score_by_distance(curves: Mapping[str, Table], *, title: str = "", axes: Axes | None = None) -> Figure:
    """Curves of score against distance, by name, on one pair of axes; the middle of each curve is distance 0.

    >>> encodings = {"rotary": Rotary(dim=64), "alibi": Alibi(heads=8)}
    >>> score_by_distance({name: mean_scores(encoding, dim=64, heads=8) for name, encoding in encodings.items()})
    """
    if not curves:
        raise RegardError("curves are empty; give at least one, by name")
    drawn = {name: _odd(name, curve) for name, curve in curves.items()}
    own = axes is None
    if axes is None:
        axes = place(blank(), 0, 0, 6.4, 3.9)
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=0)
    for number, (name, curve) in enumerate(drawn.items()):
        reach = len(curve) // 2
        # Seven colours and four dashes: no two of the first 28 are alike. Later lines are thinner, to lie on earlier.
        look: dict[str, Any] = {"color": _COLOURS[number % len(_COLOURS)], "linewidth": max(3.2 - 0.3 * number, 1.4)}
        axes.plot(range(-reach, reach + 1), curve, _DASHES[number % len(_DASHES)], label=name, **look)
    axes.set(xlabel="distance (key − query)", ylabel="mean score", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, handlelength=3)
    return trim(owner(axes)) if own else owner(axes)


def _odd(name: str, curve: Table) -> Numbers:
    values = numbers(f"curve {name!r}", curve, "distance")
    if len(values) % 2 == 0:
        raise ShapeError(f"curve {name!r} must run from −reach to reach, an odd number of scores; got {len(values)}")
    return values
