"""Dot-product attention on these kernels: which of them runs, and what bias, bounds and turning come down to."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends import triton
from regard.attention.backends.kernels.attend_long import Meeting, long
from regard.attention.backends.kernels.attend_short import Sentences, fits, short
from regard.attention.backends.kernels.packed import Packed
from regard.attention.backends.kernels.settings import LOG2E, Bounds, width
from regard.attention.backends.kernels.turning import turned_apart, waves_of
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
    turned = None
    if turn is not None:
        if one_tile and offset == 0 and isinstance(parts.score, Dot | ScaledDot):  # others do not turn after the fact
            turned = waves_of(turn, asked.rows, width(longest))
        if turned is None:
            asked, known = turned_apart(turn, asked, offset), turned_apart(turn, known, 0)
    asked, known, scale = _as_dot(parts, asked, known)
    rows = asked.rows, known.rows, held.rows
    if one_tile:
        line = None
        if bias is not None:  # a tile's side of numbers before distance 0, and as many from it on
            line = F.pad(triton.line(bias, width(longest) - 1, asked.rows, offset) * LOG2E, (1, 0))
        return short(*rows, line, Sentences(asked, known, bounds, scale * LOG2E, turned))
    reach = triton.settles(bias)
    line = None if reach is None else triton.line(bias, reach, asked.rows) * LOG2E
    slopes = None if bias is None or reach is not None else getattr(bias, "slopes")  # noqa: B009
    return long(*rows, line, slopes, Meeting(asked, known, bounds, scale * LOG2E, reach or 0))


def _as_dot(parts: Parts, asked: Packed, known: Packed) -> tuple[Packed, Packed, float]:
    """Queries and keys whose dot product is the score, with a scale above zero."""
    q, k, scale = parts.score.as_dot(*(side.rows.transpose(0, 1).unsqueeze(0) for side in (asked, known)))
    if scale < 0:
        q, scale = -q, -scale
    q, k = (x.squeeze(0).transpose(0, 1) for x in (q, k))  # indexing would copy its gradient
    return asked._replace(rows=_packed(q)), known._replace(rows=_packed(k)), scale


def _packed(rows: Tensor) -> Tensor:
    return rows if rows.stride(-1) == 1 else rows.contiguous()
