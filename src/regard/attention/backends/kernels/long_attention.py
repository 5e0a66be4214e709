"""Attention of any length as an autograd function: launches forward and backward kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.attention.backends.kernels.backward_keys import long_keys, near_tiles
from regard.attention.backends.kernels.backward_queries import long_queries
from regard.attention.backends.kernels.forward import long_forward
from regard.attention.backends.kernels.launch import (
    Bounds,
    Packed,
    PairRotation,
    precision,
    sum_diagonals,
    sum_groups,
    tile_size,
)
from regard.attention.backends.kernels.rotary_tiles import rotate_rows
from regard.attention.backends.kernels.tiles import (
    SLOPE,
    TABLE,
)
from regard.attention.backends.triton import is_interpreted

NEAR_TILE, NEAR_CHUNKS = 64, 4
LN2 = 0.6931471805599453


class Blocks(NamedTuple):
    """Block sizes of a kernel: rows, keys, warps, pipeline stages, and registers per thread."""

    rows: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None

    @property
    def launch(self) -> dict[str, int]:
        """Launch arguments. Fewer registers let more programs run concurrently."""
        limit = {"maxnreg": self.registers} if self.registers and not is_interpreted() else {}
        sizes = {"ROWS": self.rows, "KEYS": self.keys}
        return {**sizes, "num_warps": self.warps, "num_stages": self.stages, **limit}


# By the largest dim: forward, dQ, dK and dV, measured with benchmarks/gpu_kernels.py; 16 bits.
HALF = {
    64: (Blocks(64, 64, 4, 3, 128), Blocks(128, 64, 8, 3, 128), Blocks(32, 128, 4, 2)),
    128: (Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2)),
    256: (Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 2), Blocks(32, 32, 4, 1)),
}
FULL = {  # float32
    64: (Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 2), Blocks(32, 32, 4, 2)),
    256: (Blocks(32, 16, 4, 1), Blocks(16, 16, 4, 1), Blocks(16, 16, 4, 1)),
}


def block_sizes(dtype: torch.dtype, dim: int) -> tuple[Blocks, Blocks, Blocks]:
    """The fastest measured block sizes."""
    table = FULL if dtype == torch.float32 else HALF
    return table[next(size for size in table if dim <= size)]


@dataclass(frozen=True)
class LongLaunch:
    """Arguments of a launch: packed sequences, mask bounds, scale, bias range and rotation."""

    queries: Packed
    keys: Packed
    bounds: Bounds
    scale: float  # times log₂ e
    constant_beyond: int  # from this distance on the bias table is constant
    tables: PairRotation | None = None  # for queries; keys are already rotated

    def arguments(
        self, v: Tensor, bias_table: Tensor | None, slopes: Tensor | None
    ) -> dict[str, Any]:
        """The arguments that all kernels share."""
        q, k = self.queries.rows, self.keys.rows
        return dict(  # noqa: C408 (shorter than a literal)
            bias_table=q if bias_table is None else bias_table, q_starts=self.queries.starts,
            q_lengths=self.queries.lengths, k_starts=self.keys.starts, k_lengths=self.keys.lengths,
            tokens=len(q), q_time=q.stride(0), q_head=q.stride(1), k_time=k.stride(0),
            k_head=k.stride(1), v_time=v.stride(0), v_head=v.stride(1), scale=self.scale,
            low=self.bounds.low or 0, high=self.bounds.high or 0,
            left=self.bounds.first - self.constant_beyond,
            right=self.bounds.first + self.constant_beyond, HEADS=q.shape[1],
            GROUP=q.shape[1] // k.shape[1], DIM=q.shape[2], WIDTH=max(tile_size(q.shape[2]), 32),
            OUT=v.shape[2], OUT_WIDTH=max(tile_size(v.shape[2]), 32),
            BIAS=_bias_kind(bias_table, slopes), LOW=self.bounds.low is not None,
            HIGH=self.bounds.high is not None, PRECISION=precision(q),
        )  # fmt: skip

    def grid(self, size: int, *, keys: bool = False) -> tuple[int, int, int]:
        """One program per block of the longest sequence, head and sequence."""
        side = self.keys if keys else self.queries
        return -(-side.longest // size), self.queries.rows.shape[1], len(side.lengths)


def _bias_kind(bias_table: Tensor | None, slopes: Tensor | None) -> int:
    if bias_table is not None:
        return TABLE.value
    return 0 if slopes is None else SLOPE.value


class LongAttention(torch.autograd.Function):
    """softmax(q kᵀ + bias) v, where the bias is a table by distance or a slope per head."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias_table: Tensor | None,
        slopes: Tensor | None, launch: LongLaunch,
    ) -> Tensor:  # fmt: skip
        out = q.new_empty(len(q), q.shape[1], v.shape[2])
        lse = q.new_empty(q.shape[1], len(q), dtype=torch.float32)
        blocks = block_sizes(q.dtype, max(q.shape[2], v.shape[2]))[0]
        (cos, sin), (step, gap) = launch.tables or ((q, q), (1, 1))
        long_forward[launch.grid(blocks.rows)](
            q, k, v, out, lse, slopes=q if slopes is None else slopes, cos=cos, sin=sin,
            **launch.arguments(v, bias_table, slopes), ROTATE=launch.tables is not None, STEP=step,
            GAP=gap, **blocks.launch,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse, bias_table, slopes)
        ctx.launch = launch
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, bias_table, slopes = ctx.saved_tensors
        launch: LongLaunch = ctx.launch
        if launch.tables:
            q = rotate_rows(q, launch.queries, launch.tables)
            launch = replace(launch, queries=launch.queries._replace(rows=q))
        d_out, heads = gradients[0].contiguous(), q.shape[1]
        arguments = launch.arguments(v, bias_table, slopes)
        some_slopes = q if slopes is None else slopes
        _, over_keys, over_queries = block_sizes(q.dtype, max(q.shape[2], v.shape[2]))
        dq, deltas = q.new_empty(q.shape), torch.empty_like(lse)
        dk = launch.keys.empty_gradient(heads, k.shape[2])
        dv = launch.keys.empty_gradient(heads, v.shape[2])
        long_queries[launch.grid(over_keys.rows)](
            q, k, v, out, d_out, dq, lse, deltas, slopes=some_slopes, **arguments,
            STAGES=over_keys.stages, **over_keys.launch,
        )  # fmt: skip
        learned = bias_table is not None and ctx.needs_input_grad[3]
        grid = launch.grid(over_queries.keys, keys=True)
        far = lse.new_empty((grid[2], heads, grid[0], 2) if learned else (1,))
        long_keys[grid](
            q, k, v, d_out, dk, dv, lse, deltas, far, slopes=some_slopes, **arguments,
            BIAS_GRADIENT=learned, STAGES=over_queries.stages, **over_queries.launch,
        )  # fmt: skip
        d_table = None
        if learned:
            d_table = _table_gradient(launch, q, k, v, d_out, lse, deltas, far, arguments)
        if launch.tables:
            dq = rotate_rows(dq, launch.queries, launch.tables, back=True)
        return dq, sum_groups(dk, k), sum_groups(dv, v), d_table, None, None


