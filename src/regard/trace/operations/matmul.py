"""Sums of products: linear layers, scores, contexts, logits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from regard.trace.explanation import Computation, Index, Stage, product_sum
from regard.trace.operations.operation import ALL, Operation, TensorStore
from regard.trace.operations.score_operations import kv_group, repeat_groups


@dataclass(frozen=True)
class LinearProjection(Operation):
    """x Wᵀ + b: inputs (x,), weights (W,) or (W, b)."""

    kind = "linear"
    formula = "Σᵢ x[i] · W[j, i] + b[j]"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        weight, *bias = (store[name] for name in self.weights)
        return F.linear(store[self.inputs[0]][rows], weight, *bias)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        return self.unit(store, index[0], index[1])

    def unit(self, store: TensorStore, row: int, unit: int) -> Computation:
        """One output of one row."""
        weight, *bias = self.weights
        terms, total = product_sum(
            zip(store.along(self.inputs[0], row, ALL), store.along(weight, unit, ALL), strict=True)
        )
        stages = [Stage("Σ", total)]
        for name in bias:
            operand = store.one(name, unit)
            total += operand.value
            stages.append(Stage("+ bias", total, operand))
        return Computation(total, ("product",), terms, stages)


@dataclass(frozen=True)
class HeadProjection(LinearProjection):
    """A linear layer cut into heads: (head, time, dim)."""

    heads: int = 1
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return super().compute(store, rows).unflatten(-1, (self.heads, -1)).transpose(0, 1)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        head, row, i = index
        return self.unit(store, row, head * (len(store[self.weights[0]]) // self.heads) + i)


@dataclass(frozen=True)
class OutputProjection(LinearProjection):
    """h · Eᵀ over the vocabulary."""

    kind = "output projection"
    formula = "Σᵢ h[i] · E[token, i]"
    paper = "Press & Wolf 2017"


@dataclass(frozen=True)
class WeightedSum(Operation):
    """weights · values: inputs (weights, v)."""

    kind = "weighted sum"
    formula = "Σₖ weight[k] · v[k, j]"
    paper = "Vaswani et al. 2017, §3.2.1"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        weights, values = store[self.inputs[0]][:, rows], store[self.inputs[1]]
        return weights @ repeat_groups(values, len(weights))

    def explain(self, store: TensorStore, index: Index) -> Computation:
        (weights, values), (head, query, j) = self.inputs, index
        group = kv_group(store, values, head, len(store[weights]))
        pairs = zip(
            store.along(weights, head, query, ALL), store.along(values, group, ALL, j), strict=True
        )
        terms, total = product_sum(pairs)
        return Computation(total, ("product",), terms)
