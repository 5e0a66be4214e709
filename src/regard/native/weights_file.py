"""Read a safetensors file as memory-mapped arrays, with every size and offset checked."""

from __future__ import annotations

import json
import mmap
import os
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from regard.errors import RegardError

MAX_HEADER = 100_000_000  # bytes, as in the safetensors library
MAX_RANK = 8
# bfloat16 has no numpy type: it is the upper half of a float32.
DTYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2", "I8": "<i1"}


class WeightsError(RegardError):
    """A file that is not a valid safetensors file of floating-point or int8 tensors."""


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All tensors of a file as aligned arrays; float32 and int8 tensors stay memory-mapped.

    Other floating-point types become float32.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise WeightsError(f"cannot read {str(path)!r}: {error.strerror}") from None
    try:
        return _parse(data)
    except WeightsError as error:
        raise WeightsError(f"{str(path)!r} is not a valid safetensors file: {error}") from None


def _parse(data: mmap.mmap | bytes) -> dict[str, np.ndarray]:
    if len(data) < 8:
        raise WeightsError("it is shorter than its header")
    length = int.from_bytes(data[:8], "little")
    if length > min(MAX_HEADER, len(data) - 8):
        raise WeightsError("its header is longer than the file")
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError):
        raise WeightsError("its header is not valid JSON") from None
    if not isinstance(header, dict):
        raise WeightsError("its header is not a JSON object")
    header.pop("__metadata__", None)
    start = 8 + length
    spans, tensors = [], {}
    for name, entry in header.items():
        span, dtype, shape = _entry(name, entry, len(data) - start)
        spans.append(span)
        tensors[name] = _array(data, start + span[0], dtype, shape)
    if any(first[1] > second[0] for first, second in pairwise(sorted(spans))):
        raise WeightsError("its tensors overlap")
    return tensors


def _entry(name: str, entry: Any, size: int) -> tuple[tuple[int, int], str, list[int]]:
    """The span of bytes, dtype and shape of a tensor, each validated."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise WeightsError(f"tensor {name!r} has no dtype, shape and data_offsets") from None
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise WeightsError(f"tensor {name!r} has type {dtype!r}; known: {', '.join(DTYPES)}")
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(map(_is_size, shape)):
        raise WeightsError(f"tensor {name!r} has an invalid shape")
    if not _is_size(begin) or not _is_size(end) or not begin <= end <= size:
        raise WeightsError(f"tensor {name!r} lies outside the file")
    if end - begin != prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
        raise WeightsError(f"tensor {name!r} has {end - begin} bytes, which do not fit its shape")
    return (begin, end), dtype, shape


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _array(data: mmap.mmap | bytes, offset: int, dtype: str, shape: list[int]) -> np.ndarray:
    stored = np.frombuffer(data, DTYPES[dtype], prod(shape), offset).reshape(shape)
    if dtype == "I8":
        return stored
    if dtype == "BF16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return np.require(stored, np.float32, ["C", "A"])
