"""Gumbel noise as a hash of seed, step and token, so that it is the same in any batch."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

_GOLDEN = -0x61C8864680B583EB  # 2⁶⁴ / golden ratio, as a signed integer


def gumbel(
    seeds: Int[Tensor, " row"], step: int, tokens: Int[Tensor, "row token"]
) -> Float[Tensor, "row token"]:
    """Gumbel noise: −log of an exponential variate, from 32 bits of splitmix64 (Steele et al.

    2014).
    """
    row_hash = _mix(seeds + torch.full_like(seeds, step + 1) * _GOLDEN)
    mixed = _mix(row_hash[:, None] + tokens * _GOLDEN)
    uniform = (_shift(mixed, 32).to(torch.float32) + 0.5) * 2**-32
    return -(-torch.log1p(-uniform.clamp(max=1 - 2**-24))).log()


def _mix(numbers: Tensor) -> Tensor:
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        numbers = (numbers ^ _shift(numbers, shift)) * factor
    return numbers ^ _shift(numbers, 31)


def _shift(numbers: Tensor, bits: int) -> Tensor:
    """Logical right shift."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
