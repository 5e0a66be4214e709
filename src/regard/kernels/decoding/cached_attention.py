"""Attention of a decoder that takes one step: to what each row has said, and to its source.

Rows stand at positions of their own, which lie on the device, as everything that changes from step to step: a captured
graph stays true while time goes on. Rows come in slots of `beams` beside each other; a slot that is not `going` is
passed over. Beams never copy what was said: `ancestors` tells which row holds each position of a beam's past.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import LOG2E, width
from regard.kernels.decoding.buffers import Clock, Turns

BLOCK = 32  # keys read at once; the same for all lengths, so that sums do not depend on the room there is


def recall(
    asked: Tensor, past: Tensor, clock: Clock, ancestors: Tensor | None, turns: Turns | None, line: Tensor | None
) -> Tensor:
    """Each row's context of what it has said. `asked` are queries, keys and values beside each other; the new keys and
    values are written into `past` (row, 2, group, time, dim). `line` (head, distance) is added to scores."""
    rows, _, groups, room, dim = past.shape
    heads = asked.shape[1] // dim - 2 * groups
    out = asked.new_empty(rows, heads * dim)
    some = asked  # stands for what is not there
    cos, sin, partner = turns or (some, some, some)
    recall_rows[(rows, heads)](
        asked, past, out, clock.time, clock.going, some if ancestors is None else ancestors, cos, sin, partner,
        some if line is None else line, room, rows, LOG2E / math.sqrt(dim), some.stride(0),
        BEAMS=rows // len(clock.time), HEADS=heads, GROUPS=groups, DIM=dim, WIDTH=width(dim), BLOCK=BLOCK,
        TURN=turns is not None, LINE=line is not None, num_warps=max(1, width(dim) // 64),
    )  # fmt: skip
    return out


def ask(asked: Tensor, memory: Tensor, clock: Clock) -> Tensor:
    """Each row's context of its source, whose keys and values are in `memory` (slot, 2, group, time, dim); all rows and
    heads that read the same ask it together."""
    slots, _, groups, room, dim = memory.shape
    rows, heads = asked.shape[0], asked.shape[1] // dim
    beams, share = rows // slots, heads // groups
    out, large = torch.empty_like(asked), width(beams * share) * width(dim) > 4096
    ask_rows[(slots, groups)](
        asked, memory, out, clock.going, clock.length, room, LOG2E / math.sqrt(dim),
        QUERIES=width(beams * share), BEAMS=beams, SHARE=share, GROUPS=groups, DIM=dim, WIDTH=width(dim), BLOCK=BLOCK,
        PRECISION="tf32x3", num_warps=4 if beams * share > 16 else 2, num_stages=1 if large else 3,
    )  # fmt: skip
    return out


@triton.jit
@no_type_check
def read_part(asked, place, cos, sin, partner, time, dim, DIM: tl.constexpr, TURN: tl.constexpr):
    """One head's part of a row, turned by where it stands."""
    x = tl.load(asked + place + dim, mask=dim < DIM, other=0.0).to(tl.float32)
    if TURN:
        other = tl.load(partner + dim, mask=dim < DIM, other=0)
        mate = tl.load(asked + place + other, mask=dim < DIM, other=0.0).to(tl.float32)
        wave = time * DIM + dim
        x = x * tl.load(cos + wave, mask=dim < DIM, other=0.0) + mate * tl.load(sin + wave, mask=dim < DIM, other=0.0)
    return x


