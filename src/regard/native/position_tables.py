"""Position encodings for the native engine: frequencies, and tables of biases by distance."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.native.gate import split_part
from regard.native.library import NativeError

# `PositionKind` of position.h.
KINDS = {"none": 0, "learned": 3, "rotary": 4, "alibi": 5, "distance": 6, "t5": 6, "shaw": 7}
SINUSOIDAL = {"paired": 1, "halves": 2}
LEARNED_POSITIONS = 1024  # the default of regard.positions.Learned, which needs torch
MAX_TABLE = 1 << 24  # biases of all heads and distances
BIAS_NAMES = (
    ("encoder.0.self_attention.attention.bias.table", "native.encoder_bias"),
    ("decoder.0.self_attention.attention.bias.table", "native.decoder_bias"),
)


@dataclass
class PositionTables:
    """What the C++ engine needs to know about a position encoding."""

    kind: int
    limit: int = 0
    rotated_dims: int = 0
    neighbours: bool = False
    frequencies: list[float] = field(default_factory=list)


def convert_position(
    setting: Any, width: int, heads: int, dim: int, tensors: dict[str, np.ndarray]
) -> PositionTables:
    """The encoding that `model.position` names. Its bias tables replace those in `tensors`."""
    name, options = split_part(setting)
    if name == "sinusoidal":
        base = options.get("base", 10000.0)
        frequencies = [base ** (-2 * pair / width) for pair in range((width + 1) // 2)]
        return PositionTables(SINUSOIDAL[options.get("order", "paired")], frequencies=frequencies)
    if name == "rotary":
        return _rotary(dim, **options)
    tables = PositionTables(KINDS[name])
    if name == "learned":
        tables.limit = options.get("max_length", LEARNED_POSITIONS)
    elif name == "alibi":
        for _, bias in BIAS_NAMES:
            tensors[bias] = alibi_slopes(heads)
    elif name in ("distance", "t5", "shaw"):
        tables.limit = options.get("max_distance", 16 if name == "shaw" else 128)
        _convert_biases(name, tables.limit, options, heads, dim, tensors)
    return tables


def _rotary(
    dim: int,
    *,
    base: float = 10000.0,
    fraction: float = 1.0,
    pairs: str = "halves",
    scaling: str = "none",
    factor: float = 1.0,
) -> PositionTables:
    rotated = int(dim * fraction)
    if rotated < 2 or rotated % 2 or (scaling == "ntk" and rotated < 4):
        raise NativeError(f"rotary positions: {rotated} of {dim} dims cannot be rotated in pairs")
    if scaling == "ntk" and factor > 1:
        base = base * factor ** (rotated / (rotated - 2))
    divisor = factor if scaling == "linear" else 1.0
    frequencies = [base ** (-i / rotated) / divisor for i in range(0, rotated, 2)]
    return PositionTables(
        KINDS["rotary"],
        rotated_dims=rotated,
        neighbours=pairs == "neighbours",
        frequencies=frequencies,
    )


def _convert_biases(
    name: str,
    limit: int,
    options: dict[str, Any],
    heads: int,
    dim: int,
    tensors: dict[str, np.ndarray],
) -> None:
    """Turn the learned table of each side into one value per head and clipped distance."""
    for stored, bias in BIAS_NAMES:
        table = tensors.pop(stored, None)
        if table is None:
            raise NativeError(f"tensor {stored!r} is missing")
        if name == "distance":
            table = table * np.float32(1 / math.sqrt(dim))
        elif name == "t5":
            buckets = options.get("buckets", 32)
            if table.shape != (heads, buckets):
                raise NativeError(f"tensor {stored!r} has shape {table.shape}")
            if heads * (2 * limit + 1) > MAX_TABLE:
                raise NativeError(f"t5 positions: distances up to {limit:,} take too much memory")
            causal = stored.startswith("decoder")
            side = buckets if causal else buckets // 2
            if side < 2 or limit <= side // 2:  # as regard.positions.T5 refuses them
                raise NativeError(f"t5 positions: {buckets} buckets for distances up to {limit}")
            ahead = np.arange(-limit, limit + 1)
            table = table[:, t5_buckets(ahead, buckets, limit, causal=causal)]
        tensors[bias] = table


def alibi_slopes(heads: int) -> np.ndarray:
    """2^(−8/n), 2^(−16/n) … for n a power of two; other n add every second slope of 2n heads."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return np.array(slopes, np.float32)


def t5_buckets(ahead: np.ndarray, buckets: int, limit: int, *, causal: bool) -> np.ndarray:
    """The bucket of each `key − query`: exact when small, then logarithmic up to `limit`."""
    side = buckets if causal else buckets // 2
    distance = np.maximum(-ahead, 0) if causal else np.abs(ahead)
    exact = side // 2
    # float32, in the order of regard.positions.T5, so that edges fall into the same bucket
    ratio = np.maximum(distance, 1).astype(np.float32) / np.float32(exact)
    ratio = np.log(ratio) / np.float32(math.log(limit / exact))
    wide = np.minimum(exact + (ratio * np.float32(side - exact)).astype(np.int64), side - 1)
    found = np.where(distance < exact, distance, wide)
    return found if causal else found + (ahead > 0) * side
