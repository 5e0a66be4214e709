"""Position encodings: rotation of queries and keys, and biases of scores by distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.positions import T5, Distance, Rotary, Shaw
from regard.trace.operations.operation import (
    ALL,
    Computation,
    Index,
    Operation,
    PartOperation,
    Stage,
    TensorStore,
    Term,
    constant,
    copied,
    in_float64,
    product_sum,
)
from regard.trace.operations.score_operations import site


@dataclass(frozen=True)
class RotatedVectors(Operation):
    """Queries or keys with each pair of coordinates rotated by position: inputs (q, positions)."""

    rotary: Rotary | None = None

    kind = "rotation (RoPE)"
    formula = "a · cos(p · rate) − b · sin(p · rate), b · cos(…) + a · sin(…)"
    paper = "Su et al. 2021, §3.2"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        assert self.rotary is not None
        return self.rotary.rotate(store[self.inputs[0]][:, rows], store[self.inputs[1]][rows])

    def explain(self, store: TensorStore, index: Index) -> Computation:
        assert self.rotary is not None
        head, row, i = index
        if i >= self.rotary.rotated_dims:
            operand = store.one(self.inputs[0], *index)
            return copied(operand)
        half = self.rotary.rotated_dims // 2
        if self.rotary.pairs == "halves":
            pair, second, other = i % half, i >= half, (i + half) % self.rotary.rotated_dims
        else:
            pair, second, other = i // 2, i % 2 == 1, i + 1 - 2 * (i % 2)
        position = int(store[self.inputs[1]][row])
        angle = position * self.rotary.frequencies[pair]
        cos, sin = math.cos(angle), math.sin(angle) if second else -math.sin(angle)
        products = [
            (store.one(self.inputs[0], head, row, i), constant("cos", cos)),
            (
                store.one(self.inputs[0], head, row, other),
                constant("sin" if second else "−sin", sin),
            ),
        ]
        terms, total = product_sum(products)
        stages = [
            Stage("position", position),
            Stage("rate", self.rotary.frequencies[pair]),
            Stage("angle", angle),
        ]
        return Computation(total, ("product",), terms, stages)


@dataclass(frozen=True)
class AlibiBias(Operation):
    """ALiBi: minus the slope of a head times the distance: inputs (query and key positions)."""

    slopes: tuple[float, ...] = ()

    kind = "ALiBi slope"
    formula = "−slope[head] · |query − key|"
    paper = "Press et al. 2022, §3"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return -torch.tensor(self.slopes)[:, None, None] * _ahead(store, self.inputs, rows).abs()

    def explain(self, store: TensorStore, index: Index) -> Computation:
        head, query, key = index
        ahead = _apart(store, self.inputs, query, key)
        products = [(constant("−slope", -self.slopes[head]), constant("distance", abs(ahead)))]
        terms, total = product_sum(products)
        return Computation(total, ("product",), terms)


@dataclass(frozen=True)
class TableBias(Operation):
    """A learned number per head and distance (or bucket): inputs positions, weights (table,)."""

    bias: Distance | T5 | None = None

    kind = "table lookup"
    formula = "table[head, bucket(key − query)] · scale"
    paper = "Raffel et al. 2020, §2.1"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        bucket, scale = self.bucket(_ahead(store, self.inputs, rows))
        return store[self.weights[0]][:, bucket] * scale

    def explain(self, store: TensorStore, index: Index) -> Computation:
        head, query, key = index
        ahead = _apart(store, self.inputs, query, key)
        bucket, scale = self.bucket(torch.tensor(ahead))
        pairs = [(store.one(self.weights[0], head, int(bucket)), constant("scale", scale))]
        terms, total = product_sum(pairs)
        return Computation(
            total, ("product",), terms, [Stage("key − query", ahead), Stage("bucket", int(bucket))]
        )

    def bucket(self, ahead: Tensor) -> tuple[Tensor, float]:
        """The column of the table for a distance, and the factor of the number there."""
        if isinstance(self.bias, Distance):
            return ahead.clamp(
                -self.bias.max_distance, self.bias.max_distance
            ) + self.bias.max_distance, self.bias.scale
        assert isinstance(self.bias, T5)
        return self.bias.bucket(ahead), 1.0


@dataclass(frozen=True)
class ShawBias(Operation):
    """Shaw: the query times a learned vector per distance: inputs (q, positions …), weights
    (table,)."""

    bias: Shaw | None = None

    kind = "dot product"
    formula = "Σᵢ q[i] · A[clip(key − query), i] / √dim"
    paper = "Shaw et al. 2018, eq. 4"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        assert self.bias is not None
        terms = store[self.inputs[0]][:, rows] @ store[self.weights[0]].T * self.bias.scale
        place = self.place(_ahead(store, self.inputs[1:], rows))
        return terms.gather(2, place.expand(len(terms), -1, -1))

    def explain(self, store: TensorStore, index: Index) -> Computation:
        assert self.bias is not None
        head, query, key = index
        ahead = _apart(store, self.inputs[1:], query, key)
        place = int(self.place(torch.tensor(ahead)))
        pairs = zip(
            store.along(self.inputs[0], head, query, ALL),
            store.along(self.weights[0], place, ALL),
            strict=True,
        )
        terms, total = product_sum(pairs)
        stages = [
            Stage("key − query", ahead),
            Stage("Σ", total),
            Stage("1 / √dim", self.bias.scale),
        ]
        return Computation(total * self.bias.scale, ("product",), terms, stages)

    def place(self, ahead: Tensor) -> Tensor:
        """The row of the table for a distance."""
        assert self.bias is not None
        return ahead.clamp(-self.bias.max_distance, self.bias.max_distance) + self.bias.max_distance


@dataclass(frozen=True)
class ComputedPosition(PartOperation):
    """Position vectors computed by the encoding's own module: inputs (positions,)."""

    role = "position encoding"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        vectors: Tensor = self.part(store[self.inputs[0]][rows])
        return vectors.float()

    def explain(self, store: TensorStore, index: Index) -> Computation:
        positions = store[self.inputs[0]]
        value = float(in_float64(self.part)(positions)[index])
        stages = [Stage("position", int(positions[index[0]])), self.stage(value)]
        return Computation(value, stages=stages)


