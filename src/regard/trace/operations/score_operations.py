"""Attention scores: dot product, bilinear, additive, cosine and Gaussian scores; bias and mask.

Queries are (head, query, dim) and keys (head or group, key, dim). A group of keys serves several
heads. A score that is not in this file is computed by its own module (`ComputedScore`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor

from regard.attention import Mask, Score
from regard.attention.masks import Intersection, Union, everything
from regard.axes import Site
from regard.trace.operations.element_wise import Addition
from regard.trace.operations.operation import (
    ALL,
    Computation,
    Index,
    Operand,
    Operation,
    PartOperation,
    Stage,
    TensorStore,
    Term,
    constant,
    in_float64,
    product_sum,
)


def kv_group(store: TensorStore, name: str, head: int, heads: int) -> int:
    """The group of keys or values that serves a head (grouped-query attention)."""
    return head * len(store[name]) // heads


def repeat_groups(keys: Tensor, heads: int) -> Tensor:
    """Keys or values with one entry per head."""
    return keys.repeat_interleave(heads // len(keys), 0)


@dataclass(frozen=True)
class PairwiseScore(Operation):
    """A number for each head, query and key: inputs (q, k)."""

    time = 1

    def tensors(self, store: TensorStore, rows: slice) -> tuple[Tensor, Tensor]:
        """Queries in `rows`, and one set of keys per head."""
        queries = store[self.inputs[0]][:, rows]
        return queries, repeat_groups(store[self.inputs[1]], len(queries))

    def operands(self, store: TensorStore, index: Index) -> tuple[list[Operand], list[Operand]]:
        """The query and the key that meet at an index."""
        queries, keys = self.inputs
        head, query, key = index
        group = kv_group(store, keys, head, len(store[queries]))
        return store.along(queries, head, query, ALL), store.along(keys, group, key, ALL)


@dataclass(frozen=True)
class DotProduct(PairwiseScore):
    """q · k: inputs (q, k)."""

    kind = "dot product"
    paper = "Luong et al. 2015, §3.1; Vaswani et al. 2017, §3.2.1"

    @property
    def formula(self) -> str:  # type: ignore[override]
        """A prime marks rotated vectors."""
        prime = "′" if self.inputs[0].endswith(".rotated") else ""
        return f"Σᵢ q{prime}[i] · k{prime}[i]"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        queries, keys = self.tensors(store, rows)
        return queries @ keys.transpose(1, 2)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        terms, total = product_sum(zip(*self.operands(store, index), strict=True))
        return Computation(total, ("product",), terms)


@dataclass(frozen=True)
class ScoreScaling(Operation):
    """Scores times a constant: inputs (dots,)."""

    factor: float = 1.0

    kind = "scale"
    formula = "score / √dim"
    paper = "Vaswani et al. 2017, §3.2.1"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][:, rows] * self.factor

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index)
        terms, total = product_sum([(operand, constant("factor", self.factor))])
        return Computation(total, ("product",), terms)


@dataclass(frozen=True)
class UnscaledScores(ScoreScaling):
    """Scores without the division by √dim (an edit)."""

    kind = "unscaled"
    formula = "score, not divided by √dim"


@dataclass(frozen=True)
class BilinearQuery(Operation):
    """q W with one matrix per head, the query side of Luong's general score: weights (W,)."""

    kind = "bilinear"
    formula = "Σᵢ q[i] · W[i, j]"
    paper = "Luong et al. 2015, §3.1"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][:, rows] @ store[self.weights[0]]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        head, row, j = index
        queries = store.along(self.inputs[0], head, row, ALL)
        weights = store.along(self.weights[0], head, ALL, j)
        terms, total = product_sum(zip(queries, weights, strict=True))
        return Computation(total, ("product",), terms)


@dataclass(frozen=True)
class AdditiveScore(PairwiseScore):
    """v · tanh(q + k): inputs (q, k), weights (v,)."""

    kind = "additive score"
    formula = "Σᵢ v[i] · tanh(q[i] + k[i])"
    paper = "Bahdanau et al. 2015, A.1.2"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        queries, keys = self.tensors(store, rows)
        hidden = torch.tanh(queries[:, :, None] + keys[:, None])
        return torch.einsum("hd,hqkd->hqk", store[self.weights[0]], hidden)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        queries, keys = self.operands(store, index)
        terms, total = [], 0.0
        for q, k, v in zip(queries, keys, store.along(self.weights[0], index[0], ALL), strict=True):
            hidden = math.tanh(q.value + k.value)
            total += v.value * hidden
            terms.append(Term((q, k, v), (hidden, v.value * hidden), total))
        return Computation(total, ("tanh(q + k)", "· v"), terms)


