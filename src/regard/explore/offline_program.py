"""The program of a trace as data: with it a saved page recomputes each number from its operands.

The page has one function for each `explain` of `regard.trace.operations`, by the name of the class
that defines it (explorer/src/arithmetic). Parts that users wrote run only in Python: the file has
their results in float64.
"""

from __future__ import annotations

import base64
from dataclasses import fields, replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.normalisers import Positive
from regard.positions import T5, Distance, Shaw
from regard.trace import Trace
from regard.trace.operations import interventions, positional
from regard.trace.operations import normaliser_operations as normalisers
from regard.trace.operations import score_operations as scores
from regard.trace.operations.activations import Activation, GatedActivation
from regard.trace.operations.operation import Operation, PartOperation, TensorStore, in_float64

OWN = {field.name for field in fields(Operation)}  # inputs and weights


def program_steps(trace: Trace) -> dict[str, dict[str, Any]]:
    """By tensor: the class whose `explain` applies, the inputs, the paper and the constants."""
    steps = {}
    for name in trace.names:
        operation = trace.operation(name)
        steps[name] = {
            "explained_as": explained_as(operation),
            "inputs": list(operation.inputs),
            "paper": operation.paper,
            "constants": constants(operation, trace),
        }
    return steps


def explained_as(operation: Operation) -> str:
    """The class that defines the explanation; with its module if it is not one of Regard's."""
    kind = next(one for one in type(operation).__mro__ if "explain" in vars(one))
    own = kind.__module__.startswith("regard.")
    return kind.__name__ if own else f"{kind.__module__}.{kind.__name__}"


@singledispatch
def constants(operation: Operation, trace: Trace) -> dict[str, Any]:
    """What an explanation reads besides inputs and weights: by default the operation's fields."""
    values = {one.name: getattr(operation, one.name) for one in fields(operation)}
    plain = (bool, int, float, str, tuple)
    return {key: one for key, one in values.items() if key not in OWN and isinstance(one, plain)}


@constants.register
def _activation(operation: Activation, trace: Trace) -> dict[str, Any]:
    return {"function": operation.name}


@constants.register
def _gated(operation: GatedActivation, trace: Trace) -> dict[str, Any]:
    return {"function": operation.gate}


@constants.register
def _masked(operation: scores.MaskedScores, trace: Trace) -> dict[str, Any]:
    """Which pairs the mask allows, one bit each; a single head stands for all if they agree."""
    heads, *shape = trace.numbers[operation.inputs[0]].shape
    allowed = operation.mask(scores.site(heads, *map(torch.arange, shape)))
    allowed = allowed.expand(1, allowed.shape[1] if allowed.ndim == 4 else 1, *shape)[0]
    bits = np.packbits(allowed.numpy().reshape(-1))
    return {"allowed": {"shape": list(allowed.shape), "bits": _base64(bits)}}


@constants.register
def _rotated(operation: positional.RotatedVectors, trace: Trace) -> dict[str, Any]:
    rotary = operation.rotary
    assert rotary is not None
    return {
        "rotated": rotary.rotated_dims,
        "halves": rotary.pairs == "halves",
        "rates": [float(rate) for rate in rotary.frequencies],
    }


@constants.register
def _table(operation: positional.TableBias, trace: Trace) -> dict[str, Any]:
    """The column of the table for each distance in this text, from the smallest on."""
    assert isinstance(operation.bias, Distance | T5)
    distances = _distances(trace, operation.inputs)
    buckets, scale = operation.bucket(distances)
    return {"lowest": int(distances[0]), "places": buckets.tolist(), "scale": scale}


@constants.register
def _shaw(operation: positional.ShawBias, trace: Trace) -> dict[str, Any]:
    assert isinstance(operation.bias, Shaw)
    distances = _distances(trace, operation.inputs[1:])
    places = operation.place(distances).tolist()
    return {"lowest": int(distances[0]), "places": places, "scale": operation.bias.scale}


@constants.register
def _patched(operation: interventions.PatchedTensor, trace: Trace) -> dict[str, Any]:
    assert operation.given is not None
    return {"given": _array(operation.given.float())}


@constants.register(normalisers.SoftmaxWeights)
@constants.register(normalisers.UnnormalisedWeights)
def _nothing(operation: Operation, trace: Trace) -> dict[str, Any]:
    return {}


@constants.register
def _kernel(operation: normalisers.KernelWeights, trace: Trace) -> dict[str, Any]:
    """The kernel: the class of the normaliser, or the φ of a positive one."""
    part = operation.part
    return {"kernel": part.name if isinstance(part, Positive) else type(part).__name__.lower()}


@constants.register
def _entmax(operation: normalisers.EntmaxWeights, trace: Trace) -> dict[str, Any]:
    return {"alpha": float(operation.part.alpha)}


@constants.register
def _part(operation: PartOperation, trace: Trace) -> dict[str, Any]:
    """The results of a part in float64."""
    part, numbers = in_float64(operation.part), trace.numbers
    if isinstance(operation, positional.ComputedPosition):
        exact = part(numbers[operation.inputs[0]])
    else:
        doubled = {name: _double(numbers[name]) for name in operation.inputs}
        store = TensorStore(numbers.weights, doubled)
        exact = replace(operation, part=part).compute(store, slice(None))
    return {"part": operation.name, "exact": _array(exact.double())}


def _distances(trace: Trace, positions: tuple[str, ...]) -> Tensor:
    """Every distance from a query to a key, from the smallest to the largest."""
    queries, keys = (trace.numbers[name] for name in positions)
    return torch.arange(int(keys.min() - queries.max()), int(keys.max() - queries.min()) + 1)


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _array(tensor: Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "numbers": _base64(tensor.contiguous().numpy())}


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()
