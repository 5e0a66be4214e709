"""Noise: numbers like chance that follow from where they are asked for, and so are the same in any batch."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

_GOLDEN = -0x61C8864680B583EB  # 2⁶⁴ over the golden ratio, as a number with a sign


def gumbel(seeds: Int[Tensor, " row"], step: int, tokens: Int[Tensor, "row token"]) -> Float[Tensor, "row token"]:
    """Noise that depends on a row's seed, the step and the token, and on nothing else: −log of an exponential, made of
    32 bits that splitmix64 (Steele et al. 2014) mixes from the three."""
    begun = _mixed(seeds + torch.full_like(seeds, step + 1) * _GOLDEN)
    mixed = _mixed(begun[:, None] + tokens * _GOLDEN)
    even = (_shifted(mixed, 32).to(torch.float32) + 0.5) * 2**-32
    return -(-torch.log1p(-even.clamp(max=1 - 2**-24))).log()


def _mixed(numbers: Tensor) -> Tensor:
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        numbers = (numbers ^ _shifted(numbers, shift)) * factor
    return numbers ^ _shifted(numbers, 31)


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """To the right, as if there were no sign."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
