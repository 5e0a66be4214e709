"""One step of beam search on the device: which beginnings go on, which ends count, and whether a slot is over.

The rules are those of search/board.py; a test holds the two together.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.decoding.buffers import Beamed, Clock
from regard.kernels.decoding.topk import NOTHING, few, ordered, place_of, survey

BLOCK = 64  # positions of a past that are copied at once


def advance(logits: Tensor, clock: Clock, books: Beamed, end: int) -> None:
    """One more token in each beam."""
    slots, room, beams = books.said.shape
    few_, rows = 2 * beams + 1, slots * beams
    places = triton.next_power_of_2(few_)
    ids = torch.empty(rows, places, device=logits.device, dtype=torch.int32)
    logps = torch.empty(rows, places, device=logits.device)
    surveyed = survey(logits, clock, end)
    shortlist_rows[(rows,)](
        time=clock.time, going=clock.going, ids=ids, logps=logps, FEW=few_, PLACES=places, BEAMS=beams, **surveyed,
    )  # fmt: skip
    advance_slots[(slots,)](
        ids, logps, *clock[:3], *books, room, rows, END=end, BEAMS=beams, SIDES=triton.next_power_of_2(beams),
        BEST=books.top.shape[1], BESTS=triton.next_power_of_2(books.top.shape[1]), FEW=few_, PLACES=places,
        BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip


@triton.jit
@no_type_check
def shortlist_rows(
    logits, peaks, tops, sums, time, going, most, least, ids, logps, vocabulary, chunks, parts,
    END: tl.constexpr, CHUNK: tl.constexpr, PEAKS: tl.constexpr, FEW: tl.constexpr, PLACES: tl.constexpr,
    BEAMS: tl.constexpr,
):  # fmt: skip
    """The best few of one row."""
    row = tl.program_id(0)
    slot = row // BEAMS
    if tl.load(going + slot) == 0:
        return
    id, logp = few(
        logits, peaks, tops, sums, row, tl.load(time + slot), tl.load(most + slot), tl.load(least + slot), vocabulary,
        chunks, parts, END, CHUNK, PEAKS, FEW, PLACES,
    )  # fmt: skip
    place = row * PLACES + tl.arange(0, PLACES)
    tl.store(ids + place, id)
    tl.store(logps + place, logp)


@triton.jit
@no_type_check
def chosen(which, x):
    """The one number that is marked."""
    return tl.sum(tl.where(which, x, 0.0), 0)


@triton.jit
@no_type_check
def narrower(margin, gap):
    """The smaller; −∞ from −∞ is no gap."""
    return tl.where(gap < margin, gap, margin)


@triton.jit
@no_type_check
def answered(top, scores, rank, BEAMS: tl.constexpr, BEST: tl.constexpr, BESTS: tl.constexpr):
    """The best answers' scores after some more, −∞ for none; in no order."""
    place = tl.arange(0, BESTS)
    for i in range(BEAMS):
        score, held = chosen(rank == i, scores), tl.where(place < BEST, top, float("inf"))
        worst = tl.min(held, 0)
        first = tl.min(tl.where(held == worst, place, BESTS), 0)
        top = tl.where(place == tl.where(score > worst, first, BESTS), score, top)
    return top


@triton.jit
@no_type_check
def best_few(
    ids, listed, scores, row, BEAMS: tl.constexpr, SIDES: tl.constexpr, FEW: tl.constexpr, PLACES: tl.constexpr
):
    """The best few of all beams of a slot, by their sums: which beam, which token, its log-probability, the sum."""
    side, rank = tl.arange(0, SIDES), tl.arange(0, PLACES)
    place = side[:, None] * PLACES + rank[None, :]
    inside = (side < BEAMS)[:, None] & (rank < FEW)[None, :]
    sums = tl.load(listed + row * PLACES + place, mask=inside, other=float("-inf"))
    sums += tl.load(scores + row + side, mask=side < BEAMS, other=float("-inf"))[:, None]
    keys = ordered(sums, tl.where(inside, place, place + (1 << 20)))
    picked = tl.zeros([PLACES], tl.int32)
    for i in range(FEW):
        best = tl.max(tl.max(keys, 1), 0)
        picked = tl.where(rank == i, place_of(best), picked)
        keys = tl.where(keys == best, NOTHING, keys)
    beam, real = picked // PLACES, rank < FEW
    logp = tl.load(listed + row * PLACES + picked, mask=real, other=float("-inf"))
    token = tl.load(ids + row * PLACES + picked, mask=real, other=0)
    return beam, token, logp, logp + tl.load(scores + row + beam, mask=real, other=float("-inf"))


