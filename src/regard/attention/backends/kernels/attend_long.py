"""Long attention as torch knows it: forward, backward, the gradient of a learned line, and the sizes of blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.backends.kernels.backward_keys import long_keys
from regard.attention.backends.kernels.backward_queries import long_queries
from regard.attention.backends.kernels.bands import LINE, SLOPE
from regard.attention.backends.kernels.bias_gradient import near_tiles
from regard.attention.backends.kernels.forward import long_forward
from regard.attention.backends.kernels.launch import Bounds, Turned, along_diagonals, grouped, precision, width
from regard.attention.backends.kernels.packed import Packed
from regard.attention.backends.kernels.rotary_tiles import turned
from regard.attention.backends.triton import interpreted

NEAR_TILE, NEAR_CHUNKS = 64, 4


class Blocks(NamedTuple):
    """How a kernel is cut: rows and keys of a block, warps, loads in flight, and registers a thread may hold."""

    rows: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None

    @property
    def launch(self) -> dict[str, int]:
        """What Triton is told: fewer registers let more programs run side by side."""
        limit = {"maxnreg": self.registers} if self.registers and not interpreted() else {}
        return dict(ROWS=self.rows, KEYS=self.keys, num_warps=self.warps, num_stages=self.stages, **limit)


HALF = {  # of 16 bits, by the widest dimension; forward, gradients of queries, of keys (benchmarks/gpu_kernels.py)
    64: (Blocks(64, 64, 4, 3, 128), Blocks(128, 64, 8, 3, 128), Blocks(32, 128, 4, 2)),
    128: (Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2)),
    256: (Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 2), Blocks(32, 32, 4, 1)),
}
FULL = {
    64: (Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 2), Blocks(32, 32, 4, 2)),
    256: (Blocks(32, 16, 4, 1), Blocks(16, 16, 4, 1), Blocks(16, 16, 4, 1)),
}


def blocks(dtype: torch.dtype, widest: int) -> tuple[Blocks, Blocks, Blocks]:
    """The sizes measured to be fast."""
    table = FULL if dtype == torch.float32 else HALF
    return table[next(size for size in table if widest <= size)]


@dataclass(frozen=True)
class Meeting:
    """How queries and keys meet: where they lie, what is hidden, and from where on the bias is one number a side."""

    queries: Packed
    keys: Packed
    bounds: Bounds
    scale: float  # in powers of two
    reach: int
    turned: Turned | None = None  # how queries turn; keys come turned

    def told(self, v: Tensor, line: Tensor | None, slopes: Tensor | None) -> dict[str, Any]:
        """What all kernels are told."""
        q, k = self.queries.rows, self.keys.rows
        return dict(  # noqa: C408 (shorter than a literal)
            line=q if line is None else line,
            q_starts=self.queries.starts, q_lengths=self.queries.lengths, k_starts=self.keys.starts,
            k_lengths=self.keys.lengths, tokens=len(q), q_time=q.stride(0), q_head=q.stride(1), k_time=k.stride(0),
            k_head=k.stride(1), v_time=v.stride(0), v_head=v.stride(1), scale=self.scale,
            low=self.bounds.low or 0, high=self.bounds.high or 0, left=self.bounds.first - self.reach,
            right=self.bounds.first + self.reach, HEADS=q.shape[1], GROUP=q.shape[1] // k.shape[1], DIM=q.shape[2],
            WIDTH=max(width(q.shape[2]), 32), OUT=v.shape[2], OUT_WIDTH=max(width(v.shape[2]), 32),
            BIAS=LINE.value if line is not None else SLOPE.value if slopes is not None else 0,
            LOW=self.bounds.low is not None, HIGH=self.bounds.high is not None, PRECISION=precision(q),
        )  # fmt: skip

    def grid(self, size: int, *, keys: bool = False) -> tuple[int, int, int]:
        """A program for each block of the longest sequence, each head, each sequence."""
        side = self.keys if keys else self.queries
        return -(-side.longest // size), self.queries.rows.shape[1], len(side.lengths)


class Long(torch.autograd.Function):
    """softmax(q kᵀ + bias) v, the bias a line of numbers by distance, or a slope a head."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, line: Tensor | None, slopes: Tensor | None, meeting: Meeting
    ) -> Tensor:
        out = q.new_empty(len(q), q.shape[1], v.shape[2])
        peaks = q.new_empty(q.shape[1], len(q), dtype=torch.float32)
        cut = blocks(q.dtype, max(q.shape[2], v.shape[2]))[0]
        (cos, sin), (step, gap) = meeting.turned or ((q, q), (1, 1))
        long_forward[meeting.grid(cut.rows)](
            q, k, v, out, peaks, slopes=q if slopes is None else slopes, cos=cos, sin=sin,
            **meeting.told(v, line, slopes), TURN=meeting.turned is not None, STEP=step, GAP=gap, **cut.launch,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, peaks, line, slopes)
        ctx.meeting = meeting
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, peaks, line, slopes = ctx.saved_tensors
        meeting: Meeting = ctx.meeting
        if meeting.turned:
            q = turned(q, meeting.queries, meeting.turned)
            meeting = replace(meeting, queries=meeting.queries._replace(rows=q))
        d_out, heads = gradients[0].contiguous(), q.shape[1]
        told = meeting.told(v, line, slopes)
        given = q if slopes is None else slopes
        _, over_keys, over_queries = blocks(q.dtype, max(q.shape[2], v.shape[2]))
        dq, deltas = q.new_empty(q.shape), torch.empty_like(peaks)
        dk, dv = meeting.keys.room(heads, k.shape[2]), meeting.keys.room(heads, v.shape[2])
        long_queries[meeting.grid(over_keys.rows)](
            q, k, v, out, d_out, dq, peaks, deltas, slopes=given, **told,
            STAGES=over_keys.stages, **over_keys.launch,
        )  # fmt: skip
        keep = line is not None and ctx.needs_input_grad[3]
        grid = meeting.grid(over_queries.keys, keys=True)
        far = peaks.new_empty((grid[2], heads, grid[0], 2) if keep else (1,))
        long_keys[grid](
            q, k, v, d_out, dk, dv, peaks, deltas, far, slopes=given, **told, KEEP=keep,
            STAGES=over_queries.stages, **over_queries.launch,
        )  # fmt: skip
        d_line = _line(meeting, q, k, v, d_out, peaks, deltas, far, told) if keep else None
        if meeting.turned:
            dq = turned(dq, meeting.queries, meeting.turned, back=True)
        return dq, grouped(dk, k), grouped(dv, v), d_line, None, None


