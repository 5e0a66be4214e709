"""int8 weights: a matrix as int8 values and one float32 scale per row (output channel).

w ≈ q · scale with scale = max |row| / 127 and q = round(w / scale). In a safetensors file, the
scales of the tensor NAME are the tensor NAME.int8_scale. This module does not use torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from regard.errors import RegardError

SCALE_SUFFIX = ".int8_scale"
LARGEST = 127  # −128 is not used, so that the values are symmetric
Weight = np.ndarray  # float32 (row, column); jaxtyping would take longer to import than a search
Quantised = np.ndarray  # int8 (row, column)
Scales = np.ndarray  # float32 (row)


def quantize_rows(weight: Weight) -> tuple[Quantised, Scales]:
    """The int8 values and scales of a matrix. A row of zeros has the scale 1."""
    if not np.isfinite(weight).all():
        raise RegardError(
            "the weights are not finite (NaN or infinity); they cannot be quantised; train again"
        )
    largest = np.abs(weight).max(1, initial=0)
    scales = np.where(largest > 0, largest / np.float32(LARGEST), np.float32(1))
    scales = np.where(scales > 0, scales, np.float32(1))  # a subnormal row becomes zeros
    return np.rint(weight / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def dequantize_rows(quantised: Quantised, scales: Scales) -> Weight:
    """The matrix that int8 values and scales stand for."""
    return quantised.astype(np.float32) * scales[:, None]


def quantize_tensors(
    tensors: Mapping[str, np.ndarray], names: Collection[str]
) -> dict[str, np.ndarray]:
    """All tensors, those with these names as int8 values and scales."""
    found: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        if name in names:
            found[name], found[name + SCALE_SUFFIX] = quantize_rows(tensor.astype(np.float32))
        else:
            found[name] = tensor
    return found
