"""The header of a safetensors file, with every name, type, shape and offset checked. No torch.

The format: 8 bytes with the length of the header, a JSON header, and the tensors, without gaps.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from regard.bundle.regular_files import open_regular
from regard.errors import RegardError
from regard.model_limits import MAX_RANK, MAX_TENSORS
from regard.strict_json import JsonError, parse

MAX_HEADER = 1 << 22  # bytes
MAX_NAME = 512
MAX_SIZE = 1 << 48
METADATA = "__metadata__"
ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I8": 1, "U64": 8}


class WeightsError(RegardError):
    """A file that is not a valid safetensors file of floating-point or int8 tensors."""


class StoredTensor(NamedTuple):
    """A tensor of a file: its type, its shape, and its bytes [begin, end) after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class WeightsHeader(NamedTuple):
    """All tensors by name, where their bytes start in the file, and the file's metadata."""

    tensors: dict[str, StoredTensor]
    start: int
    metadata: dict[str, str]


def read_header(path: str | os.PathLike[str]) -> WeightsHeader:
    """The header of a file; an error names the file and the tensor."""
    try:
        with open_regular(Path(path)) as file:
            return parse_header(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise WeightsError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except WeightsError as error:
        raise WeightsError(f"{str(path)!r} is not a valid safetensors file: {error}") from None


def parse_header(file: BinaryIO, size: int) -> WeightsHeader:
    """The header of an open file of `size` bytes."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise WeightsError("its header is longer than the file")
    if length > MAX_HEADER:
        raise WeightsError(f"its header has {length:,} bytes; at most {MAX_HEADER:,} are read")
    try:
        header = parse(file.read(length))
    except JsonError as error:
        raise WeightsError(f"its header cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise WeightsError("its header is not a JSON object")
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise WeightsError("its metadata are not an object of texts")
    if len(header) > MAX_TENSORS:
        raise WeightsError(f"it has {len(header):,} tensors; at most {MAX_TENSORS:,} are read")
    start = 8 + length
    tensors = {name: _entry(name, entry, size - start) for name, entry in header.items()}
    _check_spans(tensors, size - start)
    return WeightsHeader(tensors, start, metadata)


def _entry(name: str, entry: Any, size: int) -> StoredTensor:
    """The type, shape and span of a tensor, each validated."""
    if len(name) > MAX_NAME:
        raise WeightsError(f"the name of tensor {name!r:.40}… has {len(name):,} characters")
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise WeightsError(f"tensor {name!r} has no dtype, shape and data_offsets") from None
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        known = ", ".join(ITEM_BYTES)
        raise WeightsError(f"tensor {name!r} has type {dtype!r:.40}; known: {known}")
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(map(_is_size, shape)):
        raise WeightsError(f"tensor {name!r} has an invalid shape")
    if not _is_size(begin) or not _is_size(end) or not begin <= end <= size:
        raise WeightsError(f"tensor {name!r} lies outside the file")
    if end - begin != prod(shape) * ITEM_BYTES[dtype]:
        raise WeightsError(f"tensor {name!r} has {end - begin} bytes, which do not fit its shape")
    return StoredTensor(dtype, tuple(shape), begin, end)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SIZE


def _check_spans(tensors: dict[str, StoredTensor], size: int) -> None:
    """Raise unless the tensors fill the file one after the other, as the format requires."""
    reached = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if tensor.begin < reached:
            raise WeightsError(f"its tensors overlap at {name!r}")
        if tensor.begin > reached:
            raise WeightsError(f"it has bytes of no tensor before {name!r}")
        reached = tensor.end
    if reached != size:
        raise WeightsError(f"it has {size - reached:,} bytes of no tensor at its end")
