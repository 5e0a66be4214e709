"""The best few of each row's vocabulary, and what follows from them in greedy search.

First the logits are read once: of every chunk its largest, of every part the sum of exponentials. The best few of a row
then lie in the few chunks with the largest peaks, and only these are read again.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.decoding.buffers import Clock, Walked

NOTHING = tl.constexpr(-(1 << 63) + 1)  # less than any number; its place is far beyond any vocabulary
CHUNK, CHUNKS = 64, 32  # logits of a chunk, and chunks of a part


def survey(logits: Tensor, clock: Clock, end: int) -> dict[str, Any]:
    """Peaks of chunks, tops and sums of parts, and all else that who picks from them is told."""
    rows, vocabulary = logits.shape
    parts = triton.cdiv(vocabulary, CHUNK * CHUNKS)
    peaks = torch.empty(rows, parts * CHUNKS, device=logits.device)
    tops, sums = torch.empty(2, rows, parts, device=logits.device)
    beams = rows // len(clock.time)
    told = {"most": clock.most, "least": clock.least, "vocabulary": vocabulary, "END": end, "CHUNK": CHUNK}
    survey_rows[(rows, parts)](
        logits, peaks, tops, sums, clock.time, clock.going, parts=parts, CHUNKS=CHUNKS, BEAMS=beams, **told, num_warps=4
    )
    side = triton.next_power_of_2(parts * CHUNKS)
    sizes = {"chunks": parts * CHUNKS, "parts": parts, "PEAKS": side, "num_warps": max(1, min(8, side // 1024))}
    return {"logits": logits, "peaks": peaks, "tops": tops, "sums": sums, **told, **sizes}


def likeliest(logits: Tensor, clock: Clock, books: Walked, end: int) -> None:
    """One more token in each row: the likeliest."""
    likeliest_rows[(len(logits),)](
        time=clock.time, going=clock.going, tokens=books.tokens, said=books.said, logps=books.logps,
        margin=books.margin, room=books.said.shape[1], FEW=2, PLACES=2, **survey(logits, clock, end),
    )  # fmt: skip


@triton.jit
@no_type_check
def ordered(x, place):
    """Number and place in one integer, which is the larger the larger the number, and for equals the smaller the
    place."""
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
@no_type_check
def place_of(key):
    """The place that `ordered` was given."""
    return 0x7FFFFFFF - (key & 0xFFFFFFFF).to(tl.int32)


@triton.jit
@no_type_check
def allowed(x, id, said, most, least, END: tl.constexpr):
    """At its limit a row may only end; before it has said enough it may not."""
    x = tl.where((said >= most) & (id != END), float("-inf"), x)
    return tl.where((said < least) & (id == END), float("-inf"), x)


@triton.jit
@no_type_check
def survey_rows(
    logits, peaks, tops, sums, time, going, most, least, vocabulary, parts,
    END: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, BEAMS: tl.constexpr,
):  # fmt: skip
    """One part of one row."""
    row, part = tl.program_id(0), tl.program_id(1)
    slot = row // BEAMS
    if tl.load(going + slot) == 0:
        return
    chunk = part * CHUNKS + tl.arange(0, CHUNKS)
    id = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    start = row.to(tl.int64) * vocabulary
    x = tl.load(logits + start + id, mask=id < vocabulary, other=float("-inf")).to(tl.float32)
    top = tl.max(tl.max(x, 1), 0)
    tl.store(tops + row * parts + part, top)
    tl.store(sums + row * parts + part, tl.sum(tl.sum(tl.exp(x - top), 1), 0))
    x = allowed(x, id, tl.load(time + slot), tl.load(most + slot), tl.load(least + slot), END)
    tl.store(peaks + row * parts * CHUNKS + chunk, tl.max(x, 1))


@triton.jit
@no_type_check
def few(
    logits, peaks, tops, sums, row, said, most, least, vocabulary, chunks, parts,
    END: tl.constexpr, CHUNK: tl.constexpr, PEAKS: tl.constexpr, FEW: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """The best few of a row, the best first: ids and log-probabilities."""
    part, rank = tl.arange(0, PEAKS), tl.arange(0, PLACES)
    top = tl.load(tops + row * parts + part, mask=part < parts, other=float("-inf"))
    share = tl.load(sums + row * parts + part, mask=part < parts, other=0.0)
    most_of_all = tl.max(top, 0)
    norm = most_of_all + tl.log(tl.sum(share * tl.exp(top - most_of_all), 0))
    keys = ordered(tl.load(peaks + row * chunks + part, mask=part < chunks, other=float("-inf")), part)
    chunk = tl.full([PLACES], chunks, tl.int32)
    for i in range(FEW):
        best = tl.max(keys, 0)
        chunk = tl.where(rank == i, tl.minimum(place_of(best), chunks), chunk)
        keys = tl.where(keys == best, NOTHING, keys)
    id = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    start = row.to(tl.int64) * vocabulary
    inside = (id < vocabulary) & (rank < FEW)[:, None]
    x = tl.load(logits + start + id, mask=inside, other=float("-inf")).to(tl.float32)
    keys = ordered(allowed(x, id, said, most, least, END), id)
    picked = tl.zeros([PLACES], tl.int32)
    for i in range(FEW):
        best = tl.max(tl.max(keys, 1), 0)
        picked = tl.where(rank == i, place_of(best), picked)
        keys = tl.where(keys == best, NOTHING, keys)
    x = tl.load(logits + start + picked, mask=(picked < vocabulary) & (rank < FEW), other=float("-inf")).to(tl.float32)
    x = allowed(x, picked, said, most, least, END)
    return tl.minimum(picked, vocabulary - 1), x - norm


@triton.jit
@no_type_check
def likeliest_rows(
    logits, peaks, tops, sums, time, going, most, least, tokens, said, logps, margin, vocabulary, chunks, parts, room,
    END: tl.constexpr, CHUNK: tl.constexpr, PEAKS: tl.constexpr, FEW: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """One row: its likeliest token is said, and if that is the end, it is over."""
    row = tl.program_id(0)
    if tl.load(going + row) == 0:
        return
    now, rank = tl.load(time + row), tl.arange(0, PLACES)
    id, logp = few(
        logits, peaks, tops, sums, row, now, tl.load(most + row), tl.load(least + row), vocabulary, chunks, parts,
        END, CHUNK, PEAKS, FEW, PLACES,
    )  # fmt: skip
    first = rank == 0
    token, best = tl.sum(tl.where(first, id, 0), 0), tl.sum(tl.where(first, logp, 0.0), 0)
    apart = best - tl.sum(tl.where(rank == 1, logp, 0.0), 0)
    tl.store(said + row * room + now, token)
    tl.store(logps + row * room + now, best)
    tl.store(margin + row, tl.minimum(tl.load(margin + row), apart))
    tl.store(tokens + row, token)
    tl.store(going + row, (token != END).to(tl.int32))
    tl.store(time + row, now + 1)
