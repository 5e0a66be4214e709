"""One number at a time: look-ups, sums of two, scaling, copies, joining, activations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.trace.explanation import Index, Line, Stage, Working, copied, product_sum, sigmoid
from regard.trace.operations.operation import Numbers, Operation, constant


@dataclass(frozen=True)
class Look(Operation):
    """A row of a table by id, times a constant: inputs (ids,), weights (table,)."""

    scale: float = 1.0

    kind = "table look-up"
    formula = "E[id, j] · scale"
    paper = "Vaswani et al. 2017, §3.4"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return F.embedding(at[self.inputs[0]][rows], at[self.weights[0]]) * self.scale

    def explain(self, at: Numbers, index: Index) -> Working:
        row, j = index
        id = int(at[self.inputs[0]][row])
        lines, total = product_sum([(at.one(self.weights[0], id, j), constant("scale", self.scale))])
        return Working(total, ("product",), lines, [Stage("id", id)])


@dataclass(frozen=True)
class Wave(Operation):
    """Sinusoidal positions: inputs (positions,). Sines at even places, cosines at odd ones, or one half each."""

    rates: tuple[float, ...] = ()
    width: int = 0
    halves: bool = False

    kind = "sine and cosine"
    formula = "sin(p · base^(−2i/width)), cos(…)"
    paper = "Vaswani et al. 2017, §3.5"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        angles = at[self.inputs[0]][rows, None].double() * torch.tensor(self.rates, dtype=torch.float64)
        joined = torch.stack([angles.sin(), angles.cos()], -2 if self.halves else -1)
        return joined.flatten(-2)[:, : self.width].float()

    def explain(self, at: Numbers, index: Index) -> Working:
        row, j = index
        rate, cosine = (j % len(self.rates), j >= len(self.rates)) if self.halves else (j // 2, j % 2 == 1)
        position = int(at[self.inputs[0]][row])
        angle = position * self.rates[rate]
        result = math.cos(angle) if cosine else math.sin(angle)
        stages = [Stage("position", position), Stage("rate", self.rates[rate]), Stage("angle", angle)]
        return Working(result, stages=[*stages, Stage("cos" if cosine else "sin", result)])


@dataclass(frozen=True)
class Add(Operation):
    """The sum of tensors of one shape."""

    kind = "addition"
    formula = "a + b"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        total = at[self.inputs[0]][rows]
        for name in self.inputs[1:]:
            total = total + at[name][rows]
        return total

    def explain(self, at: Numbers, index: Index) -> Working:
        lines, total = product_sum([(at.one(name, *index),) for name in self.inputs])
        return Working(total, ("term",), lines)


@dataclass(frozen=True)
class Residual(Add):
    """What a sublayer adds to what went past it."""

    kind = "residual"
    formula = "x + f(x)"
    paper = "He et al. 2016; Vaswani et al. 2017, §3.1"


@dataclass(frozen=True)
class Biased(Add):
    """Scores and what the position encoding adds to them."""

    kind = "bias"
    formula = "score + bias"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        scores, bias = (at[name] for name in self.inputs)
        return scores[:, rows] + bias[:, rows]


@dataclass(frozen=True)
class Scale(Operation):
    """A tensor of (head, query, key) times a constant."""

    factor: float = 1.0

    kind = "scale"
    formula = "score / √dim"
    paper = "Vaswani et al. 2017, §3.2.1"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][:, rows] * self.factor

    def explain(self, at: Numbers, index: Index) -> Working:
        lines, total = product_sum([(at.one(self.inputs[0], *index), constant("factor", self.factor))])
        return Working(total, ("product",), lines)


@dataclass(frozen=True)
class Undivided(Scale):
    """Scores as they are, where a model would divide them."""

    kind = "not scaled"
    formula = "score, not divided by √dim"


@dataclass(frozen=True)
class Same(Operation):
    """A copy under another name, for a part that is switched off or stands for itself."""

    kind = "copy"
    formula = "x"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][rows]

    def explain(self, at: Numbers, index: Index) -> Working:
        operand = at.one(self.inputs[0], *index)
        return copied(operand)


@dataclass(frozen=True)
class SameHeads(Same):
    """A copy of a tensor that has heads."""

    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][:, rows]


@dataclass(frozen=True)
class OneHead(Same):
    """(time, width) seen as one head."""

    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][rows][None]

    def explain(self, at: Numbers, index: Index) -> Working:
        operand = at.one(self.inputs[0], *index[1:])
        return copied(operand)


@dataclass(frozen=True)
class Join(Operation):
    """Heads side by side: (head, time, dim) to (time, width)."""

    kind = "joining of heads"
    formula = "context[head = j div dim, j mod dim]"
    paper = "Vaswani et al. 2017, §3.2.2"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][:, rows].transpose(0, 1).flatten(1)

    def explain(self, at: Numbers, index: Index) -> Working:
        row, j = index
        dim = at[self.inputs[0]].shape[2]
        operand = at.one(self.inputs[0], j // dim, row, j % dim)
        return copied(operand)


@dataclass(frozen=True)
class Concat(Operation):
    """Vectors side by side; an input of a single row stands beside every row."""

    kind = "side by side"
    formula = "[a; b]"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        longest = max(len(at[name]) for name in self.inputs)
        return torch.cat([at[name].expand(longest, -1)[rows] for name in self.inputs], -1)

    def explain(self, at: Numbers, index: Index) -> Working:
        row, j = index
        ends = list(accumulate(at[name].shape[1] for name in self.inputs))
        part = next(i for i, end in enumerate(ends) if j < end)
        name = self.inputs[part]
        operand = at.one(name, row if len(at[name]) > 1 else 0, j - (ends[part - 1] if part else 0))
        return copied(operand)


@dataclass(frozen=True)
class Tanh(Operation):
    """tanh of each number."""

    kind = "tanh"
    formula = "tanh(x)"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return torch.tanh(at[self.inputs[0]][rows])

    def explain(self, at: Numbers, index: Index) -> Working:
        operand = at.one(self.inputs[0], *index)
        bent = math.tanh(operand.value)
        return Working(bent, ("tanh",), [Line((operand,), (bent,))])


@dataclass(frozen=True)
class Relu(Operation):
    """What is below zero becomes zero."""

    kind = "activation"
    formula = "max(0, x)"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return F.relu(at[self.inputs[0]][rows])

    def explain(self, at: Numbers, index: Index) -> Working:
        operand = at.one(self.inputs[0], *index)
        return Working(bent := self.bent(operand.value), (type(self).__name__.lower(),), [Line((operand,), (bent,))])

    def bent(self, x: float) -> float:
        """The function itself."""
        return max(0.0, x)


@dataclass(frozen=True)
class Gelu(Relu):
    """x times the chance that a normal number is below x."""

    formula = "x · ½ (1 + erf(x / √2))"
    paper = "Hendrycks & Gimpel 2016"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return F.gelu(at[self.inputs[0]][rows])

    def bent(self, x: float) -> float:
        """The function itself."""
        return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


@dataclass(frozen=True)
class Swiglu(Operation):
    """The first half of the input opens and closes the second."""

    kind = "activation"
    formula = "gate / (1 + exp(−gate)) · inner"
    paper = "Shazeer 2020"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        gate, inner = at[self.inputs[0]][rows].chunk(2, -1)
        return F.silu(gate) * inner

    def explain(self, at: Numbers, index: Index) -> Working:
        row, j = index
        gate, inner = (at.one(self.inputs[0], row, i) for i in (j, j + at[self.inputs[0]].shape[1] // 2))
        opened = gate.value * sigmoid(gate.value)
        result = opened * inner.value
        return Working(result, ("silu(gate)", "· inner"), [Line((gate, inner), (opened, result))])


ACTIVATIONS: dict[str, type[Operation]] = {"relu": Relu, "gelu": Gelu, "swiglu": Swiglu}
