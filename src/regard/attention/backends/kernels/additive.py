"""Additive scores v · tanh(q + k) without the query × key × dim tensor, which lives in registers, a slice at a time.

Queries and keys come transposed, (map, dim, time): a step of the loop takes one dimension of a tile's queries and keys
and adds their outer sum, so nothing is reduced across threads.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def tanh(x, FAST: tl.constexpr):
    """tanh; FAST is the card's own instruction, right to 11 bits: more than bfloat16 holds."""
    if FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    return 1.0 - 2.0 / (1.0 + tl.exp2(x * 2.8853900817779268))


@triton.jit
@no_type_check
def additive_scores(
    Q, K, V, S, queries, keys, q_dim, k_dim, heads,
    DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, UNROLL: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """A program for each tile of each map (batch and head)."""
    query = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    key = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    place = tl.program_id(2)
    V += (place % heads) * DIM
    q = Q + place.to(tl.int64) * DIM * q_dim + query
    k = K + place.to(tl.int64) * DIM * k_dim + key
    scores = tl.zeros([ROWS, KEYS], tl.float32)
    for start in range(0, DIM, UNROLL):
        for step in tl.static_range(UNROLL):
            d = start + step
            one, other = tl.load(q + d * q_dim), tl.load(k + d * k_dim)
            scores += tl.load(V + d) * tanh(one[:, None] + other[None, :], FAST)
    S += place.to(tl.int64) * queries * keys
    inside = (query < queries)[:, None] & (key < keys)[None, :]
    tl.store(S + query[:, None] * keys + key[None, :], scores.to(S.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def additive_slopes(
    A, B, V, dS, dA, dV, ones, others, a_dim, b_dim, s_map, s_one, s_other, heads,
    DIM: tl.constexpr, TILE: tl.constexpr, OTHERS: tl.constexpr, DIMS: tl.constexpr, KEEP: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """dA = Σ_b dS · v · (1 − tanh²(a + b)) for a tile of a's and some dimensions: a are queries and b keys, or the
    other way round. KEEP: also Σ_b dS · tanh(a + b), of which the gradient of v is the sum over a.

    FAST takes the squares from Σ_b dS at the end: an operation less for each number, and what is lost where tanh is
    almost one is less than 16 bits can show.
    """
    a = tl.program_id(0) * TILE + tl.arange(0, TILE)
    d = tl.program_id(1) * DIMS + tl.arange(0, DIMS)
    place = tl.program_id(2).to(tl.int64)
    A += place * DIM * a_dim
    B += place * DIM * b_dim
    dS += place * s_map
    one = tl.load(A + d[:, None] * a_dim + a[None, :])[:, :, None]
    steep = tl.zeros([DIMS, TILE, OTHERS], tl.float32)
    plain = tl.zeros([DIMS, TILE, OTHERS], tl.float32)
    total = tl.zeros([TILE, OTHERS], tl.float32)
    for start in range(0, others, OTHERS):
        b = start + tl.arange(0, OTHERS)
        inside = (a < ones)[:, None] & (b < others)[None, :]
        slope = tl.load(dS + a[:, None] * s_one + b[None, :] * s_other, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(B + d[:, None] * b_dim + b[None, :])[:, None, :]
        t = tanh(one + other, FAST)
        first = slope[None, :, :] * t
        if FAST:
            steep -= first * t
            total += slope
        else:
            steep += slope[None, :, :] * (1.0 - t * t)
        if KEEP:
            plain += first
    v = tl.load(V + (tl.program_id(2) % heads) * DIM + d)[:, None]
    result = v * (tl.sum(total, 1)[None, :] + tl.sum(steep, 2))
    out = place * DIM * ones + d[:, None] * ones + a[None, :]
    tl.store(dA + out, result, mask=(a < ones)[None, :])
    if KEEP:
        tl.store(dV + out, tl.sum(plain, 2), mask=(a < ones)[None, :])
