"""Element-wise operations: table lookups, sums, copies, concatenation, tanh."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.trace.operations.operation import (
    Computation,
    Index,
    Operation,
    Stage,
    TensorStore,
    Term,
    constant,
    copied,
    product_sum,
)


@dataclass(frozen=True)
class TableLookup(Operation):
    """A row of a table by id, times a constant: inputs (ids,), weights (table,)."""

    scale: float = 1.0

    kind = "table lookup"
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
    """Sinusoidal positions: inputs (positions,). Sines and cosines alternate, or are two halves."""

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
    """The residual connection: x plus the output of a sublayer."""

    kind = "residual"
    formula = "x + f(x)"
    paper = "He et al. 2016; Vaswani et al. 2017, §3.1"


@dataclass(frozen=True)
class Copy(Operation):
    """A copy, for a part that is disabled or changes nothing."""

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
    """(time, width) as a single head."""

    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][rows][None]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index[1:])
        return copied(operand)


@dataclass(frozen=True)
class ConcatenatedHeads(Operation):
    """Concatenated heads: (head, time, dim) to (time, width)."""

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
    """Concatenated vectors; an input with a single row is repeated."""

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
