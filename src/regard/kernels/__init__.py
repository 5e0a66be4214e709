"""Kernels for what lies between the matrix products of a model, which on a GPU costs as much as the products.

Each is one pass over the numbers where torch takes several. Triton itself is imported when a CUDA tensor first asks.
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
WIDEST = 8192
LOG2E = 1.4426950408889634
_allowed = True
IGNORED = -100  # a place in what is to be said where nothing is to be learned


def fusible(x: Tensor) -> bool:
    """Whether these kernels take such rows."""
    return _allowed and _INSTALLED and (x.is_cuda or _INTERPRETED) and x.shape[-1] <= WIDEST and x.element_size() <= 4


@contextmanager
def unfused() -> Iterator[None]:
    """Inside, all is computed by torch's own operations: the plain definition, which these kernels are held to."""
    global _allowed
    before, _allowed = _allowed, False
    try:
        yield
    finally:
        _allowed = before


def computing(x: Tensor) -> torch.dtype:
    """The type in which matrix products are computed here."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def width(size: int) -> int:
    """The smallest tile side that holds `size`: a power of two, and no less than a tensor core takes."""
    return max(16, 1 << (size - 1).bit_length())
