"""Dot-product attention on Triton: chooses the kernel and prepares bias, bounds and rotation."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.kernels.launch import (
    LOG2E,
    Bounds,
    Packed,
    distances_in_tile,
    fits_one_tile,
    tile_size,
)
from regard.attention.backends.kernels.long_attention import LongLaunch, long_attention
from regard.attention.backends.kernels.rotary_tiles import (
    rotate_packed,
    rotation_tables,
    tables_from,
)
from regard.attention.backends.kernels.short_attention import ShortLaunch, short_attention
from regard.attention.backends.triton import bias_by_distance
from regard.attention.cache import Sequences
from regard.attention.masks import MaskBounds
from regard.attention.reference import Parts
from regard.attention.scores import Dot, ScaledDot


def dot_attention(
    parts: Parts,
    queries: Sequences,
    keys: Sequences,
    values: Sequences,
    mask: MaskBounds,
    offset: Any,
    rotation: Any = None,
) -> Tensor:
    """Contexts (token, head, dim) of packed queries."""
    bounds = Bounds.of(mask.low, mask.high, offset)
    q, k, v = Packed.of(queries), Packed.of(keys).cut(mask.stop), Packed.of(values)
    longest, bias = max(q.longest, k.longest), parts.bias
    one_tile = fits_one_tile(longest, q.rows, v.rows)
    needs_query, tables = bias is not None and bias.needs_query, None
    if rotation is not None:
        # Other scores must rotate before the kernel, because they transform queries or keys.
        if isinstance(parts.score, Dot | ScaledDot) and not needs_query:
            if not one_tile:
                tables = tables_from(rotation, q, offset)
            elif offset == 0:
                tables = rotation_tables(rotation, q.rows, tile_size(longest))
        if tables is None:
            q = rotate_packed(rotation, q, offset)
        if tables is None or not one_tile:
            k = rotate_packed(rotation, k, 0)
    q, k, scale = _as_dot(parts, q, k)
    rows = q.rows, k.rows, v.rows
    if one_tile:
        table, vectors, start = None, None, 0
        if needs_query:
            vectors, start = _vectors(bias, q.rows, longest, offset, mask.high, scale)
        elif bias is not None:  # a tile's side of numbers before distance 0, and as many from it on
            by_distance = bias_by_distance(bias, tile_size(longest) - 1, q.rows, offset)
            table = F.pad(by_distance * LOG2E, (1, 0))
        short = ShortLaunch(q, k, bounds, scale * LOG2E, tables, start)
        return short_attention(*rows, table, vectors, short)
    limit = None if bias is None else bias.constant_beyond
    table = None if limit is None else bias_by_distance(bias, limit, q.rows) * LOG2E
    slopes = None if bias is None or limit is not None else bias.head_slopes()
    long = LongLaunch(q, k, bounds, scale * LOG2E, limit or 0, tables)
    return long_attention(*rows, table, slopes, long)


def _vectors(
    bias: Any, queries: Tensor, longest: int, first: int, high: int | None, scale: float
) -> tuple[Tensor, int]:
    """Vectors of the distances that occur, scaled to be added to keys, and how many precede 0."""
    table: Tensor = bias.vectors(queries)
    limit = bias.max_distance
    behind = distances_in_tile(limit, longest, first)
    ahead = behind if high is None else max(0, min(behind, high))
    if behind + ahead < 2 * limit:
        table = table[limit - behind : limit + ahead + 1]
    if bias.scale == scale:
        return table.contiguous(), behind
    return table * (bias.scale / scale), behind


def _as_dot(parts: Parts, q: Packed, k: Packed) -> tuple[Packed, Packed, float]:
    """Queries and keys whose dot product is the score, with a positive scale."""
    dense = (side.rows.transpose(0, 1).unsqueeze(0) for side in (q, k))
    queries, keys, scale = parts.score.as_dot(*dense)
    if scale < 0:
        queries, scale = -queries, -scale
    # squeeze instead of indexing, whose gradient would be a copy
    queries, keys = (x.squeeze(0).transpose(0, 1) for x in (queries, keys))
    return q._replace(rows=_unit_stride(queries)), k._replace(rows=_unit_stride(keys)), scale


def _unit_stride(rows: Tensor) -> Tensor:
    return rows if rows.stride(-1) == 1 else rows.contiguous()