@triton.jit
@no_type_check
def recall_rows(
    asked, past, out, time, going, ancestors, cos, sin, partner, line, room, rows, scale, asked_step,
    BEAMS: tl.constexpr, HEADS: tl.constexpr, GROUPS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, TURN: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """One head of one row: its new key and value are written, and all up to them attended to."""
    row, head = tl.program_id(0), tl.program_id(1)
    slot, group = row // BEAMS, head // (HEADS // GROUPS)
    if tl.load(going + slot) == 0:
        return
    now, dim = tl.load(time + slot), tl.arange(0, WIDTH)
    start = row * asked_step
    q = read_part(asked, start + head * DIM, cos, sin, partner, now, dim, DIM, TURN) * scale
    k = read_part(asked, start + (HEADS + group) * DIM, cos, sin, partner, now, dim, DIM, TURN)
    v = read_part(asked, start + (HEADS + GROUPS + group) * DIM, cos, sin, partner, now, dim, DIM, False)
    size = GROUPS * room * DIM  # of the keys of one row
    own = row.to(tl.int64) * 2 * size + (group * room + now) * DIM + dim
    if head % (HEADS // GROUPS) == 0:
        tl.store(past + own, k.to(past.dtype.element_ty), mask=dim < DIM)
        tl.store(past + own + size, v.to(past.dtype.element_ty), mask=dim < DIM)
    best = tl.sum(q * k, 0)
    if LINE:
        best += tl.load(line + head * room) * 1.4426950408889634
    total, context = best * 0 + 1.0, v
    for first in range(0, now, BLOCK):
        when = first + tl.arange(0, BLOCK)
        said = when < now
        holder = when * 0 + row
        if BEAMS > 1:
            holder = tl.load(ancestors + ((now % 2) * rows + row) * room + when, mask=said, other=0)
        place = (holder.to(tl.int64) * 2 * size + (group * room + when) * DIM)[:, None] + dim[None, :]
        inside = said[:, None] & (dim < DIM)[None, :]
        keys = tl.load(past + place, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(past + place + size, mask=inside, other=0.0).to(tl.float32)
        scores = tl.sum(q[None, :] * keys, 1)
        if LINE:
            scores += tl.load(line + head * room + now - when, mask=said, other=0.0) * 1.4426950408889634
        scores = tl.where(said, scores, float("-inf"))
        top = tl.maximum(best, tl.max(scores, 0))
        weights, fade = tl.exp2(scores - top), tl.exp2(best - top)
        total, best = total * fade + tl.sum(weights, 0), top
        context = context * fade + tl.sum(weights[:, None] * values, 0)
    tl.store(out + (row * HEADS + head) * DIM + dim, (context / total).to(out.dtype.element_ty), mask=dim < DIM)


@triton.jit
@no_type_check
def ask_rows(
    asked, memory, out, going, length, room, scale,
    QUERIES: tl.constexpr, BEAMS: tl.constexpr, SHARE: tl.constexpr, GROUPS: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All rows of a slot, and all heads of a group, attend to the same keys."""
    slot, group = tl.program_id(0), tl.program_id(1)
    if tl.load(going + slot) == 0:
        return
    there, dim, query = tl.load(length + slot), tl.arange(0, WIDTH), tl.arange(0, QUERIES)
    row, head = slot * BEAMS + query // SHARE, group * SHARE + query % SHARE
    place = ((row * GROUPS * SHARE + head) * DIM)[:, None] + dim[None, :]
    real = (query < BEAMS * SHARE)[:, None] & (dim < DIM)[None, :]
    q = tl.load(asked + place, mask=real, other=0.0)
    size = GROUPS * room * DIM
    start = slot.to(tl.int64) * 2 * size + group * room * DIM
    best = tl.full([QUERIES], float("-inf"), tl.float32)
    total, context = tl.zeros([QUERIES], tl.float32), tl.zeros([QUERIES, WIDTH], tl.float32)
    for first in range(0, there, BLOCK):
        when = first + tl.arange(0, BLOCK)
        inside = (when < there)[:, None] & (dim < DIM)[None, :]
        where = start + (when * DIM)[:, None] + dim[None, :]
        keys = tl.load(memory + where, mask=inside, other=0.0)
        values = tl.load(memory + where + size, mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where((when < there)[None, :], scores, float("-inf"))
        top = tl.maximum(best, tl.max(scores, 1))
        weights, fade = tl.exp2(scores - top[:, None]), tl.exp2(best - top)
        total, best = total * fade + tl.sum(weights, 1), top
        context = context * fade[:, None] + tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
    tl.store(out + place, (context / total[:, None]).to(out.dtype.element_ty), mask=real)
