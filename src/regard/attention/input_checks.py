"""Checks of queries, keys and values, the same for every backend.

They compare attributes only: shapes, types, devices and layouts. None reads a number, so none makes
a GPU wait.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.cache import Padded, Sequences
from regard.errors import RegardError, ShapeError
from regard.ragged import Ragged

DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64})
ROLES = ("queries", "keys", "values")


def check_inputs(queries: Sequences, keys: Sequences, values: Sequences) -> None:
    """Raise if the three do not fit together; the message names the first mismatch."""
    check_tensors(queries, keys, values)
    check_shapes(queries, keys, values)


def check_tensors(queries: Sequences, keys: Sequences, values: Sequences) -> None:
    """Raise unless all three are plain floating-point tensors of one type on one device."""
    tensors = [tensor_of(sequences) for sequences in (queries, keys, values)]
    first = tensors[0]
    for role, tensor in zip(ROLES, tensors, strict=True):
        if tensor.layout is not torch.strided:
            raise RegardError(
                f"attention needs plain tensors; got sparse {role} ({tensor.layout}); call "
                ".to_dense() first"
            )
        if tensor.dtype not in DTYPES:
            raise RegardError(
                f"attention computes in floating point; got {role} of {_name(tensor.dtype)}; "
                "convert them, for example with .float()"
            )
    if any(tensor.dtype != first.dtype for tensor in tensors):
        kinds = ", ".join(_name(tensor.dtype) for tensor in tensors)
        raise RegardError(
            f"queries, keys and values must have one dtype; got {kinds}; convert them to one"
        )
    if any(tensor.device != first.device for tensor in tensors):
        places = ", ".join(str(tensor.device) for tensor in tensors)
        raise RegardError(
            f"queries, keys and values must be on one device; got {places}; move them to one"
        )


def tensor_of(sequences: Sequences) -> Tensor:
    """The tensor that stores the sequences."""
    tensor = sequences.values if isinstance(sequences, Ragged) else sequences
    tensor = tensor.tensor if isinstance(tensor, Padded) else tensor
    if not isinstance(tensor, Tensor):
        raise ShapeError(
            "sequences must be tensors or Ragged batches; "
            f"got a {type(tensor).__name__}; convert it with torch.as_tensor"
        )
    return tensor


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_shapes(queries: Sequences, keys: Sequences, values: Sequences) -> None:
    """Raise if the three do not fit together; the message names the first mismatch."""
    (q_kind, q), (k_kind, k), (v_kind, v) = (sizes_of(x) for x in (queries, keys, values))
    if (q_kind != k_kind and not isinstance(keys, Padded)) or k_kind != v_kind:
        kinds = f"{q_kind}, {k_kind}, {v_kind}"
        raise ShapeError(f"queries, keys and values must be all dense or all ragged; got {kinds}")
    if q["batch"] != k["batch"] or k["batch"] != v["batch"]:
        raise ShapeError(
            f"queries have {q['batch']} sequences, keys {k['batch']}, values {v['batch']}; "
            "they must have the same number"
        )
    if k["time"] != v["time"]:
        raise ShapeError(f"each key needs one value; got {k['time']} keys and {v['time']} values")
    if isinstance(keys, Ragged) and isinstance(values, Ragged) and not keys.same_lengths(values):
        raise ShapeError("keys and values must have the same sequences; their offsets differ")
    if k["heads"] != v["heads"]:
        raise ShapeError(
            f"keys have {k['heads']} heads but values have {v['heads']}; give both the same number"
        )
    for role, sizes in zip(ROLES, (q, k, v), strict=True):
        if sizes["dim"] == 0:
            raise ShapeError(f"{role} have dim 0; give vectors of at least one number")
    if q["heads"] == 0:
        raise ShapeError("queries have 0 heads; give at least one")
    if k["heads"] == 0 or q["heads"] % k["heads"]:
        raise ShapeError(
            f"{q['heads']} query heads cannot share {k['heads']} key heads; heads must be a "
            "multiple of kv_heads"
        )
    if q["dim"] != k["dim"]:
        raise ShapeError(
            f"queries have dim {q['dim']} but keys have dim {k['dim']}; project both to one dim "
            "first"
        )


def sizes_of(sequences: Sequences) -> tuple[str, dict[str, int]]:
    """Whether sequences are dense or ragged, and their sizes by name."""
    if isinstance(sequences, Ragged):
        shape, kind = sequences.values.shape, "ragged"
        axes = "(token, head, dim)"
    else:
        shape, kind = tensor_of(sequences).shape, "dense"
        axes = "(batch, head, time, dim)"
    if len(shape) != axes.count(",") + 1:
        raise ShapeError(f"{kind} sequences must be {axes}; got a tensor of shape {tuple(shape)}")
    if isinstance(sequences, Ragged):
        sizes = {"time": shape[0], "heads": shape[1], "dim": shape[2]}
        return kind, {"batch": len(sequences), **sizes}
    return kind, {"batch": shape[0], "heads": shape[1], "time": shape[2], "dim": shape[3]}