@dataclass(frozen=True)
class ComputedRotation(PartOperation):
    """Queries or keys rotated by the encoding's own module: inputs (q, positions)."""

    role = "rotation"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        vectors, positions = (store[name] for name in self.inputs)
        rotated: Tensor = self.part.rotate(vectors[:, rows], positions[rows])
        return rotated

    def explain(self, store: TensorStore, index: Index) -> Computation:
        vectors, positions = (store[name] for name in self.inputs)
        value = float(in_float64(self.part).rotate(vectors.double(), positions)[index])
        operands = store.along(self.inputs[0], *index[:-1], ALL)
        terms = [Term((one,), (one.value,), None, i == index[-1]) for i, one in enumerate(operands)]
        stages = [Stage("position", int(positions[index[1]])), self.stage(value)]
        return Computation(value, ("value",), terms, stages)


@dataclass(frozen=True)
class ComputedBias(PartOperation):
    """Scores with a bias applied by its own module: inputs (scores, q, query and key positions)."""

    role = "bias"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        scores, queries, where, keys = (store[name] for name in self.inputs)
        return self._biased(self.part, scores[:, rows], queries[:, rows], where[rows], keys)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        scores, queries, where, keys = (store[name] for name in self.inputs)
        part, (head, query, key) = in_float64(self.part), index
        value = float(self._biased(part, scores.double(), queries.double(), where, keys)[index])
        score = store.one(self.inputs[0], *index)
        operands = [score, *store.along(self.inputs[1], head, query, ALL)]
        terms = [Term((one,), (one.value,)) for one in operands]
        stages = [Stage("query", int(where[query])), Stage("key", int(keys[key]))]
        return Computation(value, ("operand",), terms, [*stages, self.stage(value)])

    @staticmethod
    def _biased(part: Any, scores: Tensor, queries: Tensor, where: Tensor, keys: Tensor) -> Tensor:
        biased: Tensor = part.bind(queries[None])(scores[None], site(len(scores), where, keys))
        return biased.expand(1, *scores.shape)[0]


def _ahead(store: TensorStore, positions: tuple[str, ...], rows: slice) -> Tensor:
    queries, keys = positions
    return store[keys][None, :] - store[queries][rows, None]


def _apart(store: TensorStore, positions: tuple[str, ...], query: int, key: int) -> int:
    queries, keys = positions
    return int(store[keys][key] - store[queries][query])
