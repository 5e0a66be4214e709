"""Read a safetensors file as memory-mapped arrays, with every size and offset checked."""

from __future__ import annotations

import mmap
import os
from math import prod
from pathlib import Path

import numpy as np

from regard.bundle.regular_files import open_regular
from regard.bundle.weights_header import StoredTensor, WeightsError, parse_header

# bfloat16 has no numpy type: it is the upper half of a float32.
DTYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2", "I8": "<i1"}

__all__ = ["WeightsError", "read_tensors"]


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All tensors of a file as aligned arrays; float32 and int8 tensors stay memory-mapped.

    Other floating-point types become float32.
    """
    try:
        with open_regular(Path(path)) as file:
            size = os.fstat(file.fileno()).st_size
            header = parse_header(file, size)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return {name: _array(data, header.start, one) for name, one in header.tensors.items()}
    except OSError as error:
        raise WeightsError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except WeightsError as error:
        raise WeightsError(f"{str(path)!r} is not a valid safetensors file: {error}") from None


def _array(data: mmap.mmap, start: int, tensor: StoredTensor) -> np.ndarray:
    if tensor.dtype not in DTYPES:
        raise WeightsError(f"it has a tensor of type {tensor.dtype}; known: {', '.join(DTYPES)}")
    count, offset = prod(tensor.shape), start + tensor.begin
    stored = np.frombuffer(data, DTYPES[tensor.dtype], count, offset).reshape(tensor.shape)
    if tensor.dtype == "I8":
        return stored
    if tensor.dtype == "BF16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return np.require(stored, np.float32, ["C", "A"])
