"""Attention of one decoding step: self-attention over the KV cache, and cross-attention.

Each row has its own position. Positions and everything else that changes between steps are on the
device, so a captured CUDA graph remains valid. Rows are grouped in slots of `beams`; inactive slots
are skipped. Beams never copy the cache: `ancestors` is the row that stores each past position.
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

from regard.kernels import LOG2E, tile_size
from regard.kernels.decoding.buffers import RotaryTable, SlotState

BLOCK = 32  # keys per load; constant, so that sums do not depend on the capacity


def cached_attention(
    qkv: Tensor,
    past: Tensor,
    state: SlotState,
    ancestors: Tensor | None,
    rotation: RotaryTable | None,
    bias_table: Tensor | None,
) -> Tensor:
    """Self-attention of each row over its past.

    `qkv` are queries, keys and values, concatenated; the new keys and values are written to `past`
    (row, 2, kv_head, time, dim). `bias_table` (head, distance) is added to scores.
    """
    rows, _, kv_heads, capacity, dim = past.shape
    heads = qkv.shape[1] // dim - 2 * kv_heads
    out = qkv.new_empty(rows, heads * dim)
    placeholder = qkv  # for arguments that are not used
    cos, sin, partner = rotation or (placeholder, placeholder, placeholder)
    cached_attention_rows[(rows, heads)](
        qkv, past, out, state.time, state.active, placeholder if ancestors is None else ancestors,
        cos, sin, partner, placeholder if bias_table is None else bias_table, capacity, rows,
        LOG2E / math.sqrt(dim), placeholder.stride(0), BEAMS=rows // len(state.time), HEADS=heads,
        KV_HEADS=kv_heads, DIM=dim, WIDTH=tile_size(dim), BLOCK=BLOCK, ROTATE=rotation is not None,
        BIAS=bias_table is not None, num_warps=max(1, tile_size(dim) // 64),
    )  # fmt: skip
    return out


def cross_attention(queries: Tensor, memory: Tensor, state: SlotState) -> Tensor:
    """Cross-attention of each row to its source; `memory` is (slot, 2, kv_head, time, dim).

    One program handles all rows and heads that share keys.
    """
    slots, _, kv_heads, capacity, dim = memory.shape
    rows, heads = queries.shape[0], queries.shape[1] // dim
    beams, group_size = rows // slots, heads // kv_heads
    out, large = torch.empty_like(queries), tile_size(beams * group_size) * tile_size(dim) > 4096
    cross_attention_rows[(slots, kv_heads)](
        queries, memory, out, state.active, state.source_length, capacity, LOG2E / math.sqrt(dim),
        QUERIES=tile_size(beams * group_size), BEAMS=beams, GROUP_SIZE=group_size,
        KV_HEADS=kv_heads, DIM=dim, WIDTH=tile_size(dim), BLOCK=BLOCK, PRECISION="tf32x3",
        num_warps=4 if beams * group_size > 16 else 2, num_stages=1 if large else 3,
    )  # fmt: skip
    return out


@triton.jit
@no_type_check
def read_head(heads, index, cos, sin, partner, time, dim, DIM: tl.constexpr, ROTATE: tl.constexpr):
    """One head of a row, rotated by its position."""
    x = tl.load(heads + index + dim, mask=dim < DIM, other=0.0).to(tl.float32)
    if ROTATE:
        other = tl.load(partner + dim, mask=dim < DIM, other=0)
        partner_value = tl.load(heads + index + other, mask=dim < DIM, other=0.0).to(tl.float32)
        angle = time * DIM + dim
        x = x * tl.load(cos + angle, mask=dim < DIM, other=0.0) + partner_value * tl.load(
            sin + angle, mask=dim < DIM, other=0.0
        )
    return x


@triton.jit
@no_type_check
def cached_attention_rows(
    qkv, past, out, time, active, ancestors, cos, sin, partner, bias_table, capacity, rows, scale,
    qkv_step,
    BEAMS: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROTATE: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """One head of one row: store its new key and value, and attend to all positions so far."""
    row, head = tl.program_id(0), tl.program_id(1)
    slot, kv_head = row // BEAMS, head // (HEADS // KV_HEADS)
    if tl.load(active + slot) == 0:
        return
    now, dim = tl.load(time + slot), tl.arange(0, WIDTH)
    start = row * qkv_step
    q = read_head(qkv, start + head * DIM, cos, sin, partner, now, dim, DIM, ROTATE) * scale
    k = read_head(qkv, start + (HEADS + kv_head) * DIM, cos, sin, partner, now, dim, DIM, ROTATE)
    v = read_head(
        qkv, start + (HEADS + KV_HEADS + kv_head) * DIM, cos, sin, partner, now, dim, DIM, False
    )
    size = KV_HEADS * capacity * DIM  # of the keys of one row
    new_index = row.to(tl.int64) * 2 * size + (kv_head * capacity + now) * DIM + dim
    if head % (HEADS // KV_HEADS) == 0:
        tl.store(past + new_index, k.to(past.dtype.element_ty), mask=dim < DIM)
        tl.store(past + new_index + size, v.to(past.dtype.element_ty), mask=dim < DIM)
    row_max = tl.sum(q * k, 0)
    if BIAS:
        row_max += tl.load(bias_table + head * capacity) * 1.4426950408889634
    total, context = row_max * 0 + 1.0, v
    for first in range(0, now, BLOCK):
        key_time = first + tl.arange(0, BLOCK)
        visible = key_time < now
        row_of_position = key_time * 0 + row
        if BEAMS > 1:
            row_of_position = tl.load(
                ancestors + ((now % 2) * rows + row) * capacity + key_time, mask=visible, other=0
            )
        index = (row_of_position.to(tl.int64) * 2 * size + (kv_head * capacity + key_time) * DIM)[
            :, None
        ] + dim[None, :]
        inside = visible[:, None] & (dim < DIM)[None, :]
        keys = tl.load(past + index, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(past + index + size, mask=inside, other=0.0).to(tl.float32)
        scores = tl.sum(q[None, :] * keys, 1)
        if BIAS:
            scores += (
                tl.load(bias_table + head * capacity + now - key_time, mask=visible, other=0.0)
                * 1.4426950408889634
            )
        scores = tl.where(visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 0))
        weights, rescale = tl.exp2(scores - new_max), tl.exp2(row_max - new_max)
        total, row_max = total * rescale + tl.sum(weights, 0), new_max
        context = context * rescale + tl.sum(weights[:, None] * values, 0)
    tl.store(
        out + (row * HEADS + head) * DIM + dim,
        (context / total).to(out.dtype.element_ty),
        mask=dim < DIM,
    )


@triton.jit
@no_type_check
def cross_attention_rows(
    queries, memory, out, active, source_lengths, capacity, scale,
    QUERIES: tl.constexpr, BEAMS: tl.constexpr, GROUP_SIZE: tl.constexpr, KV_HEADS: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All rows of a slot and all heads of a key head attend to the same keys."""
    slot, kv_head = tl.program_id(0), tl.program_id(1)
    if tl.load(active + slot) == 0:
        return
    source_length, dim, query = (
        tl.load(source_lengths + slot),
        tl.arange(0, WIDTH),
        tl.arange(0, QUERIES),
    )
    row, head = slot * BEAMS + query // GROUP_SIZE, kv_head * GROUP_SIZE + query % GROUP_SIZE
    index = ((row * KV_HEADS * GROUP_SIZE + head) * DIM)[:, None] + dim[None, :]
    real = (query < BEAMS * GROUP_SIZE)[:, None] & (dim < DIM)[None, :]
    q = tl.load(queries + index, mask=real, other=0.0)
    size = KV_HEADS * capacity * DIM
    start = slot.to(tl.int64) * 2 * size + kv_head * capacity * DIM
    row_max = tl.full([QUERIES], float("-inf"), tl.float32)
    total, context = tl.zeros([QUERIES], tl.float32), tl.zeros([QUERIES, WIDTH], tl.float32)
    for first in range(0, source_length, BLOCK):
        key_time = first + tl.arange(0, BLOCK)
        inside = (key_time < source_length)[:, None] & (dim < DIM)[None, :]
        key_index = start + (key_time * DIM)[:, None] + dim[None, :]
        keys = tl.load(memory + key_index, mask=inside, other=0.0)
        values = tl.load(memory + key_index + size, mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where((key_time < source_length)[None, :], scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        weights, rescale = tl.exp2(scores - new_max[:, None]), tl.exp2(row_max - new_max)
        total, row_max = total * rescale + tl.sum(weights, 1), new_max
        context = context * rescale[:, None] + tl.dot(
            weights.to(values.dtype), values, input_precision=PRECISION
        )
    tl.store(out + index, (context / total[:, None]).to(out.dtype.element_ty), mask=real)
