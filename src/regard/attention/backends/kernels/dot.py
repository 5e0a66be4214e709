"""Dot-product attention on these kernels: which of them runs, and what bias, bounds and turning come down to."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends import triton
from regard.attention.backends.kernels.attend_long import Meeting, long
from regard.attention.backends.kernels.attend_short import Sentences, short
from regard.attention.backends.kernels.launch import LOG2E, Bounds, fits, reached, width
from regard.attention.backends.kernels.packed import Packed
from regard.attention.backends.kernels.rotary_tiles import turned_apart, turned_inside, waves_of
from regard.attention.padded import Sequences
from regard.attention.reference import Parts
from regard.attention.scores import Dot, ScaledDot


def dot(
    parts: Parts, queries: Sequences, keys: Sequences, values: Sequences, span: Any, offset: Any, turn: Any = None
) -> Tensor:
    """Contexts (token, head, dim) of packed queries."""
    low, high, stop = span
    bounds = Bounds.of(low, high, offset)
    asked, known, held = Packed.of(queries), Packed.of(keys).cut(stop), Packed.of(values)
    longest, bias = max(asked.longest, known.longest), parts.bias
    one_tile = fits(longest, asked.rows, held.rows)
    by_query, turned = triton.by_query(bias), None
    if turn is not None:
        if isinstance(parts.score, Dot | ScaledDot) and not by_query:  # others do not turn after the fact
            if not one_tile:
                turned = turned_inside(turn, asked, offset)
            elif offset == 0:
                turned = waves_of(turn, asked.rows, width(longest))
        if turned is None:
            asked = turned_apart(turn, asked, offset)
        if turned is None or not one_tile:
            known = turned_apart(turn, known, 0)
    asked, known, scale = _as_dot(parts, asked, known)
    rows = asked.rows, known.rows, held.rows
    if one_tile:
        line, vectors, begin = None, None, 0
        if by_query:
            vectors, begin = _vectors(bias, asked.rows, longest, offset, high, scale)
        elif bias is not None:  # a tile's side of numbers before distance 0, and as many from it on
            line = F.pad(triton.line(bias, width(longest) - 1, asked.rows, offset) * LOG2E, (1, 0))
        return short(*rows, line, vectors, Sentences(asked, known, bounds, scale * LOG2E, turned, begin))
    reach = triton.settles(bias)
    line = None if reach is None else triton.line(bias, reach, asked.rows) * LOG2E
    slopes = None if bias is None or reach is not None else getattr(bias, "slopes")  # noqa: B009
    return long(*rows, line, slopes, Meeting(asked, known, bounds, scale * LOG2E, reach or 0, turned))


def _vectors(
    bias: Any, queries: Tensor, longest: int, first: int, high: int | None, scale: float
) -> tuple[Tensor, int]:
    """The vectors of a bias that can be met, each to be added to the keys at its distance; and where they begin."""
    table: Tensor = bias.vectors(queries)
    reach = reached(bias.reach, longest, first)
    far = reach if high is None else max(0, min(reach, high))
    if reach + far < 2 * bias.reach:
        table = table[bias.reach - reach : bias.reach + far + 1]
    return table.contiguous() if bias.scale == scale else table * (bias.scale / scale), reach


def _as_dot(parts: Parts, asked: Packed, known: Packed) -> tuple[Packed, Packed, float]:
    """Queries and keys whose dot product is the score, with a scale above zero."""
    q, k, scale = parts.score.as_dot(*(side.rows.transpose(0, 1).unsqueeze(0) for side in (asked, known)))
    if scale < 0:
        q, scale = -q, -scale
    q, k = (x.squeeze(0).transpose(0, 1) for x in (q, k))  # indexing would copy its gradient
    return asked._replace(rows=_packed(q)), known._replace(rows=_packed(k)), scale


def _packed(rows: Tensor) -> Tensor:
    return rows if rows.stride(-1) == 1 else rows.contiguous()
