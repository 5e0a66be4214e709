"""Short attention as torch knows it: forward, backward, and the sizes of its tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.backends.kernels.launch import Bounds, Turned, along_diagonals, grouped, precision, width
from regard.attention.backends.kernels.packed import Packed
from regard.attention.backends.kernels.shaw import vector_slopes
from regard.attention.backends.kernels.short import short_backward, short_forward
from regard.attention.backends.triton import interpreted


@dataclass(frozen=True)
class Sentences:
    """How two batches of sentences meet: where they lie, what is hidden, how they turn."""

    queries: Packed
    keys: Packed
    bounds: Bounds
    scale: float  # in powers of two
    turned: Turned | None
    reach: int  # the first of the vectors by distance, where there are any, is for keys so far before the query

    def told(self, v: Tensor, line: Tensor | None, vectors: Tensor | None) -> dict[str, Any]:
        """What forward and backward are both told."""
        q, k = self.queries.rows, self.keys.rows
        tile = width(max(self.queries.longest, self.keys.longest))
        pairs = self.turned.steps if self.turned else (1, 1)
        return dict(  # noqa: C408 (shorter than a literal)
            q_starts=self.queries.starts, q_lengths=self.queries.lengths, k_starts=self.keys.starts,
            k_lengths=self.keys.lengths, q_time=q.stride(0), q_head=q.stride(1), k_time=k.stride(0),
            k_head=k.stride(1), v_time=v.stride(0), v_head=v.stride(1), scale=self.scale,
            first=self.bounds.first, reach=self.reach, far=0 if vectors is None else len(vectors) - 1 - self.reach,
            SPAN=0 if line is None else tile, SPOTS=0 if vectors is None else width(len(vectors)),
            low=self.bounds.low or 0, high=self.bounds.high or 0, HEADS=q.shape[1], GROUP=q.shape[1] // k.shape[1],
            TILE=tile, DIM=q.shape[2], WIDTH=width(q.shape[2]), OUT=v.shape[2], OUT_WIDTH=width(v.shape[2]),
            LOW=self.bounds.low is not None, HIGH=self.bounds.high is not None, TURN=self.turned is not None,
            STEP=pairs[0], GAP=pairs[1], PRECISION=precision(q), num_stages=1,
        )  # fmt: skip


class Short(torch.autograd.Function):
    """softmax(q · (k + vectors) + line) v over short sentences, with all gradients."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, line: Tensor | None, vectors: Tensor | None, meeting: Sentences
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, line, vectors)
        ctx.meeting = meeting
        out = q.new_empty(len(q), q.shape[1], v.shape[2])
        told = meeting.told(v, line, vectors)
        tile, sequences = told["TILE"], len(meeting.queries.lengths)
        cos, sin = meeting.turned.waves if meeting.turned else (q, q)
        short_forward[(sequences * q.shape[1],)](
            q, k, v, out, *(q if bias is None else bias for bias in (line, vectors)), cos, sin, **told,
            SMALL=max(tile // 2, 16), num_warps=(WARPS if vectors is None else BROADER)[tile][0], **_limit(q, told),
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, line, vectors = ctx.saved_tensors
        meeting: Sentences = ctx.meeting
        heads, told = q.shape[1], meeting.told(v, line, vectors)
        tile, sequences = told["TILE"], len(meeting.queries.lengths)
        keep = line is not None and ctx.needs_input_grad[3]
        warps = (WARPS if vectors is None else BROADER)[tile][keep + 1]
        dq = q.new_empty(q.shape)
        dk, dv = meeting.keys.room(heads, k.shape[2]), meeting.keys.room(heads, v.shape[2])
        terms = dq if vectors is None else meeting.queries.room(heads, told["SPOTS"])
        chunks = min(sequences, -(-CHUNKS // heads)) if keep else sequences
        tiles = q.new_empty((chunks, heads, tile, tile) if keep else (1,), dtype=torch.float32)
        cos, sin = meeting.turned.waves if meeting.turned else (q, q)
        short_backward[(chunks * heads,)](
            q, k, v, gradients[0].contiguous(), dq, dk, dv, tiles, terms,
            *(q if bias is None else bias for bias in (line, vectors)), cos, sin, batch=sequences, **told,
            KEEP=keep, num_warps=warps, **_limit(q, told, back=True),
        )  # fmt: skip
        d_line = d_vectors = None
        if keep:
            sums = along_diagonals(tiles.sum(0)) * 0.6931471805599453
            d_line = torch.nn.functional.pad(sums, (1, 0))
        if vectors is not None and ctx.needs_input_grad[4]:
            d_vectors = _added(q, terms, vectors)
        return dq, grouped(dk, k), grouped(dv, v), d_line, d_vectors, None


def _added(q: Tensor, terms: Tensor, vectors: Tensor) -> Tensor:
    """The gradient of vectors by distance: added up by a few programs, in the same order every time."""
    rows = q.shape[0] * q.shape[1]
    programs = min(PROGRAMS, -(-rows // BLOCK))
    parts = q.new_empty((programs, *vectors.shape), dtype=torch.float32)
    vector_slopes[(programs,)](
        q, terms, parts, rows, q.stride(0), q.stride(1), len(vectors), HEADS=q.shape[1], BLOCK=BLOCK,
        DIM=q.shape[2], WIDTH=width(q.shape[2]), SPOTS=terms.shape[2], PRECISION=precision(q), num_warps=4,
    )  # fmt: skip
    return parts.sum(0).to(vectors.dtype)


def _limit(q: Tensor, told: dict[str, Any], *, back: bool = False) -> dict[str, int]:
    """Registers a thread may hold: fewer let more sentences run side by side.

    Left to itself, the assembler gives full float32 products 32 of them and spills the rest.
    """
    if interpreted():
        return {}
    if q.dtype == torch.float32:
        return {"maxnreg": 255}
    if told["TILE"] != 64:
        return {}
    if told["TURN"] and max(told["WIDTH"], told["OUT_WIDTH"]) <= 64:  # as measured; wider ones would spill
        return {"maxnreg": 128 if back else 96}
    return {"maxnreg": 168} if told["SPOTS"] else {}


WARPS = {16: (1, 1, 1), 32: (2, 1, 1), 64: (4, 4, 4), 128: (8, 4, 8)}  # forward, backward, and with a line's gradient
BROADER = {16: (2, 2), 32: (2, 2), 64: (4, 4), 128: (8, 8)}  # with vectors by distance
CHUNKS = 132 * 4  # programs that add up the gradients of a line
PROGRAMS, BLOCK = 132 * 2, 64  # those that add up the gradients of vectors, and the rows they read at a time

short: Callable[..., Tensor] = Short.apply
