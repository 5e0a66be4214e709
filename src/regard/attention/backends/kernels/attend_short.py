"""Short attention as torch knows it: forward, backward, and the sizes of its tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.backends.kernels.packed import Packed
from regard.attention.backends.kernels.settings import Bounds, Turned, along_diagonals, grouped, precision, width
from regard.attention.backends.kernels.short import short_backward, short_forward
from regard.attention.backends.triton import interpreted

LONGEST = 128  # of a sentence that is one tile
_ROOM = 128 * 64 * 2  # bytes of a tile; four of them, and what is made of them, must fit a processor's own memory


def fits(longest: int, *rows: Tensor) -> bool:
    """Whether sentences of up to this length are one tile each."""
    side = width(max(longest, 16))
    return longest <= LONGEST and all(side * width(x.shape[2]) * x.element_size() <= _ROOM for x in rows)


@dataclass(frozen=True)
class Sentences:
    """How two batches of sentences meet: where they lie, what is hidden, how they turn."""

    queries: Packed
    keys: Packed
    bounds: Bounds
    scale: float  # in powers of two
    turned: Turned | None

    def told(self, v: Tensor) -> dict[str, Any]:
        """What forward and backward are both told."""
        q, k = self.queries.rows, self.keys.rows
        longest = max(self.queries.longest, self.keys.longest, 16)
        tile = width(longest)
        pairs = self.turned.steps if self.turned else (1, 1)
        return dict(  # noqa: C408 (shorter than a literal)
            q_starts=self.queries.starts, q_lengths=self.queries.lengths, k_starts=self.keys.starts,
            k_lengths=self.keys.lengths, q_time=q.stride(0), q_head=q.stride(1), k_time=k.stride(0),
            k_head=k.stride(1), v_time=v.stride(0), v_head=v.stride(1), scale=self.scale,
            low=self.bounds.low or 0, high=self.bounds.high or 0, HEADS=q.shape[1], GROUP=q.shape[1] // k.shape[1],
            TILE=tile, DIM=q.shape[2], WIDTH=width(q.shape[2]), OUT=v.shape[2], OUT_WIDTH=width(v.shape[2]),
            LOW=self.bounds.low is not None, HIGH=self.bounds.high is not None, TURN=self.turned is not None,
            STEP=pairs[0], GAP=pairs[1], PRECISION=precision(q), num_stages=1,
        )  # fmt: skip


class Short(torch.autograd.Function):
    """softmax(q kᵀ + line) v over short sentences, with all gradients."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, line: Tensor | None, meeting: Sentences) -> Tensor:
        ctx.save_for_backward(q, k, v, line)
        ctx.meeting = meeting
        out = q.new_empty(len(q), q.shape[1], v.shape[2])
        told = meeting.told(v)
        tile, sequences = told["TILE"], len(meeting.queries.lengths)
        cos, sin = meeting.turned.waves if meeting.turned else (q, q)
        short_forward[(sequences * q.shape[1],)](
            q, k, v, out, q if line is None else line, cos, sin, **told, SMALL=max(tile // 2, 16),
            SPAN=0 if line is None else tile, num_warps=WARPS[tile][0],
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, line = ctx.saved_tensors
        meeting: Sentences = ctx.meeting
        heads, told = q.shape[1], meeting.told(v)
        tile, sequences = told["TILE"], len(meeting.queries.lengths)
        keep = line is not None and ctx.needs_input_grad[3]
        dq = q.new_empty(q.shape)
        dk, dv = meeting.keys.room(heads, k.shape[2]), meeting.keys.room(heads, v.shape[2])
        chunks = min(sequences, -(-CHUNKS // heads)) if keep else sequences
        tiles = q.new_empty((chunks, heads, tile, tile) if keep else (1,), dtype=torch.float32)
        cos, sin = meeting.turned.waves if meeting.turned else (q, q)
        short_backward[(chunks * heads,)](
            q, k, v, gradients[0].contiguous(), dq, dk, dv, tiles, q if line is None else line, cos, sin,
            batch=sequences, **told, SMALL=64 if tile == 128 and not keep else tile, KEEP=keep,
            SPAN=0 if line is None else tile, num_warps=WARPS[tile][keep + 1],
            **({} if keep else _limit(tile)),
        )  # fmt: skip
        d_line = None
        if keep:
            sums = along_diagonals(tiles.sum(0)) * 0.6931471805599453
            d_line = torch.nn.functional.pad(sums, (1, 0))
        return dq, grouped(dk, k), grouped(dv, v), d_line, None


def _limit(tile: int) -> dict[str, int]:
    """Registers a thread of the backward pass may hold: fewer let more sentences run side by side."""
    return {} if tile != 64 or interpreted() else {"maxnreg": 168}


WARPS = {16: (1, 1, 1), 32: (2, 1, 1), 64: (4, 4, 4), 128: (8, 4, 8)}  # forward, backward, and with a line's gradient
CHUNKS = 132 * 4  # programs that add up the gradients of a bias

short: Callable[..., Tensor] = Short.apply