@dataclass(frozen=True)
class CosineScore(PairwiseScore):
    """scale · q · k / (‖q‖ ‖k‖): inputs (q, k)."""

    scale: float = 1.0

    kind = "cosine"
    formula = "scale · Σᵢ q[i] · k[i] / (‖q‖ · ‖k‖)"
    paper = "Graves et al. 2014, §3.3.1"
    smallest = 1e-12  # norms below this count as this, as in torch.nn.functional.normalize

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        queries, keys = (
            torch.nn.functional.normalize(x, dim=-1) for x in self.tensors(store, rows)
        )
        return queries @ keys.transpose(1, 2) * self.scale

    def explain(self, store: TensorStore, index: Index) -> Computation:
        queries, keys = self.operands(store, index)
        terms, total = product_sum(zip(queries, keys, strict=True))
        norms = [max(math.hypot(*(one.value for one in x)), self.smallest) for x in (queries, keys)]
        stages = [Stage("Σ", total), Stage("‖q‖", norms[0]), Stage("‖k‖", norms[1])]
        cosine = total / norms[0] / norms[1]
        stages += [Stage("cosine", cosine), Stage("scale", self.scale)]
        return Computation(cosine * self.scale, ("product",), terms, stages)


@dataclass(frozen=True)
class GaussianScore(PairwiseScore):
    """−‖q − k‖² / (2 · bandwidth²): inputs (q, k)."""

    bandwidth: float = 1.0

    kind = "Gaussian score"
    formula = "−½ Σᵢ ((q[i] − k[i]) / bandwidth)²"
    paper = "Nadaraya 1964; Watson 1964"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        queries, keys = self.tensors(store, rows)
        return -((queries[:, :, None] - keys[:, None]) / self.bandwidth).square().sum(-1) / 2

    def explain(self, store: TensorStore, index: Index) -> Computation:
        terms, total = [], 0.0
        for q, k in zip(*self.operands(store, index), strict=True):
            difference = (q.value - k.value) / self.bandwidth
            total += difference * difference
            terms.append(Term((q, k), (difference, difference * difference), total))
        stages = [Stage("bandwidth", self.bandwidth), Stage("Σ", total)]
        return Computation(-total / 2, ("(q − k) / bandwidth", "squared"), terms, stages)


@dataclass(frozen=True)
class ComputedScore(PartOperation, PairwiseScore):
    """A score computed by its own module: inputs (q, k), weights all of its parameters."""

    role = "score"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return self._score(self.part, *self.tensors(store, rows))

    def explain(self, store: TensorStore, index: Index) -> Computation:
        queries, keys = (x.double() for x in self.tensors(store, ALL))
        value = float(self._score(in_float64(self.part), queries, keys)[index])
        pairs = zip(*self.operands(store, index), strict=True)
        terms = [Term((q, k), (q.value, k.value)) for q, k in pairs]
        return Computation(value, ("q", "k"), terms, [self.stage(value)])

    @staticmethod
    def _score(part: Score, queries: Tensor, keys: Tensor) -> Tensor:
        scores: Tensor = part(queries[None], keys[None])
        return scores[0]


@dataclass(frozen=True)
class BiasAddition(Addition):
    """Scores plus the bias of the position encoding: inputs (scores, bias)."""

    kind = "bias"
    formula = "score + bias"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        scores, bias = (store[name] for name in self.inputs)
        return scores[:, rows] + bias[:, rows]


@dataclass(frozen=True)
class MaskedScores(Operation):
    """Scores with −∞ where the mask forbids a key, so that its weight is exactly 0."""

    mask: Mask = everything

    kind = "mask"
    paper = "Vaswani et al. 2017, §3.2.3"
    time = 1

    @property
    def formula(self) -> str:  # type: ignore[override]
        """The condition under which a query may attend to a key."""
        return f"score where {condition(self.mask)}, else −∞"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        scores = store[self.inputs[0]]
        allowed = self.mask(site(scores.shape[0], *map(torch.arange, scores.shape[1:])))
        allowed = allowed.expand(1, *scores.shape)[0]
        return scores[:, rows].masked_fill(~allowed[:, rows], -math.inf)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        head, query, key = index
        operand = store.one(self.inputs[0], *index)
        place = site(head + 1, torch.tensor([query]), torch.tensor([key]))
        allowed = bool(self.mask(place).expand(1, head + 1, 1, 1)[0, head])
        result = operand.value if allowed else -math.inf
        stages = [Stage("query", query), Stage("key", key)]
        return Computation(result, ("masked",), [Term((operand,), (result,))], stages)


def site(heads: int, queries: Tensor, keys: Tensor) -> Site:
    """The Site of all heads, of queries at these positions and keys at those."""
    head = torch.arange(heads).view(1, -1, 1, 1)
    row = torch.arange(len(queries)).view(1, 1, -1, 1)
    batch = torch.zeros(1, 1, 1, 1, dtype=torch.long)
    return Site(batch, head, queries.view(1, 1, -1, 1), keys.view(1, 1, 1, -1), row)


def condition(mask: Mask) -> str:
    """A mask as a formula, with the values of its parameters."""
    if isinstance(mask, Intersection):
        return f"({condition(mask.left)}) and ({condition(mask.right)})"
    if isinstance(mask, Union):
        return f"({condition(mask.left)}) or ({condition(mask.right)})"
    formula = mask.formula or repr(mask)
    names: list[str] = [one.name for one in fields(mask)] if is_dataclass(mask) else []
    for name in names:
        formula = formula.replace(name, str(getattr(mask, name)))
    return str(formula)
