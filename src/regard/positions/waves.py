"""Waves: the cosines and sines that sinusoidal and rotary positions are made of."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGEST_TABLE = 1 << 14


def waves(
    positions: Int[Tensor, "*time"], rates: tuple[float, ...], dtype: torch.dtype
) -> tuple[Float[Tensor, "*time pair"], Float[Tensor, "*time pair"]]:
    """cos and sin of position · rate, for every position and rate.

    Angles are computed in float64: at position 10⁶ a float32 angle is off by a sixteenth of a turn. That is slow on a
    CPU, where the first positions are therefore looked up in a table.
    """
    if positions.device.type == "cpu" and positions.numel():
        longest = int(positions.max()) + 1
        if longest <= LARGEST_TABLE and int(positions.min()) >= 0:
            cos, sin = _table(max(64, 1 << (longest - 1).bit_length()), rates, dtype)
            flat = positions.reshape(-1)
            return tuple(table.index_select(0, flat).view(*positions.shape, -1) for table in (cos, sin))  # type: ignore
    return _computed(positions, rates, dtype)


def _computed(positions: Tensor, rates: tuple[float, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    angles = positions[..., None] * _numbers(rates, positions.device)
    return angles.cos().to(dtype), angles.sin().to(dtype)


@lru_cache(maxsize=64)  # to send them to a GPU each time would be to wait for it
def _numbers(rates: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(rates, dtype=torch.float64, device=device)


@lru_cache(maxsize=32)
def _table(longest: int, rates: tuple[float, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return _computed(torch.arange(longest, device="cpu"), rates, dtype)
