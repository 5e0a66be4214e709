"""Sinusoids: cosines and sines of position · frequency, for sinusoidal and rotary positions."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGEST_TABLE = 1 << 14


def cos_sin(
    positions: Int[Tensor, "*time"], frequencies: tuple[float, ...], dtype: torch.dtype
) -> tuple[Float[Tensor, "*time pair"], Float[Tensor, "*time pair"]]:
    """cos and sin of position · frequency, for every position and frequency.

    Angles are computed in float64: at position 10⁶ a float32 angle is wrong by a sixteenth of a
    full circle. float64 is slow on a CPU, so the CPU reads the first positions from a table.
    """
    if positions.device.type == "cpu" and positions.numel():
        length = int(positions.max()) + 1
        if length <= LARGEST_TABLE and int(positions.min()) >= 0:
            tables = _table(max(64, 1 << (length - 1).bit_length()), frequencies, dtype)
            flat = positions.reshape(-1)
            cos, sin = (table.index_select(0, flat).view(*positions.shape, -1) for table in tables)
            return cos, sin
    return _compute(positions, frequencies, dtype)


def _compute(
    positions: Tensor, frequencies: tuple[float, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    angles = positions[..., None] * _tensor(frequencies, positions.device)
    return angles.cos().to(dtype), angles.sin().to(dtype)


@lru_cache(maxsize=64)  # copying them to a GPU on every call would force a synchronisation
def _tensor(frequencies: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(frequencies, dtype=torch.float64, device=device)


@lru_cache(maxsize=32)
def _table(
    length: int, frequencies: tuple[float, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    return _compute(torch.arange(length, device="cpu"), frequencies, dtype)