@triton.jit
@no_type_check
def descend(
    ancestors, kept, after, beam, row, now, room, rows, BEAMS: tl.constexpr, SIDES: tl.constexpr, BLOCK: tl.constexpr
):
    """Each beam's past is that of the one it came from, and that one's latest position."""
    side = tl.arange(0, SIDES)
    mine = kept[None, :] & (after[None, :] == side[:, None])
    parent = tl.sum(tl.where(mine, beam[None, :], 0), 1)
    old, new = ((now % 2) * rows + row) * room, (((now + 1) % 2) * rows + row) * room
    for first in range(0, now + 1, BLOCK):
        when = first + tl.arange(0, BLOCK)
        wanted = (side < BEAMS)[:, None] & (when <= now)[None, :]
        holder = tl.load(ancestors + old + parent[:, None] * room + when[None, :], mask=wanted, other=0)
        holder = tl.where((when == now)[None, :], row + parent[:, None], holder)
        tl.store(ancestors + new + side[:, None] * room + when[None, :], holder, mask=wanted)


@triton.jit
@no_type_check
def advance_slots(
    ids, listed, time, going, most, tokens, scores, said, parents, logps, ends, enders, end_logps, top, margin,
    ancestors, penalties, room, rows,
    END: tl.constexpr, BEAMS: tl.constexpr, SIDES: tl.constexpr, BEST: tl.constexpr, BESTS: tl.constexpr,
    FEW: tl.constexpr, PLACES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One slot: the best few of all its beams, in the order of their sums."""
    slot = tl.program_id(0)
    if tl.load(going + slot) == 0:
        return
    now, limit, row = tl.load(time + slot), tl.load(most + slot), slot * BEAMS
    rank = tl.arange(0, PLACES)
    beam, token, logp, total = best_few(ids, listed, scores, row, BEAMS, SIDES, FEW, PLACES)
    real = rank < FEW

    end = (token == END) & (total > float("-inf")) & real
    accepted, late = end & (rank < BEAMS), end & (rank >= BEAMS)
    apart = tl.load(margin + slot)
    apart = narrower(apart, tl.min(tl.where(accepted, total, float("inf")), 0) - chosen(rank == BEAMS, total))
    apart = narrower(apart, chosen(rank == BEAMS - 1, total) - tl.max(tl.where(late, total, float("-inf")), 0))
    here = (slot * room + now) * BEAMS
    tl.store(ends + here + rank, tl.where(accepted, total, float("-inf")), mask=rank < BEAMS)
    tl.store(enders + here + rank, beam, mask=rank < BEAMS)
    tl.store(end_logps + here + rank, logp, mask=rank < BEAMS)
    held = tl.load(top + slot * BEST + tl.arange(0, BESTS), mask=tl.arange(0, BESTS) < BEST, other=float("inf"))
    ranked = tl.where(accepted, tl.div_rn(total, tl.load(penalties + now + 1)), float("-inf"))
    held = answered(held, ranked, rank, BEAMS, BEST, BESTS)
    tl.store(top + slot * BEST + tl.arange(0, BESTS), held, mask=tl.arange(0, BESTS) < BEST)
    worst = tl.min(held, 0)

    rest = real & (end == 0)
    after = tl.cumsum(rest.to(tl.int32), 0) - 1  # the place of those that go on among themselves
    last = chosen(rest & (after == BEAMS - 1), total)
    apart = narrower(apart, last - chosen(rest & (after == BEAMS), total))
    farthest = tl.maximum(tl.load(penalties + limit + 1), tl.load(penalties + now + 2))
    reach = tl.div_rn(chosen(rest & (after == 0), total), farthest)
    apart = narrower(apart, tl.where(reach > worst, float("inf"), worst - reach))
    tl.store(margin + slot, apart)
    tl.store(going + slot, tl.where(reach > worst, tl.where(now < limit, 1, 0), 0))
    tl.store(time + slot, now + 1)

    kept = rest & (after < BEAMS)
    tl.store(said + here + after, token, mask=kept)
    tl.store(parents + here + after, beam, mask=kept)
    tl.store(logps + here + after, logp, mask=kept)
    tl.debug_barrier()  # all have read the old scores
    tl.store(tokens + row + after, token, mask=kept)
    tl.store(scores + row + after, total, mask=kept)
    descend(ancestors, kept, after, beam, row, now, room, rows, BEAMS, SIDES, BLOCK)
