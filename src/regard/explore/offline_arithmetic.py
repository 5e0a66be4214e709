"""The numbers with which a saved page recomputes those of its tensors: weights, ids, positions.

All weights that the trace reads are in the file, up to a limit. Beyond it a table of tokens has the
rows of the tokens that the page names, and the smallest of the other weights come first.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor

from regard.errors import RegardError
from regard.explore.export import is_large
from regard.explore.offline_program import program_steps
from regard.explore.trace_store import StoredTrace
from regard.trace import Trace
from regard.trace.operations.element_wise import TableLookup
from regard.trace.operations.row_wise import OutputProjection

WEIGHTS_MB = 16.0  # default limit of the weights in a saved page, in megabytes of float32
NAMED = 20  # most probable tokens of each step, which the page lists


def check_weights_mb(limit: float) -> None:
    """Raise unless the limit is a number of megabytes."""
    if not 0 <= limit < float("inf"):
        raise RegardError(f"weights_mb must be a finite number of at least 0; got {limit}")


def offline_arithmetic(stored: StoredTrace, weights_mb: float = WEIGHTS_MB) -> dict[str, Any]:
    """The program of the trace and the numbers that it reads."""
    trace, tokens = stored.trace, {}
    if trace.has_model:
        bundle = stored.model.pipeline.bundle
        tokens = {"source": bundle.source, "target": bundle.target}
    numbers, rows, missing = chosen_numbers(trace, int(weights_mb * 1e6))
    return {
        "steps": program_steps(trace),
        "integers": {
            name: tensor.tolist()
            for name, tensor in trace.numbers.tensors.items()
            if name not in trace
        },
        "labels": {side: [one.label(id) for id in range(len(one))] for side, one in tokens.items()},
        "tables": token_tables(trace) if trace.has_model else {},
        "rows": rows,
        "missing": missing,
        "weights_mb": weights_mb,
        "numbers": compressed(numbers),
    }


def chosen_numbers(
    trace: Trace, limit: int
) -> tuple[dict[str, Tensor], dict[str, list[int]], dict[str, int]]:
    """Weights and large tensors within `limit` bytes, the rows of partial tables, and the sizes of
    those that are left out."""
    operations = [trace.operation(name) for name in trace.names]
    used = dict.fromkeys(name for one in operations for name in one.weights)
    weights = {name: trace.numbers.weights[name] for name in used}
    large = {name: trace[name] for name in trace.names if is_large(trace, name)}
    if sum(one.nbytes for one in weights.values()) <= limit:
        return {**large, **weights}, {}, {}
    rows = named_rows(trace)
    numbers = {name: weights[name][ids] for name, ids in rows.items()}
    others = {name: one for name, one in weights.items() if name not in rows}
    left, missing = limit - sum(one.nbytes for one in numbers.values()), {}
    for name, one in (*large.items(), *sorted(others.items(), key=lambda each: each[1].nbytes)):
        left -= one.nbytes
        if left >= 0:
            numbers[name] = one
        else:
            missing[name] = one.nbytes
    return numbers, rows, missing


def token_tables(trace: Trace) -> dict[str, str]:
    """The side whose tokens are the rows of a parameter."""
    sides = {"src.embed": "source", "tgt.embed": "target", "out.logits": "target"}
    tables: dict[str, str] = {}
    for tensor, side in sides.items():
        weights = trace.origin(tensor).weights
        if weights:
            tables.setdefault(weights[0], side)
    return tables


def named_rows(trace: Trace) -> dict[str, list[int]]:
    """By table of tokens: the rows of the tokens that the page names."""
    rows: dict[str, set[int]] = {}
    for name in trace.names:
        operation = trace.operation(name)
        if isinstance(operation, TableLookup):
            ids = trace.numbers[operation.inputs[0]].tolist()
        elif isinstance(operation, OutputProjection):
            count = min(NAMED, trace[name].shape[1])
            ids = trace[name].topk(count).indices.flatten().tolist()
            ids += [piece.id for piece in trace.following]
        else:
            continue
        rows.setdefault(operation.weights[0], set()).update(ids)
    return {name: sorted(ids) for name, ids in rows.items()}


def compressed(numbers: dict[str, Tensor]) -> str:
    """A safetensors file as base64 of zlib, the first bytes of all words before their second ones:
    signs and exponents repeat, which zlib finds only where they are adjacent."""
    arrays = {name: one.float().contiguous().numpy() for name, one in numbers.items()}
    content = save(arrays or {"none": torch.zeros(0).numpy()})
    content += bytes(-len(content) % 4)
    planes = np.frombuffer(content, np.uint8).reshape(-1, 4).T.tobytes()
    return base64.b64encode(zlib.compress(planes, 1)).decode()
