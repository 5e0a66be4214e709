"""One step of beam search on the device: which beams continue and which slots are finished.

The rules are those of search/beam_state.py; a test compares the two.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.decoding.buffers import BeamBuffers, SlotState
from regard.kernels.decoding.topk import LOWEST_KEY, chunk_maxima, index_of, sort_key, top_k

BLOCK = 64  # positions of ancestors that are copied at once


def beam_step(logits: Tensor, state: SlotState, buffers: BeamBuffers, end: int) -> None:
    """Append one token to each beam."""
    slots, capacity, beams = buffers.history.shape
    k, rows = 2 * beams + 1, slots * beams
    k_padded = triton.next_power_of_2(k)
    ids = torch.empty(rows, k_padded, device=logits.device, dtype=torch.int32)
    logps = torch.empty(rows, k_padded, device=logits.device)
    top_k_rows[(rows,)](
        time=state.time, active=state.active, ids=ids, logps=logps, K=k, K_PADDED=k_padded,
        BEAMS=beams, **chunk_maxima(logits, state, end),
    )  # fmt: skip
    beam_step_slots[(slots,)](
        ids, logps, *state[:3], *buffers, capacity, rows, END=end, BEAMS=beams,
        BEAMS_PADDED=triton.next_power_of_2(beams), BEST=buffers.top.shape[1],
        BEST_PADDED=triton.next_power_of_2(buffers.top.shape[1]), K=k, K_PADDED=k_padded,
        BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip


@triton.jit
@no_type_check
def top_k_rows(
    logits, maxima, tops, sums, time, active, max_length, min_length, ids, logps, vocabulary,
    chunks, parts,
    END: tl.constexpr, CHUNK: tl.constexpr, MAXIMA: tl.constexpr, K: tl.constexpr,
    K_PADDED: tl.constexpr, BEAMS: tl.constexpr,
):  # fmt: skip
    """The top K of one row."""
    row = tl.program_id(0)
    slot = row // BEAMS
    if tl.load(active + slot) == 0:
        return
    id, logp = top_k(
        logits, maxima, tops, sums, row, tl.load(time + slot), tl.load(max_length + slot),
        tl.load(min_length + slot), vocabulary, chunks, parts, END, CHUNK, MAXIMA, K, K_PADDED,
    )  # fmt: skip
    index = row * K_PADDED + tl.arange(0, K_PADDED)
    tl.store(ids + index, id)
    tl.store(logps + index, logp)


@triton.jit
@no_type_check
def select(which, x):
    """The one selected element."""
    return tl.sum(tl.where(which, x, 0.0), 0)


@triton.jit
@no_type_check
def smaller_gap(margin, other_gap):
    """The smaller margin; the NaN of −∞ − (−∞) is ignored."""
    return tl.where(other_gap < margin, other_gap, margin)


@triton.jit
@no_type_check
def update_top(
    top, scores, rank, BEAMS: tl.constexpr, BEST: tl.constexpr, BEST_PADDED: tl.constexpr
):
    """The scores of the best hypotheses after new ones are added, unordered; −∞: none."""
    index = tl.arange(0, BEST_PADDED)
    for i in range(BEAMS):
        score, best_scores = select(rank == i, scores), tl.where(index < BEST, top, float("inf"))
        worst = tl.min(best_scores, 0)
        first = tl.min(tl.where(best_scores == worst, index, BEST_PADDED), 0)
        top = tl.where(index == tl.where(score > worst, first, BEST_PADDED), score, top)
    return top


@triton.jit
@no_type_check
def top_candidates(
    ids,
    candidates,
    scores,
    row,
    BEAMS: tl.constexpr,
    BEAMS_PADDED: tl.constexpr,
    K: tl.constexpr,
    K_PADDED: tl.constexpr,
):
    """The top K of all beams of a slot by their sums: beam, token, log-probability and sum."""
    beam_index, rank = tl.arange(0, BEAMS_PADDED), tl.arange(0, K_PADDED)
    index = beam_index[:, None] * K_PADDED + rank[None, :]
    inside = (beam_index < BEAMS)[:, None] & (rank < K)[None, :]
    sums = tl.load(candidates + row * K_PADDED + index, mask=inside, other=float("-inf"))
    sums += tl.load(scores + row + beam_index, mask=beam_index < BEAMS, other=float("-inf"))[
        :, None
    ]
    keys = sort_key(sums, tl.where(inside, index, index + (1 << 20)))
    chosen = tl.zeros([K_PADDED], tl.int32)
    for i in range(K):
        best = tl.max(tl.max(keys, 1), 0)
        chosen = tl.where(rank == i, index_of(best), chosen)
        keys = tl.where(keys == best, LOWEST_KEY, keys)
    beam, real = chosen // K_PADDED, rank < K
    logp = tl.load(candidates + row * K_PADDED + chosen, mask=real, other=float("-inf"))
    token = tl.load(ids + row * K_PADDED + chosen, mask=real, other=0)
    return beam, token, logp, logp + tl.load(scores + row + beam, mask=real, other=float("-inf"))


@triton.jit
@no_type_check
def update_ancestors(
    ancestors,
    continues,
    new_beam,
    beam,
    row,
    now,
    capacity,
    rows,
    BEAMS: tl.constexpr,
    BEAMS_PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each beam's past is that of its parent, plus the parent's latest position."""
    beam_index = tl.arange(0, BEAMS_PADDED)
    is_parent = continues[None, :] & (new_beam[None, :] == beam_index[:, None])
    parent = tl.sum(tl.where(is_parent, beam[None, :], 0), 1)
    old, new = ((now % 2) * rows + row) * capacity, (((now + 1) % 2) * rows + row) * capacity
    for first in range(0, now + 1, BLOCK):
        time = first + tl.arange(0, BLOCK)
        inside = (beam_index < BEAMS)[:, None] & (time <= now)[None, :]
        row_of_position = tl.load(
            ancestors + old + parent[:, None] * capacity + time[None, :], mask=inside, other=0
        )
        row_of_position = tl.where((time == now)[None, :], row + parent[:, None], row_of_position)
        tl.store(
            ancestors + new + beam_index[:, None] * capacity + time[None, :],
            row_of_position,
            mask=inside,
        )