long: Callable[..., Tensor] = Long.apply


def _line(
    meeting: Meeting, q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, peaks: Tensor, deltas: Tensor, far: Tensor,
    told: dict[str, Any],
) -> Tensor:  # fmt: skip
    """The gradient of the line: its ends from the far bands, what lies between from the near tiles."""
    heads, left, right = q.shape[1], told["left"], told["right"]
    wide = q.dtype == torch.float32 or max(told["WIDTH"], told["OUT_WIDTH"]) > 128
    size = NEAR_TILE // 2 if wide else NEAR_TILE  # or a processor's own memory does not hold its tiles
    lowest = max(left + 1, meeting.bounds.low) if told["LOW"] else left + 1
    highest = min(right - 1, meeting.bounds.high) if told["HIGH"] else right - 1
    nearest, last = -((size - 1 - lowest) // size), (highest + size - 1) // size
    d_line = peaks.new_zeros(heads, right - left + 1)
    if last >= nearest:
        count = last - nearest + 1
        tiles = peaks.new_empty(heads, count, NEAR_CHUNKS, size, size)
        near_tiles[(count * NEAR_CHUNKS, heads)](
            q, k, v, d_out, tiles, peaks, deltas, batch=len(meeting.queries.lengths), nearest=nearest, **told,
            TILE=size, CHUNKS=NEAR_CHUNKS, num_warps=4, num_stages=3,
        )  # fmt: skip
        sums = torch.nn.functional.pad(along_diagonals(tiles.sum(2)), (0, 1))  # each tile: two blocks of `size`
        before, after = sums.split(size, -1)
        whole = torch.nn.functional.pad(before, (0, 0, 0, 1)) + torch.nn.functional.pad(after, (0, 0, 1, 0))
        start = nearest * size - size + 1  # the distance at which the sums begin
        d_line[:, lowest - left : highest - left + 1] = whole.flatten(1)[:, lowest - start : highest + 1 - start]
    d_line[:, 0], d_line[:, -1] = far.sum((0, 2)).unbind(-1)
    return d_line * 0.6931471805599453
