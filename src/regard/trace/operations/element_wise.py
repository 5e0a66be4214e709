"""One number at a time: look-ups, sums of two, scaling, copies, joining, activations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.trace.explanation import Computation, Index, Stage, Term, copied, product_sum, sigmoid
from regard.trace.operations.operation import Operation, TensorStore, constant


@dataclass(frozen=True)
class EmbeddingLookup(Operation):
    """A row of a table by id, times a constant: inputs (ids,), weights (table,)."""

    scale: float = 1.0

    kind = "table look-up"
    formula = "E[id, j] · scale"
    paper = "Vaswani et al. 2017, §3.4"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return F.embedding(store[self.inputs[0]][rows], store[self.weights[0]]) * self.scale

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, j = index
        id = int(store[self.inputs[0]][row])
        terms, total = product_sum(
            [(store.one(self.weights[0], id, j), constant("scale", self.scale))]
        )
        return Computation(total, ("product",), terms, [Stage("id", id)])


@dataclass(frozen=True)
class SinusoidalWave(Operation):
    """Sinusoidal positions: inputs (positions,). Sines at even places, cosines at odd ones, or one
    half each.
    """

    rates: tuple[float, ...] = ()
    width: int = 0
    halves: bool = False

    kind = "sine and cosine"
    formula = "sin(p · base^(−2i/width)), cos(…)"
    paper = "Vaswani et al. 2017, §3.5"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        angles = store[self.inputs[0]][rows, None].double() * torch.tensor(
            self.rates, dtype=torch.float64
        )
        joined = torch.stack([angles.sin(), angles.cos()], -2 if self.halves else -1)
        return joined.flatten(-2)[:, : self.width].float()

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, j = index
        rate, cosine = (
            (j % len(self.rates), j >= len(self.rates)) if self.halves else (j // 2, j % 2 == 1)
        )
        position = int(store[self.inputs[0]][row])
        angle = position * self.rates[rate]
        result = math.cos(angle) if cosine else math.sin(angle)
        stages = [
            Stage("position", position),
            Stage("rate", self.rates[rate]),
            Stage("angle", angle),
        ]
        return Computation(result, stages=[*stages, Stage("cos" if cosine else "sin", result)])


@dataclass(frozen=True)
class Addition(Operation):
    """The sum of tensors of one shape."""

    kind = "addition"
    formula = "a + b"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        total = store[self.inputs[0]][rows]
        for name in self.inputs[1:]:
            total = total + store[name][rows]
        return total

    def explain(self, store: TensorStore, index: Index) -> Computation:
        terms, total = product_sum([(store.one(name, *index),) for name in self.inputs])
        return Computation(total, ("term",), terms)


@dataclass(frozen=True)
class ResidualAddition(Addition):
    """What a sublayer adds to what went past it."""

    kind = "residual"
    formula = "x + f(x)"
    paper = "He et al. 2016; Vaswani et al. 2017, §3.1"


@dataclass(frozen=True)
class Copy(Operation):
    """A copy under another name, for a part that is switched off or stands for itself."""

    kind = "copy"
    formula = "x"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][rows]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index)
        return copied(operand)


@dataclass(frozen=True)
class CopyHeads(Copy):
    """A copy of a tensor that has heads."""

    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][:, rows]


@dataclass(frozen=True)
class SingleHead(Copy):
    """(time, width) seen as one head."""

    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][rows][None]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index[1:])
        return copied(operand)


@dataclass(frozen=True)
class ConcatenatedHeads(Operation):
    """Heads side by side: (head, time, dim) to (time, width)."""

    kind = "concatenation of heads"
    formula = "context[head = j div dim, j mod dim]"
    paper = "Vaswani et al. 2017, §3.2.2"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][:, rows].transpose(0, 1).flatten(1)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, j = index
        dim = store[self.inputs[0]].shape[2]
        operand = store.one(self.inputs[0], j // dim, row, j % dim)
        return copied(operand)


@dataclass(frozen=True)
class Concatenation(Operation):
    """Vectors side by side; an input of a single row stands beside every row."""

    kind = "concatenation"
    formula = "[a; b]"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        longest = max(len(store[name]) for name in self.inputs)
        return torch.cat([store[name].expand(longest, -1)[rows] for name in self.inputs], -1)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, j = index
        ends = list(accumulate(store[name].shape[1] for name in self.inputs))
        part = next(i for i, end in enumerate(ends) if j < end)
        name = self.inputs[part]
        operand = store.one(
            name, row if len(store[name]) > 1 else 0, j - (ends[part - 1] if part else 0)
        )
        return copied(operand)


@dataclass(frozen=True)
class TanhActivation(Operation):
    """tanh of each number."""

    kind = "tanh"
    formula = "tanh(x)"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return torch.tanh(store[self.inputs[0]][rows])

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index)
        value = math.tanh(operand.value)
        return Computation(value, ("tanh",), [Term((operand,), (value,))])


@dataclass(frozen=True)
class ReluActivation(Operation):
    """What is below zero becomes zero."""

    kind = "activation"
    formula = "max(0, x)"
    function: ClassVar[str] = "relu"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return F.relu(store[self.inputs[0]][rows])

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index)
        return Computation(
            value := self.activation(operand.value), (self.function,), [Term((operand,), (value,))]
        )

    def activation(self, x: float) -> float:
        """The function itself."""
        return max(0.0, x)


@dataclass(frozen=True)
class GeluActivation(ReluActivation):
    """x times the chance that a normal number is below x."""

    formula = "x · ½ (1 + erf(x / √2))"
    function = "gelu"
    paper = "Hendrycks & Gimpel 2016"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return F.gelu(store[self.inputs[0]][rows])

    def activation(self, x: float) -> float:
        """The function itself."""
        return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


@dataclass(frozen=True)
class SwigluActivation(Operation):
    """The first half of the input opens and closes the second."""

    kind = "activation"
    formula = "gate / (1 + exp(−gate)) · inner"
    paper = "Shazeer 2020"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        gate, inner = store[self.inputs[0]][rows].chunk(2, -1)
        return F.silu(gate) * inner

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, j = index
        gate, inner = (
            store.one(self.inputs[0], row, i) for i in (j, j + store[self.inputs[0]].shape[1] // 2)
        )
        opened = gate.value * sigmoid(gate.value)
        result = opened * inner.value
        return Computation(
            result, ("silu(gate)", "· inner"), [Term((gate, inner), (opened, result))]
        )


ACTIVATIONS: dict[str, type[Operation]] = {
    "relu": ReluActivation,
    "gelu": GeluActivation,
    "swiglu": SwigluActivation,
}
