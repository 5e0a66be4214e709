"""The table of a weight: the rows and columns of a parameter around one of its numbers."""

from __future__ import annotations

from typing import Any

from regard.errors import suggestion
from regard.explore.messages import not_found
from regard.explore.trace_store import StoredTrace, check_model
from regard.web.json_messages import invalid

ROWS, COLUMNS = 21, 21  # of the part that is shown


def weight_table(stored: StoredTrace, name: str, index: tuple[int, ...]) -> dict[str, Any]:
    """The part of a parameter around a weight, the tensors that read it, and labels of tokens."""
    check_model(stored)
    trace, weights = stored.trace, stored.trace.numbers.weights
    if name not in weights:
        near = suggestion(name, weights)
        raise not_found("unknown-parameter", f"unknown parameter {name[:80]!r}; {near}")
    weight = weights[name]
    if len(index) != weight.ndim or not all(
        0 <= i < size for i, size in zip(index, weight.shape, strict=True)
    ):
        shape = tuple(weight.shape)
        raise invalid(f"{name} has shape {shape}; there is no weight at {index}", "out-of-range")
    matrix = weight[index[:-2]] if weight.ndim > 1 else weight[None]
    place = index[-2:] if weight.ndim > 1 else (0, index[-1])
    starts = [
        max(0, min(at - most // 2, size - most))
        for at, most, size in zip(place, (ROWS, COLUMNS), matrix.shape, strict=True)
    ]
    rows, columns = (slice(starts[0], starts[0] + ROWS), slice(starts[1], starts[1] + COLUMNS))
    part = matrix[rows, columns]
    return {
        "name": name,
        "shape": list(weight.shape),
        "used_by": [each for each in trace.names if name in trace.operation(each).weights],
        "first": starts,
        "at": [place[0] - starts[0], place[1] - starts[1]],
        "numbers": part.tolist(),
        "row_labels": _labels(stored, name, range(starts[0], starts[0] + len(part))),
    }


def _labels(stored: StoredTrace, name: str, ids: range) -> list[str] | None:
    """The tokens of the rows, if the parameter is a table of tokens."""
    trace, bundle = stored.trace, stored.model.pipeline.bundle
    for tensor, tokenizer in (
        ("src.embed", bundle.source),
        ("tgt.embed", bundle.target),
        ("out.logits", bundle.target),
    ):
        table = trace.origin(tensor).weights
        if table and table[0] == name:
            return [tokenizer.label(id) for id in ids]
    return None
