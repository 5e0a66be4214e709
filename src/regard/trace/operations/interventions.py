"""Interventions: operations that edits insert. The model's own numbers stay in the trace as
`<name>.own`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.trace.operations.operation import (
    ALL,
    Computation,
    Index,
    Operation,
    Stage,
    TensorStore,
    constant,
    copied,
    product_sum,
)


@dataclass(frozen=True)
class ZeroedHead(Operation):
    """One head's context set to zero, before W_O: inputs (own,)."""

    head: int = 0

    kind = "ablated head"
    formula = "0 for this head, otherwise unchanged"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        own = store[self.inputs[0]][:, rows].clone()
        own[self.head] = 0
        return own

    def explain(self, store: TensorStore, index: Index) -> Computation:
        if index[0] != self.head:
            return copied(store.one(self.inputs[0], *index))
        return copied(constant("set by hand", 0.0))


@dataclass(frozen=True)
class MeanAblatedHead(Operation):
    """One head's context replaced by its mean over all positions: inputs (own,)."""

    head: int = 0

    kind = "mean-ablated head"
    formula = "mean over queries for this head, otherwise unchanged"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        own = store[self.inputs[0]].clone()
        own[self.head] = own[self.head].mean(0)
        return own[:, rows]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        head, _, j = index
        if head != self.head:
            return copied(store.one(self.inputs[0], *index))
        terms, total = product_sum([(one,) for one in store.along(self.inputs[0], head, ALL, j)])
        return Computation(
            total / len(terms), ("term",), terms, [Stage("Σ", total), Stage("rows", len(terms))]
        )


@dataclass(frozen=True)
class UniformHead(Operation):
    """One head with equal weights on all visible keys: inputs (own, masked)."""

    head: int = 0

    kind = "uniform attention"
    formula = "1 / number of visible keys for this head, otherwise unchanged"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        own, masked = (store[name][:, rows] for name in self.inputs)
        seen = masked[self.head].isfinite().to(own.dtype)
        own = own.clone()
        own[self.head] = seen / seen.sum(-1, keepdim=True).clamp(min=1)
        return own

    def explain(self, store: TensorStore, index: Index) -> Computation:
        head, query, key = index
        if head != self.head:
            return copied(store.one(self.inputs[0], *index))
        seen = store[self.inputs[1]][head, query].isfinite()
        count = int(seen.sum())
        result = 1 / count if bool(seen[key]) else 0.0
        return Computation(result, stages=[Stage("visible keys", count), Stage("share", result)])


@dataclass(frozen=True)
class RowReplacement(Operation):
    """One row of one head's weights set by hand: inputs (own,)."""

    head: int = 0
    query: int = 0
    values: tuple[float, ...] = ()

    kind = "edited row"
    formula = "given weights for this head and query, otherwise unchanged"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        own = store[self.inputs[0]].clone()
        if self.query < own.shape[1]:  # while the output grows, the row may not exist yet
            keys = min(own.shape[2], len(self.values))
            own[self.head, self.query] = 0
            own[self.head, self.query, :keys] = torch.tensor(self.values[:keys])
        return own[:, rows]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        head, query, key = index
        if (head, query) != (self.head, self.query):
            return copied(store.one(self.inputs[0], *index))
        return copied(constant("set by hand", self.values[key]))


@dataclass(frozen=True)
class ZeroTensor(Operation):
    """Zeros in the shape of a tensor: inputs (own,)."""

    kind = "disabled"
    formula = "0"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return torch.zeros_like(store[self.inputs[0]])

    def explain(self, store: TensorStore, index: Index) -> Computation:
        return copied(constant("disabled", 0.0))


@dataclass(frozen=True)
class PatchedTensor(Operation):
    """A tensor replaced by given numbers: inputs (own,).

    Rows beyond the given ones stay the model's own, and so do columns where rows and columns are
    positions of the same sequence (`square`).
    """

    given: Tensor | None = None
    square: bool = False

    kind = "patched"
    formula = "taken from another trace"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        assert self.given is not None
        own = store[self.inputs[0]].clone()
        self._check(own)
        there = tuple(slice(min(sizes)) for sizes in zip(own.shape, self.given.shape, strict=True))
        own[there] = self.given[there]
        return own[rows] if self.time == 0 else own[:, rows]

    def _check(self, own: Tensor) -> None:
        """Raise if the shapes differ in axes other than those of the text."""
        assert self.given is not None
        free = (self.time, self.time + 1) if self.square else (self.time,)
        shapes = [
            [size for axis, size in enumerate(one.shape) if axis not in free]
            for one in (own, self.given)
        ]
        if own.ndim != self.given.ndim or shapes[0] != shapes[1]:
            name = self.inputs[0].removesuffix(".own")
            raise RegardError(
                f"{name} is {tuple(own.shape)}; the patch for it is {tuple(self.given.shape)}"
            )

    def explain(self, store: TensorStore, index: Index) -> Computation:
        assert self.given is not None
        if any(place >= size for place, size in zip(index, self.given.shape, strict=True)):
            return copied(store.one(self.inputs[0], *index))
        return copied(constant("patched", float(self.given[index])))


@dataclass(frozen=True)
class PatchedHeadTensor(PatchedTensor):
    """The same for a tensor with heads."""

    time = 1
