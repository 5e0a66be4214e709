"""Normalisers: attention weights from masked scores, over the keys of one query.

A masked score is −∞ and gets weight 0; so does every key of a query that may attend to nothing.
A normaliser that is not in this file is computed by its own module (`NormalisedWeights`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention import Normaliser
from regard.attention import normalisers as parts
from regard.trace.operations.operation import (
    ALL,
    Computation,
    Index,
    Operand,
    PartOperation,
    Stage,
    TensorStore,
    Term,
    copied,
    in_float64,
)


@dataclass(frozen=True)
class NormalisedWeights(PartOperation):
    """Weights computed by a normaliser's own module: inputs (masked,)."""

    role = "normaliser"
    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return self._normalise(self.part, store[self.inputs[0]][:, rows])

    def explain(self, store: TensorStore, index: Index) -> Computation:
        weights = self._normalise(in_float64(self.part), store[self.inputs[0]].double())
        row = weights[index[:-1]].tolist()
        operands = store.along(self.inputs[0], *index[:-1], ALL)
        terms = [
            Term((one,), (weight,), None, key == index[-1])
            for key, (one, weight) in enumerate(zip(operands, row, strict=True))
        ]
        return Computation(row[index[-1]], ("weight",), terms, [self.stage(row[index[-1]])])

    @staticmethod
    def _normalise(part: Normaliser, masked: Tensor) -> Tensor:
        allowed = masked != -math.inf
        weights: Tensor = part(masked.masked_fill(~allowed, 0)[None], allowed[None])
        return weights[0]


@dataclass(frozen=True)
class SoftmaxWeights(NormalisedWeights):
    """exp(s) over the sum of all: inputs (masked,)."""

    kind = "softmax"
    formula = "exp(s − max) / Σ exp(s − max)"
    paper = "Vaswani et al. 2017, §3.2.1"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        weights = store[self.inputs[0]][:, rows].softmax(-1)
        return weights.nan_to_num(0.0)  # a query without any allowed key

    def explain(self, store: TensorStore, index: Index) -> Computation:
        *row, here = index
        terms, largest, total = exponentials(store.along(self.inputs[0], *row, ALL), here)
        own = terms[here].numbers[1]
        stages = [Stage("max", largest), Stage("Σ exp", total), Stage("exp here", own)]
        return Computation(own / total if total else 0.0, ("s − max", "exp"), terms, stages)


def exponentials(operands: list[Operand], here: int) -> tuple[list[Term], float, float]:
    """exp(x − max) of each operand with its running sum; the maximum; the sum."""
    largest = max(one.value for one in operands)
    terms, total = [], 0.0
    for i, one in enumerate(operands):
        difference = one.value - largest if math.isfinite(one.value) else -math.inf
        total += math.exp(difference)
        terms.append(Term((one,), (difference, math.exp(difference)), total, i == here))
    return terms, largest, total


@dataclass(frozen=True)
class UnnormalisedWeights(NormalisedWeights):
    """The scores themselves as weights: inputs (masked,)."""

    kind = "no normalisation"

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index)
        if operand.value == -math.inf:
            return Computation(0.0, ("weight",), [Term((operand,), (0.0,))])
        return copied(operand)


@dataclass(frozen=True)
class KernelWeights(NormalisedWeights):
    """A function of each score over the sum of all: inputs (masked,)."""

    kind = "normalised kernel"

    @property
    def formula(self) -> str:  # type: ignore[override]
        """The formula of the part, with the φ of a positive normaliser."""
        formula = PartOperation.formula.fget(self)  # type: ignore[attr-defined]
        if not isinstance(self.part, parts.Positive):
            return str(formula)
        return f"{formula}, φ(s) = {PHI_FORMULAS.get(self.part.name, self.part.name)}"

    def explain(self, store: TensorStore, index: Index) -> Computation:
        *row, here = index
        operands = store.along(self.inputs[0], *row, ALL)
        allowed = [one.value for one in operands if one.value != -math.inf]
        kernel, terms, total = KERNELS[type(self.part)](self.part, allowed), [], 0.0
        for i, one in enumerate(operands):
            value = 0.0 if one.value == -math.inf else kernel(one.value)
            total += value
            terms.append(Term((one,), (value,), total, i == here))
        own = terms[here].numbers[0]
        stages = [Stage("Σ", total), Stage("here", own)]
        return Computation(own / total if total > 0 else 0.0, ("φ(s)",), terms, stages)


PHI_FORMULAS = {
    "exp": "exp(s − max)",
    "softplus": "log(1 + exp(s))",
    "sigmoid": "1 / (1 + exp(−s))",
    "relu": "max(0, s)",
    "elu": "s + 1 if s > 0, else exp(s)",
}
Kernel = Callable[[float], float]


def positive(part: parts.Positive, scores: Sequence[float]) -> Kernel:
    """φ; exp is taken relative to the largest score, which cancels in the quotient."""
    shift = max(scores, default=0.0) if part.name == "exp" else 0.0
    return lambda s: float(part.phi(torch.tensor(s - shift, dtype=torch.float64)))


KERNELS: dict[type[Normaliser], Callable[..., Kernel]] = {
    parts.Positive: positive,
    parts.Boxcar: lambda part, scores: lambda s: float(s >= -0.5),
    parts.Epanechnikov: lambda part, scores: lambda s: max(0.0, 1 + 2 * s),
    parts.Triangular: lambda part, scores: lambda s: max(0.0, 1 - math.sqrt(max(-2 * s, 0.0))),
    parts.Uniform: lambda part, scores: lambda s: 1.0,
}


@dataclass(frozen=True)
class EntmaxWeights(NormalisedWeights):
    """max(0, (α − 1)·s − τ)^(1/(α − 1)), τ such that the weights sum to 1; α = 2 is sparsemax."""

    kind = "α-entmax"

    def explain(self, store: TensorStore, index: Index) -> Computation:
        *row, here = index
        operands, alpha = store.along(self.inputs[0], *row, ALL), self.part.alpha
        scaled = [(alpha - 1) * one.value for one in operands]
        threshold = entmax_threshold(scaled, alpha)
        terms, total = [], 0.0
        for i, (one, z) in enumerate(zip(operands, scaled, strict=True)):
            weight = max(0.0, z - threshold) ** (1 / (alpha - 1))
            total += weight
            terms.append(Term((one,), (z, weight), total, i == here))
        stages = [Stage("α", alpha), Stage("threshold τ", threshold), Stage("Σ", total)]
        return Computation(terms[here].numbers[1], ("(α − 1) · s", "weight"), terms, stages)


def entmax_threshold(scaled: Sequence[float], alpha: float) -> float:
    """τ with Σ max(0, z − τ)^(1/(α − 1)) = 1, by bisection; +∞ if no key is allowed."""
    largest = max(scaled)
    if largest == -math.inf:
        return math.inf
    low, high = largest - 1, largest  # the sum is at least 1 at low, and 0 at high
    for _ in range(80):
        middle = (low + high) / 2
        total = math.fsum(max(0.0, z - middle) ** (1 / (alpha - 1)) for z in scaled)
        low, high = (middle, high) if total > 1 else (low, middle)
    return (low + high) / 2


NORMALISER_OPERATIONS: dict[type[Normaliser], type[NormalisedWeights]] = {
    parts.Softmax: SoftmaxWeights,
    parts.Unnormalised: UnnormalisedWeights,
    **dict.fromkeys(KERNELS, KernelWeights),
    parts.Entmax: EntmaxWeights,
    parts.Sparsemax: EntmaxWeights,
}
