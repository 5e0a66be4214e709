"""Top-k of each row's logits, and the step of greedy search.

A first pass reads the logits once: the maximum of each chunk, the sum of exponentials of each part
(CHUNKS chunks). The top k of a row are in the k chunks with the largest maxima, and only these are
read again.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.decoding.buffers import GreedyBuffers, SlotState

LOWEST_KEY = tl.constexpr(-(1 << 63) + 1)  # below every key; its index is beyond any vocabulary
CHUNK, CHUNKS = 64, 32  # logits of a chunk, and chunks of a part


def chunk_maxima(logits: Tensor, state: SlotState, end: int) -> dict[str, Any]:
    """Maxima of chunks, maxima and sums of parts, and the other arguments of the top-k kernels."""
    rows, vocabulary = logits.shape
    parts = triton.cdiv(vocabulary, CHUNK * CHUNKS)
    maxima = torch.empty(rows, parts * CHUNKS, device=logits.device)
    tops, sums = torch.empty(2, rows, parts, device=logits.device)
    beams = rows // len(state.time)
    limits = {"max_length": state.max_length, "min_length": state.min_length}
    shared = {**limits, "vocabulary": vocabulary, "END": end, "CHUNK": CHUNK}
    chunk_maxima_rows[(rows, parts)](
        logits,
        maxima,
        tops,
        sums,
        state.time,
        state.active,
        parts=parts,
        CHUNKS=CHUNKS,
        BEAMS=beams,
        **shared,
        num_warps=4,
    )
    padded = triton.next_power_of_2(parts * CHUNKS)
    warps = max(1, min(8, padded // 1024))
    sizes = {"chunks": parts * CHUNKS, "parts": parts, "MAXIMA": padded, "num_warps": warps}
    return {"logits": logits, "maxima": maxima, "tops": tops, "sums": sums, **shared, **sizes}


def greedy_step(logits: Tensor, state: SlotState, buffers: GreedyBuffers, end: int) -> None:
    """Append the most probable token to each row."""
    greedy_rows[(len(logits),)](
        time=state.time, active=state.active, tokens=buffers.tokens, history=buffers.history,
        logps=buffers.logps, margin=buffers.margin, capacity=buffers.history.shape[1], K=2,
        K_PADDED=2, **chunk_maxima(logits, state, end),
    )  # fmt: skip


@triton.jit
@no_type_check
def sort_key(x, index):
    """Value and index in one integer, ordered by value, then by smaller index."""
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
@no_type_check
def index_of(key):
    """The index of a `sort_key`."""
    return 0x7FFFFFFF - (key & 0xFFFFFFFF).to(tl.int32)


@triton.jit
@no_type_check
def constrain_length(x, id, length, max_length, min_length, END: tl.constexpr):
    """Allow only the end at `max_length`, and no end before `min_length`."""
    x = tl.where((length >= max_length) & (id != END), float("-inf"), x)
    return tl.where((length < min_length) & (id == END), float("-inf"), x)


@triton.jit
@no_type_check
def chunk_maxima_rows(
    logits, maxima, tops, sums, time, active, max_length, min_length, vocabulary, parts,
    END: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, BEAMS: tl.constexpr,
):  # fmt: skip
    """One part of one row: the maximum of each chunk, and the part's maximum and sum."""
    row, part = tl.program_id(0), tl.program_id(1)
    slot = row // BEAMS
    if tl.load(active + slot) == 0:
        return
    chunk = part * CHUNKS + tl.arange(0, CHUNKS)
    id = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    start = row.to(tl.int64) * vocabulary
    x = tl.load(logits + start + id, mask=id < vocabulary, other=float("-inf")).to(tl.float32)
    top = tl.max(tl.max(x, 1), 0)
    tl.store(tops + row * parts + part, top)
    tl.store(sums + row * parts + part, tl.sum(tl.sum(tl.exp(x - top), 1), 0))
    x = constrain_length(
        x, id, tl.load(time + slot), tl.load(max_length + slot), tl.load(min_length + slot), END
    )
    tl.store(maxima + row * parts * CHUNKS + chunk, tl.max(x, 1))


@triton.jit
@no_type_check
def top_k(
    logits, maxima, tops, sums, row, length, max_length, min_length, vocabulary, chunks, parts,
    END: tl.constexpr, CHUNK: tl.constexpr, MAXIMA: tl.constexpr, K: tl.constexpr,
    K_PADDED: tl.constexpr,
):  # fmt: skip
    """The top K of a row, best first: ids and log-probabilities."""
    part, rank = tl.arange(0, MAXIMA), tl.arange(0, K_PADDED)
    top = tl.load(tops + row * parts + part, mask=part < parts, other=float("-inf"))
    part_sum = tl.load(sums + row * parts + part, mask=part < parts, other=0.0)
    row_max = tl.max(top, 0)
    log_total = row_max + tl.log(tl.sum(part_sum * tl.exp(top - row_max), 0))
    keys = sort_key(
        tl.load(maxima + row * chunks + part, mask=part < chunks, other=float("-inf")), part
    )
    chunk = tl.full([K_PADDED], chunks, tl.int32)
    for i in range(K):
        best = tl.max(keys, 0)
        chunk = tl.where(rank == i, tl.minimum(index_of(best), chunks), chunk)
        keys = tl.where(keys == best, LOWEST_KEY, keys)
    id = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    start = row.to(tl.int64) * vocabulary
    inside = (id < vocabulary) & (rank < K)[:, None]
    x = tl.load(logits + start + id, mask=inside, other=float("-inf")).to(tl.float32)
    keys = sort_key(constrain_length(x, id, length, max_length, min_length, END), id)
    chosen = tl.zeros([K_PADDED], tl.int32)
    for i in range(K):
        best = tl.max(tl.max(keys, 1), 0)
        chosen = tl.where(rank == i, index_of(best), chosen)
        keys = tl.where(keys == best, LOWEST_KEY, keys)
    x = tl.load(
        logits + start + chosen, mask=(chosen < vocabulary) & (rank < K), other=float("-inf")
    ).to(tl.float32)
    x = constrain_length(x, chosen, length, max_length, min_length, END)
    return tl.minimum(chosen, vocabulary - 1), x - log_total


@triton.jit
@no_type_check
def greedy_rows(
    logits, maxima, tops, sums, time, active, max_length, min_length, tokens, history, logps,
    margin, vocabulary, chunks, parts, capacity,
    END: tl.constexpr, CHUNK: tl.constexpr, MAXIMA: tl.constexpr, K: tl.constexpr,
    K_PADDED: tl.constexpr,
):  # fmt: skip
    """One row: append its most probable token; the end token deactivates the slot."""
    row = tl.program_id(0)
    if tl.load(active + row) == 0:
        return
    now, rank = tl.load(time + row), tl.arange(0, K_PADDED)
    id, logp = top_k(
        logits, maxima, tops, sums, row, now, tl.load(max_length + row), tl.load(min_length + row),
        vocabulary, chunks, parts, END, CHUNK, MAXIMA, K, K_PADDED,
    )  # fmt: skip
    first = rank == 0
    token, best = tl.sum(tl.where(first, id, 0), 0), tl.sum(tl.where(first, logp, 0.0), 0)
    gap = best - tl.sum(tl.where(rank == 1, logp, 0.0), 0)
    tl.store(history + row * capacity + now, token)
    tl.store(logps + row * capacity + now, best)
    tl.store(margin + row, tl.minimum(tl.load(margin + row), gap))
    tl.store(tokens + row, token)
    tl.store(active + row, (token != END).to(tl.int32))
    tl.store(time + row, now + 1)