@triton.jit
@no_type_check
def beam_step_slots(
    ids, candidates, time, active, max_length, tokens, scores, history, parents, logps, ends,
    enders, end_logps, top, margin, ancestors, penalties, capacity, rows,
    END: tl.constexpr, BEAMS: tl.constexpr, BEAMS_PADDED: tl.constexpr, BEST: tl.constexpr,
    BEST_PADDED: tl.constexpr, K: tl.constexpr, K_PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One slot: the top K of all its beams, in the order of their sums."""
    slot = tl.program_id(0)
    if tl.load(active + slot) == 0:
        return
    now, limit, row = tl.load(time + slot), tl.load(max_length + slot), slot * BEAMS
    rank = tl.arange(0, K_PADDED)
    beam, token, logp, total = top_candidates(
        ids, candidates, scores, row, BEAMS, BEAMS_PADDED, K, K_PADDED
    )
    real = rank < K

    end = (token == END) & (total > float("-inf")) & real
    accepted, late = end & (rank < BEAMS), end & (rank >= BEAMS)
    gap = tl.load(margin + slot)
    gap = smaller_gap(
        gap, tl.min(tl.where(accepted, total, float("inf")), 0) - select(rank == BEAMS, total)
    )
    gap = smaller_gap(
        gap, select(rank == BEAMS - 1, total) - tl.max(tl.where(late, total, float("-inf")), 0)
    )
    here = (slot * capacity + now) * BEAMS
    tl.store(ends + here + rank, tl.where(accepted, total, float("-inf")), mask=rank < BEAMS)
    tl.store(enders + here + rank, beam, mask=rank < BEAMS)
    tl.store(end_logps + here + rank, logp, mask=rank < BEAMS)
    best = tl.arange(0, BEST_PADDED)
    best_scores = tl.load(top + slot * BEST + best, mask=best < BEST, other=float("inf"))
    ranked = tl.where(accepted, tl.div_rn(total, tl.load(penalties + now + 1)), float("-inf"))
    best_scores = update_top(best_scores, ranked, rank, BEAMS, BEST, BEST_PADDED)
    tl.store(top + slot * BEST + best, best_scores, mask=best < BEST)
    worst = tl.min(best_scores, 0)

    unfinished = real & (end == 0)
    new_beam = tl.cumsum(unfinished.to(tl.int32), 0) - 1  # the new index of beams that continue
    last = select(unfinished & (new_beam == BEAMS - 1), total)
    gap = smaller_gap(gap, last - select(unfinished & (new_beam == BEAMS), total))
    best_penalty = tl.maximum(tl.load(penalties + limit + 1), tl.load(penalties + now + 2))
    best_possible = tl.div_rn(select(unfinished & (new_beam == 0), total), best_penalty)
    gap = smaller_gap(gap, tl.where(best_possible > worst, float("inf"), worst - best_possible))
    tl.store(margin + slot, gap)
    tl.store(active + slot, tl.where(best_possible > worst, tl.where(now < limit, 1, 0), 0))
    tl.store(time + slot, now + 1)

    continues = unfinished & (new_beam < BEAMS)
    tl.store(history + here + new_beam, token, mask=continues)
    tl.store(parents + here + new_beam, beam, mask=continues)
    tl.store(logps + here + new_beam, logp, mask=continues)
    tl.debug_barrier()  # all threads have read the old scores
    tl.store(tokens + row + new_beam, token, mask=continues)
    tl.store(scores + row + new_beam, total, mask=continues)
    update_ancestors(
        ancestors, continues, new_beam, beam, row, now, capacity, rows, BEAMS, BEAMS_PADDED, BLOCK
    )
