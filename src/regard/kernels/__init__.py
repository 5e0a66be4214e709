"""Triton kernels for training and decoding: the operations between matrix products.

Each kernel makes one pass over the data where torch makes several. Triton is imported when a CUDA
tensor first needs a kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor

_INSTALLED = find_spec("triton") is not None
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
MAX_WIDTH = 8192
LOG2E = 1.4426950408889634
IGNORE_INDEX = -100  # a target position without a loss
_allowed = True


def can_fuse(x: Tensor) -> bool:
    """Whether these kernels support such rows."""
    supported = x.shape[-1] <= MAX_WIDTH and x.element_size() <= 4
    return _allowed and _INSTALLED and (x.is_cuda or _INTERPRETED) and supported


@contextmanager
def disable_fusion() -> Iterator[None]:
    """Use torch's own operations inside this block: the reference for these kernels."""
    global _allowed
    before, _allowed = _allowed, False
    try:
        yield
    finally:
        _allowed = before


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype of matrix products with this tensor, under autocast or not."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def tile_size(size: int) -> int:
    """The smallest tile side for `size`: a power of two, at least what a tensor core needs."""
    return max(16, 1 << (size - 1).bit_length())
