"""Sums of products: linear layers, scores, contexts, logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.trace.explanation import Index, Line, Stage, Working, product_sum
from regard.trace.operations.operation import ALL, Numbers, Operation


@dataclass(frozen=True)
class Linear(Operation):
    """x Wᵀ + b: inputs (x,), weights (W,) or (W, b)."""

    kind = "linear"
    formula = "Σᵢ x[i] · W[j, i] + b[j]"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        weight, *bias = (at[name] for name in self.weights)
        return F.linear(at[self.inputs[0]][rows], weight, *bias)

    def explain(self, at: Numbers, index: Index) -> Working:
        return self.unit(at, index[0], index[1])

    def unit(self, at: Numbers, row: int, unit: int) -> Working:
        """One output of one row."""
        weight, *bias = self.weights
        lines, total = product_sum(zip(at.along(self.inputs[0], row, ALL), at.along(weight, unit, ALL), strict=True))
        stages = [Stage("Σ", total)]
        for name in bias:
            operand = at.one(name, unit)
            total += operand.value
            stages.append(Stage("+ bias", total, operand))
        return Working(total, ("product",), lines, stages)


@dataclass(frozen=True)
class Heads(Linear):
    """A linear layer cut into heads: (head, time, dim)."""

    heads: int = 1
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return super().compute(at, rows).unflatten(-1, (self.heads, -1)).transpose(0, 1)

    def explain(self, at: Numbers, index: Index) -> Working:
        head, row, i = index
        return self.unit(at, row, head * (len(at[self.weights[0]]) // self.heads) + i)


@dataclass(frozen=True)
class Logits(Linear):
    """h · Eᵀ over the vocabulary."""

    kind = "output projection"
    formula = "Σᵢ h[i] · E[token, i]"
    paper = "Press & Wolf 2017"


@dataclass(frozen=True)
class Mapped(Operation):
    """q W, one matrix a head: the query side of Luong's general score."""

    kind = "bilinear"
    formula = "Σᵢ q[i] · W[i, j]"
    paper = "Luong et al. 2015, §3.1"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][:, rows] @ at[self.weights[0]]

    def explain(self, at: Numbers, index: Index) -> Working:
        head, row, j = index
        queries, weights = at.along(self.inputs[0], head, row, ALL), at.along(self.weights[0], head, ALL, j)
        lines, total = product_sum(zip(queries, weights, strict=True))
        return Working(total, ("product",), lines)


def group(at: Numbers, name: str, head: int, heads: int) -> int:
    """The group of keys or values that serves a head."""
    return head * len(at[name]) // heads


@dataclass(frozen=True)
class Dots(Operation):
    """q · k for every query and key; inputs (q, k). A group of keys may serve several heads."""

    kind = "dot product"
    formula = "Σᵢ q[i] · k[i]"
    paper = "Luong et al. 2015, §3.1; Vaswani et al. 2017, §3.2.1"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        queries, keys = at[self.inputs[0]][:, rows], at[self.inputs[1]]
        return queries @ keys.repeat_interleave(len(queries) // len(keys), 0).transpose(1, 2)

    def explain(self, at: Numbers, index: Index) -> Working:
        (queries, keys), (head, query, key) = self.inputs, index
        served = group(at, keys, head, len(at[queries]))
        pairs = zip(at.along(queries, head, query, ALL), at.along(keys, served, key, ALL), strict=True)
        lines, total = product_sum(pairs)
        return Working(total, ("product",), lines)


@dataclass(frozen=True)
class Energy(Operation):
    """v · tanh(q + k): inputs (q, k), weights (v,)."""

    kind = "additive score"
    formula = "Σᵢ v[i] · tanh(q[i] + k[i])"
    paper = "Bahdanau et al. 2015, A.1.2"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        queries, keys = at[self.inputs[0]][:, rows], at[self.inputs[1]]
        bent = torch.tanh(queries[:, :, None] + keys[:, None])
        return torch.einsum("hd,hqkd->hqk", at[self.weights[0]], bent)

    def explain(self, at: Numbers, index: Index) -> Working:
        head, query, key = index
        queries, keys = at.along(self.inputs[0], head, query, ALL), at.along(self.inputs[1], head, key, ALL)
        lines, running = [], 0.0
        for q, k, v in zip(queries, keys, at.along(self.weights[0], head, ALL), strict=True):
            bent = math.tanh(q.value + k.value)
            running += v.value * bent
            lines.append(Line((q, k, v), (bent, v.value * bent), running))
        return Working(running, ("tanh(q + k)", "· v"), lines)


@dataclass(frozen=True)
class Mix(Operation):
    """weights · values: inputs (weights, v)."""

    kind = "weighted sum"
    formula = "Σₖ weight[k] · v[k, j]"
    paper = "Vaswani et al. 2017, §3.2.1"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        weights, values = at[self.inputs[0]][:, rows], at[self.inputs[1]]
        return weights @ values.repeat_interleave(len(weights) // len(values), 0)

    def explain(self, at: Numbers, index: Index) -> Working:
        (weights, values), (head, query, j) = self.inputs, index
        served = group(at, values, head, len(at[weights]))
        pairs = zip(at.along(weights, head, query, ALL), at.along(values, served, ALL, j), strict=True)
        lines, total = product_sum(pairs)
        return Working(total, ("product",), lines)