long_attention: Callable[..., Tensor] = LongAttention.apply


def _table_gradient(
    launch: LongLaunch, q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, lse: Tensor,
    deltas: Tensor, far: Tensor, arguments: dict[str, Any],
) -> Tensor:  # fmt: skip
    """The gradient of the bias table: its ends from the far bands, the rest from near tiles."""
    heads, left, right = q.shape[1], arguments["left"], arguments["right"]
    large = q.dtype == torch.float32 or max(arguments["WIDTH"], arguments["OUT_WIDTH"]) > 128
    size = NEAR_TILE // 2 if large else NEAR_TILE  # tiles must fit in shared memory
    lowest = max(left + 1, launch.bounds.low) if arguments["LOW"] else left + 1
    highest = min(right - 1, launch.bounds.high) if arguments["HIGH"] else right - 1
    first, last = -((size - 1 - lowest) // size), (highest + size - 1) // size
    d_table = lse.new_zeros(heads, right - left + 1)
    if last >= first:
        count = last - first + 1
        tiles = lse.new_empty(heads, count, NEAR_CHUNKS, size, size)
        near_tiles[(count * NEAR_CHUNKS, heads)](
            q, k, v, d_out, tiles, lse, deltas, batch=len(launch.queries.lengths),
            first_diagonal=first, **arguments, TILE=size, CHUNKS=NEAR_CHUNKS, num_warps=4,
            num_stages=3,
        )  # fmt: skip
        sums = F.pad(sum_diagonals(tiles.sum(2)), (0, 1))  # each tile: two blocks of `size`
        before, after = sums.split(size, -1)
        whole = (F.pad(before, (0, 0, 0, 1)) + F.pad(after, (0, 0, 1, 0))).flatten(1)
        start = first * size - size + 1  # the distance of the first sum
        near = slice(lowest - left, highest - left + 1)
        d_table[:, near] = whole[:, lowest - start : highest + 1 - start]
    d_table[:, 0], d_table[:, -1] = far.sum((0, 2)).unbind(-1)
    return d_table * LN2
