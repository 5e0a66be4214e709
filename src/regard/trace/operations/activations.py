"""Activations of feed-forward layers: functions of single numbers, and gates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from regard.models.layers import activate
from regard.trace.operations.operation import (
    Computation,
    Index,
    Operation,
    TensorStore,
    Term,
    sigmoid,
)


@dataclass(frozen=True)
class Activation(Operation):
    """A function of each number: inputs (x,). `name` is that of the setting."""

    name: ClassVar[str]

    kind = "activation"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return activate(store[self.inputs[0]][rows], self.name)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index)
        value = self.function(operand.value)
        return Computation(value, (self.name,), [Term((operand,), (value,))])

    def function(self, x: float) -> float:
        """The function itself."""
        raise NotImplementedError


@dataclass(frozen=True)
class ReluActivation(Activation):
    """ReLU: negative numbers become zero."""

    name = "relu"
    formula = "max(0, x)"

    def function(self, x: float) -> float:
        """The function itself."""
        return max(0.0, x)


@dataclass(frozen=True)
class GeluActivation(Activation):
    """GELU: x times the probability that a standard normal number is below x."""

    name = "gelu"
    formula = "x · ½ (1 + erf(x / √2))"
    paper = "Hendrycks & Gimpel 2016"

    def function(self, x: float) -> float:
        """The function itself."""
        return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


@dataclass(frozen=True)
class GeluTanhActivation(Activation):
    """GELU with tanh in place of the error function."""

    name = "gelu-tanh"
    formula = "x · ½ (1 + tanh(√(2/π) (x + 0.044715 x³)))"
    paper = "Hendrycks & Gimpel 2016"

    def function(self, x: float) -> float:
        """The function itself."""
        return gelu_tanh(x)


@dataclass(frozen=True)
class SiluActivation(Activation):
    """SiLU, or swish: x times its sigmoid."""

    name = "silu"
    formula = "x / (1 + exp(−x))"
    paper = "Elfwing et al. 2018; Ramachandran et al. 2017"

    def function(self, x: float) -> float:
        """The function itself."""
        return silu(x)


@dataclass(frozen=True)
class GatedActivation(Activation):
    """A function of the first half of the input, the gate, times the second half."""

    gate: ClassVar[str]

    paper = "Shazeer 2020"

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, j = index
        half = store[self.inputs[0]].shape[1] // 2
        gate, inner = (store.one(self.inputs[0], row, i) for i in (j, j + half))
        gated = self.function(gate.value)
        result = gated * inner.value
        columns = f"{self.gate}(gate)", "· inner"
        return Computation(result, columns, [Term((gate, inner), (gated, result))])


@dataclass(frozen=True)
class SwigluActivation(GatedActivation):
    """SwiGLU: SiLU of the first half gates the second."""

    name = "swiglu"
    gate = "silu"
    formula = "gate / (1 + exp(−gate)) · inner"

    def function(self, x: float) -> float:
        """The function of the gate."""
        return silu(x)


@dataclass(frozen=True)
class GegluActivation(GatedActivation):
    """GEGLU with tanh-GELU, as in T5 1.1: the first half gates the second."""

    name = "geglu"
    gate = "gelu-tanh"
    formula = "gate · ½ (1 + tanh(√(2/π) (gate + 0.044715 gate³))) · inner"

    def function(self, x: float) -> float:
        """The function of the gate."""
        return gelu_tanh(x)


def silu(x: float) -> float:
    """x · σ(x)."""
    return x * sigmoid(x)


def gelu_tanh(x: float) -> float:
    """½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return x * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATION_OPERATIONS: dict[str, type[Activation]] = {
    operation.name: operation
    for operation in (
        ReluActivation,
        GeluActivation,
        GeluTanhActivation,
        SiluActivation,
        SwigluActivation,
        GegluActivation,
    )
}
