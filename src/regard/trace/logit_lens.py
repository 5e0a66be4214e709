"""The lens: what a model would say if its decoder ended earlier, and how high a token then ranks."""

from __future__ import annotations

import re

from jaxtyping import Float
from torch import Tensor

from regard.trace.operations.operation import Operation, TensorStore
from regard.trace.trace import Trace

Row = Float[Tensor, " vocabulary"]


def lens(trace: Trace, row: int) -> dict[str, Row]:
    """The probabilities after a row of the target if the decoder ended at each place of its stream (nostalgebraist
    2020), by the name of the place, in order.

    Where layers begin with their norm the sums are read through the last norm; where they end with it, the normed sums
    are read as they are. A recurrent model has no such stream: its states are nothing that the output table could read.
    """
    trace.piece("target", row)
    if "tgt.sum" not in trace.names:
        return {}
    logits = trace.origin("out.logits")
    (last,) = logits.inputs
    norm = trace.origin(last) if last == "dec.norm" else None
    stream = r"tgt\.sum|dec\.\d+\.resid\d|dec\.norm" if norm else r"tgt\.sum|dec\.\d+\.norm\d"
    found = {}
    for name in trace.names:
        if re.fullmatch(stream, name):
            vectors = trace[name][row : row + 1]
            if norm is not None and name != last:
                vectors = _made(trace, norm, vectors)
            found[name] = _made(trace, logits, vectors)[0].softmax(-1)
    return found


def rank(numbers: Row, id: int) -> int:
    """1 for the likeliest token; of equals the first id comes first."""
    own = numbers[id]
    return 1 + int((numbers > own).sum()) + int((numbers[:id] == own).sum())


def _made(trace: Trace, operation: Operation, vectors: Tensor) -> Tensor:
    """What an operation of the model makes of other vectors than its own."""
    (name,) = operation.inputs
    return operation.compute(TensorStore(trace.numbers.weights, {name: vectors}), slice(None))
