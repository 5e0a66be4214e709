"""Attention of short sentences as an autograd function: launches the one-tile kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.backends.kernels.launch import (
    Bounds,
    Packed,
    PairRotation,
    precision,
    sum_diagonals,
    sum_groups,
    tile_size,
)
from regard.attention.backends.kernels.short_kernels import (
    short_backward,
    short_forward,
    vector_gradients,
)
from regard.attention.backends.triton import is_interpreted

# Warps by tile: forward, backward, and backward with the gradient of a bias table.
WARPS = {16: (1, 1, 1), 32: (2, 1, 1), 64: (4, 4, 4), 128: (8, 4, 8)}
VECTOR_WARPS = {16: (2, 2), 32: (2, 2), 64: (4, 4), 128: (8, 8)}  # with vectors by distance
TABLE_PROGRAMS = 132 * 4  # programs that sum the gradient of a bias table
VECTOR_PROGRAMS, BLOCK = 132 * 2, 64  # those that sum the gradient of vectors; rows per load
LN2 = 0.6931471805599453


@dataclass(frozen=True)
class ShortLaunch:
    """Arguments of a launch: packed sentences, mask bounds, scale, rotation and vector range."""

    queries: Packed
    keys: Packed
    bounds: Bounds
    scale: float  # times log₂ e
    tables: PairRotation | None
    max_distance: int  # the first vector by distance is for keys this far before the query

    def arguments(
        self, v: Tensor, bias_table: Tensor | None, vectors: Tensor | None
    ) -> dict[str, Any]:
        """The arguments that forward and backward share."""
        q, k = self.queries.rows, self.keys.rows
        tile = tile_size(max(self.queries.longest, self.keys.longest))
        strides = self.tables.strides if self.tables else (1, 1)
        return dict(  # noqa: C408 (shorter than a literal)
            q_starts=self.queries.starts, q_lengths=self.queries.lengths,
            k_starts=self.keys.starts, k_lengths=self.keys.lengths,
            q_time=q.stride(0), q_head=q.stride(1), k_time=k.stride(0), k_head=k.stride(1),
            v_time=v.stride(0), v_head=v.stride(1), scale=self.scale, first=self.bounds.first,
            max_distance=self.max_distance,
            max_ahead=0 if vectors is None else len(vectors) - 1 - self.max_distance,
            SPAN=0 if bias_table is None else tile,
            DISTANCES=0 if vectors is None else tile_size(len(vectors)),
            low=self.bounds.low or 0, high=self.bounds.high or 0,
            HEADS=q.shape[1], GROUP=q.shape[1] // k.shape[1], TILE=tile,
            DIM=q.shape[2], WIDTH=tile_size(q.shape[2]),
            OUT=v.shape[2], OUT_WIDTH=tile_size(v.shape[2]),
            LOW=self.bounds.low is not None, HIGH=self.bounds.high is not None,
            ROTATE=self.tables is not None, STEP=strides[0], GAP=strides[1],
            PRECISION=precision(q), num_stages=1,
        )  # fmt: skip


class ShortAttention(torch.autograd.Function):
    """softmax(q · (k + vectors) + bias_table) v over short sentences, with all gradients."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias_table: Tensor | None,
        vectors: Tensor | None, launch: ShortLaunch,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(q, k, v, bias_table, vectors)
        ctx.launch = launch
        out = q.new_empty(len(q), q.shape[1], v.shape[2])
        arguments = launch.arguments(v, bias_table, vectors)
        tile, sequences = arguments["TILE"], len(launch.queries.lengths)
        cos, sin = launch.tables.cos_sin if launch.tables else (q, q)
        biases = (q if bias is None else bias for bias in (bias_table, vectors))
        warps = (WARPS if vectors is None else VECTOR_WARPS)[tile][0]
        short_forward[(sequences * q.shape[1],)](
            q, k, v, out, *biases, cos, sin, **arguments,
            SMALL=max(tile // 2, 16), num_warps=warps, **_registers(q, arguments),
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias_table, vectors = ctx.saved_tensors
        launch: ShortLaunch = ctx.launch
        heads, arguments = q.shape[1], launch.arguments(v, bias_table, vectors)
        tile, sequences = arguments["TILE"], len(launch.queries.lengths)
        learned = bias_table is not None and ctx.needs_input_grad[3]
        warps = (WARPS if vectors is None else VECTOR_WARPS)[tile][learned + 1]
        dq = q.new_empty(q.shape)
        dk = launch.keys.empty_gradient(heads, k.shape[2])
        dv = launch.keys.empty_gradient(heads, v.shape[2])
        terms = dq
        if vectors is not None:
            terms = launch.queries.empty_gradient(heads, arguments["DISTANCES"])
        chunks = min(sequences, -(-TABLE_PROGRAMS // heads)) if learned else sequences
        tiles = q.new_empty((chunks, heads, tile, tile) if learned else (1,), dtype=torch.float32)
        cos, sin = launch.tables.cos_sin if launch.tables else (q, q)
        biases = (q if bias is None else bias for bias in (bias_table, vectors))
        short_backward[(chunks * heads,)](
            q, k, v, gradients[0].contiguous(), dq, dk, dv, tiles, terms, *biases, cos, sin,
            batch=sequences, **arguments, BIAS_GRADIENT=learned, num_warps=warps,
            **_registers(q, arguments, back=True),
        )  # fmt: skip
        d_table = d_vectors = None
        if learned:
            d_table = torch.nn.functional.pad(sum_diagonals(tiles.sum(0)) * LN2, (1, 0))
        if vectors is not None and ctx.needs_input_grad[4]:
            d_vectors = _vector_gradient(q, terms, vectors)
        return dq, sum_groups(dk, k), sum_groups(dv, v), d_table, d_vectors, None


def _vector_gradient(q: Tensor, terms: Tensor, vectors: Tensor) -> Tensor:
    """The gradient of vectors by distance, summed by a few programs in a fixed order."""
    rows = q.shape[0] * q.shape[1]
    programs = min(VECTOR_PROGRAMS, -(-rows // BLOCK))
    parts = q.new_empty((programs, *vectors.shape), dtype=torch.float32)
    vector_gradients[(programs,)](
        q, terms, parts, rows, q.stride(0), q.stride(1), len(vectors), HEADS=q.shape[1],
        BLOCK=BLOCK, DIM=q.shape[2], WIDTH=tile_size(q.shape[2]), DISTANCES=terms.shape[2],
        PRECISION=precision(q), num_warps=4,
    )  # fmt: skip
    return parts.sum(0).to(vectors.dtype)


def _registers(q: Tensor, arguments: dict[str, Any], *, back: bool = False) -> dict[str, int]:
    """Registers per thread: fewer let more sentences run concurrently.

    Without a limit the assembler gives float32 products 32 registers and spills the rest.
    """
    if is_interpreted():
        return {}
    if q.dtype == torch.float32:
        return {"maxnreg": 255}
    if arguments["TILE"] != 64:
        return {}
    narrow = max(arguments["WIDTH"], arguments["OUT_WIDTH"]) <= 64  # wider ones would spill
    if arguments["ROTATE"] and narrow:
        return {"maxnreg": 128 if back else 96}
    return {"maxnreg": 168} if arguments["DISTANCES"] else {}


short_attention: Callable[..., Tensor] = ShortAttention.apply
