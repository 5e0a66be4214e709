"""Positions at work: pairs that turn, and what is added to scores by distance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.positions import T5, Distance, Rotary, Shaw
from regard.trace.explanation import Index, Stage, Working, copied, product_sum
from regard.trace.operations.operation import ALL, Numbers, Operation, constant


@dataclass(frozen=True)
class Turned(Operation):
    """Queries or keys with each pair of coordinates turned by their position: inputs (q, positions)."""

    rotary: Rotary | None = None

    kind = "rotation of a pair"
    formula = "a · cos(p · rate) − b · sin(p · rate), b · cos(…) + a · sin(…)"
    paper = "Su et al. 2021, §3.2"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        assert self.rotary is not None
        return self.rotary.turn(at[self.inputs[0]][:, rows], at[self.inputs[1]][rows])

    def explain(self, at: Numbers, index: Index) -> Working:
        assert self.rotary is not None
        head, row, i = index
        if i >= self.rotary.turned:
            operand = at.one(self.inputs[0], *index)
            return copied(operand)
        half = self.rotary.turned // 2
        if self.rotary.pairs == "halves":
            pair, second, other = i % half, i >= half, (i + half) % self.rotary.turned
        else:
            pair, second, other = i // 2, i % 2 == 1, i + 1 - 2 * (i % 2)
        position = int(at[self.inputs[1]][row])
        angle = position * self.rotary.rates[pair]
        cos, sin = math.cos(angle), math.sin(angle) if second else -math.sin(angle)
        terms = [
            (at.one(self.inputs[0], head, row, i), constant("cos", cos)),
            (at.one(self.inputs[0], head, row, other), constant("sin" if second else "−sin", sin)),
        ]
        lines, total = product_sum(terms)
        stages = [Stage("position", position), Stage("rate", self.rotary.rates[pair]), Stage("angle", angle)]
        return Working(total, ("product",), lines, stages)


@dataclass(frozen=True)
class Slope(Operation):
    """ALiBi: minus a slope for each head times the distance; inputs (query positions, key positions)."""

    slopes: tuple[float, ...] = ()

    kind = "ALiBi slope"
    formula = "−slope[head] · |query − key|"
    paper = "Press et al. 2022, §3"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return -torch.tensor(self.slopes)[:, None, None] * _ahead(at, self.inputs, rows).abs()

    def explain(self, at: Numbers, index: Index) -> Working:
        head, query, key = index
        ahead = _apart(at, self.inputs, query, key)
        terms = [(constant("−slope", -self.slopes[head]), constant("distance", abs(ahead)))]
        lines, total = product_sum(terms)
        return Working(total, ("product",), lines)


@dataclass(frozen=True)
class FromTable(Operation):
    """A learned number by head and distance (or bucket of distances): inputs positions, weights (table,)."""

    bias: Distance | T5 | None = None

    kind = "table look-up"
    formula = "table[head, bucket(key − query)] · scale"
    paper = "Raffel et al. 2020, §2.1"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        bucket, scale = self.bucket(_ahead(at, self.inputs, rows))
        return at[self.weights[0]][:, bucket] * scale

    def explain(self, at: Numbers, index: Index) -> Working:
        head, query, key = index
        ahead = _apart(at, self.inputs, query, key)
        bucket, scale = self.bucket(torch.tensor(ahead))
        pairs = [(at.one(self.weights[0], head, int(bucket)), constant("scale", scale))]
        lines, total = product_sum(pairs)
        return Working(total, ("product",), lines, [Stage("key − query", ahead), Stage("bucket", int(bucket))])

    def bucket(self, ahead: Tensor) -> tuple[Tensor, float]:
        """The column of the table for a distance, and what the number there is multiplied by."""
        if isinstance(self.bias, Distance):
            return ahead.clamp(-self.bias.reach, self.bias.reach) + self.bias.reach, self.bias.scale
        assert isinstance(self.bias, T5)
        return self.bias.bucket(ahead), 1.0


@dataclass(frozen=True)
class AgainstTable(Operation):
    """Shaw: the query against a learned vector for the distance; inputs (q, positions …), weights (table,)."""

    bias: Shaw | None = None

    kind = "dot product"
    formula = "Σᵢ q[i] · A[clip(key − query), i] / √dim"
    paper = "Shaw et al. 2018, eq. 4"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        assert self.bias is not None
        terms = at[self.inputs[0]][:, rows] @ at[self.weights[0]].T * self.bias.scale
        place = self.place(_ahead(at, self.inputs[1:], rows))
        return terms.gather(2, place.expand(len(terms), -1, -1))

    def explain(self, at: Numbers, index: Index) -> Working:
        assert self.bias is not None
        head, query, key = index
        ahead = _apart(at, self.inputs[1:], query, key)
        place = int(self.place(torch.tensor(ahead)))
        pairs = zip(at.along(self.inputs[0], head, query, ALL), at.along(self.weights[0], place, ALL), strict=True)
        lines, total = product_sum(pairs)
        stages = [Stage("key − query", ahead), Stage("Σ", total), Stage("1 / √dim", self.bias.scale)]
        return Working(total * self.bias.scale, ("product",), lines, stages)

    def place(self, ahead: Tensor) -> Tensor:
        """The row of the table for a distance."""
        assert self.bias is not None
        return ahead.clamp(-self.bias.reach, self.bias.reach) + self.bias.reach


def _ahead(at: Numbers, positions: tuple[str, ...], rows: slice) -> Tensor:
    queries, keys = positions
    return at[keys][None, :] - at[queries][rows, None]


def _apart(at: Numbers, positions: tuple[str, ...], query: int, key: int) -> int:
    queries, keys = positions
    return int(at[keys][key] - at[queries][query])
