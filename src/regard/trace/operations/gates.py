"""The gates of GRU and LSTM cells, one step of time in each row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.trace.operations.operation import (
    Computation,
    Index,
    Operand,
    Operation,
    Stage,
    TensorStore,
    Term,
    constant,
    copied,
    product_sum,
    sigmoid,
)


@dataclass(frozen=True)
class PreviousState(Operation):
    """The state of the previous step: row t is row t − 1 of inputs[0] (t + 1 when read backward).

    The first step reads the columns from `first` of inputs[1], or zeros."""

    width: int = 0
    backward: bool = False
    first: int = 0

    kind = "previous state"
    formula = "h[t − 1]"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        before = self._row(store, rows.start)  # states are computed one step at a time
        if before is not None:
            return store[self.inputs[0]][before : before + 1]
        if len(self.inputs) < 2:
            return torch.zeros(1, self.width)
        return store[self.inputs[1]][:1, self.first : self.first + self.width]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        t, j = index
        before = self._row(store, t)
        if before is not None:
            operand = store.one(self.inputs[0], before, j)
        elif len(self.inputs) > 1:
            operand = store.one(self.inputs[1], 0, self.first + j)
        else:
            operand = constant("zero at the start", 0.0)
        return copied(operand)

    def _row(self, store: TensorStore, t: int) -> int | None:
        """The previous step of t, if there is one."""
        if not self.backward:
            return t - 1 if t > 0 else None
        last = len(store.tensors[self.inputs[0]]) - 1 if self.inputs[0] in store.tensors else t
        return t + 1 if t < last else None


@dataclass(frozen=True)
class SigmoidGate(Operation):
    """σ(ih + hh) of one gate; inputs (ih = W x + b, hh = U h + c) contain all gates of the cell."""

    part: int = 0
    width: int = 0

    kind = "gate"
    formula = "σ(ih + hh) with ih = W x + b, hh = U h + c"
    paper = "Cho et al. 2014; Hochreiter & Schmidhuber 1997"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        ih, hh = self.sums(store, rows)
        return torch.sigmoid(ih + hh)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        ih, hh = self.terms(store, index)
        terms, total = product_sum([(ih,), (hh,)])
        return Computation(sigmoid(total), ("term",), terms, [Stage("σ", sigmoid(total))])

    def sums(self, store: TensorStore, rows: slice) -> list[Tensor]:
        """The input's and the previous state's contribution to this gate."""
        units = slice(self.part * self.width, (self.part + 1) * self.width)
        return [store[name][rows, units] for name in self.inputs[:2]]

    def terms(self, store: TensorStore, index: Index) -> list[Operand]:
        """The same for one unit."""
        row, j = index
        return [store.one(name, row, self.part * self.width + j) for name in self.inputs[:2]]


@dataclass(frozen=True)
class CellCandidate(SigmoidGate):
    """The candidate for an LSTM's cell: inputs (W x + b, U h + c)."""

    kind = "cell candidate"
    formula = "tanh(ih + hh) with ih = W x + b, hh = U h + c"
    paper = "Hochreiter & Schmidhuber 1997"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        ih, hh = self.sums(store, rows)
        return torch.tanh(ih + hh)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        terms, total = product_sum([(term,) for term in self.terms(store, index)])
        return Computation(math.tanh(total), ("term",), terms, [Stage("tanh", math.tanh(total))])


@dataclass(frozen=True)
class GruCandidate(SigmoidGate):
    """The candidate for a GRU's state: inputs (W x + b, U h + c, r)."""

    kind = "candidate"
    formula = "tanh(ih + r · hh) with ih = W x + b, hh = U h + c"
    paper = "Cho et al. 2014"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        ih, hh = self.sums(store, rows)
        return torch.tanh(ih + store[self.inputs[2]][rows] * hh)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        ih, hh = self.terms(store, index)
        terms, total = product_sum([(ih,), (store.one(self.inputs[2], *index), hh)])
        return Computation(math.tanh(total), ("term",), terms, [Stage("tanh", math.tanh(total))])


@dataclass(frozen=True)
class GruState(Operation):
    """The GRU's new state: inputs (z, n, h[t − 1])."""

    kind = "GRU state"
    formula = "(1 − z) · n + z · h[t − 1]"
    paper = "Cho et al. 2014"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        z, new, before = (store[name][rows] for name in self.inputs)
        return (1 - z) * new + z * before

    def explain(self, store: TensorStore, index: Index) -> Computation:
        z, new, before = (store.one(name, *index) for name in self.inputs)
        old = z.value * before.value
        made = (1 - z.value) * new.value
        terms = [Term((z, new), (made,), made), Term((z, before), (old,), made + old)]
        return Computation(made + old, ("(1 − z) · n, z · h",), terms)


@dataclass(frozen=True)
class LstmCell(Operation):
    """The LSTM's cell: inputs (f, c[t − 1], i, g)."""

    kind = "LSTM cell"
    formula = "f · c[t − 1] + i · g"
    paper = "Hochreiter & Schmidhuber 1997"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        forget, before, enter, new = (store[name][rows] for name in self.inputs)
        return forget * before + enter * new

    def explain(self, store: TensorStore, index: Index) -> Computation:
        forget, before, enter, new = (store.one(name, *index) for name in self.inputs)
        terms, total = product_sum([(forget, before), (enter, new)])
        return Computation(total, ("product",), terms)


@dataclass(frozen=True)
class LstmState(Operation):
    """The LSTM's state: inputs (o, c)."""

    kind = "LSTM state"
    formula = "o · tanh(c)"
    paper = "Hochreiter & Schmidhuber 1997"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        out, cell = (store[name][rows] for name in self.inputs)
        return out * torch.tanh(cell)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        out, cell = (store.one(name, *index) for name in self.inputs)
        activated = math.tanh(cell.value)
        state = out.value * activated
        return Computation(state, ("tanh(c)", "· o"), [Term((out, cell), (activated, state))])


@dataclass(frozen=True)
class EncoderSummary(Operation):
    """The final states of both directions, concatenated: inputs (forward h, backward h)."""

    kind = "concatenation"
    formula = "[forward h at the end; backward h at the start]"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        forward, backward = (store[name] for name in self.inputs)
        return torch.cat([forward[-1], backward[0]])[None]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        forward, backward = self.inputs
        length, half = store[forward].shape
        j = index[1]
        operand = (
            store.one(forward, length - 1, j) if j < half else store.one(backward, 0, j - half)
        )
        return copied(operand)
