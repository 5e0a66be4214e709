"""Operations on whole rows: linear projections, weighted sums, norms, log-probabilities, the score
of an output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from regard.trace.operations.normaliser_operations import exponentials
from regard.trace.operations.operation import (
    ALL,
    Computation,
    Index,
    Operand,
    Operation,
    Stage,
    TensorStore,
    Term,
    constant,
    product_sum,
)
from regard.trace.operations.score_operations import kv_group, repeat_groups


@dataclass(frozen=True)
class LinearProjection(Operation):
    """x Wᵀ + b: inputs (x,), weights (W,) or (W, b)."""

    kind = "linear"

    @property
    def formula(self) -> str:  # type: ignore[override]
        """With the bias only if there is one."""
        return "Σᵢ x[i] · W[j, i]" + (" + b[j]" if len(self.weights) > 1 else "")

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
    """A linear layer, split into heads: (head, time, dim)."""

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
class BiasedOutputProjection(OutputProjection):
    """h · Eᵀ + b over the vocabulary."""

    formula = "Σᵢ h[i] · E[token, i] + b[token]"


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


@dataclass(frozen=True)
class LayerNormalisation(Operation):
    """Each row to mean 0, variance 1, then gain and shift: inputs (x,), weights (gain, shift)."""

    eps: float = 1e-5

    kind = "LayerNorm"
    formula = "(x − mean) / √(variance + eps) · gain + shift"
    paper = "Ba et al. 2016"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        gain, shift = (store[name] for name in self.weights)
        return F.layer_norm(store[self.inputs[0]][rows], gain.shape, gain, shift, self.eps)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, j = index
        numbers = store.along(self.inputs[0], row, ALL)
        mean = sum(one.value for one in numbers) / len(numbers)
        terms, running = _squares(numbers, mean, j)
        variance = running / len(numbers)
        normal = (numbers[j].value - mean) / math.sqrt(variance + self.eps)
        gain, shift = (store.one(name, j) for name in self.weights)
        stages = [
            Stage("mean", mean),
            Stage("variance", variance),
            Stage("eps", self.eps),
            Stage("normalised", normal),
        ]
        stages += [
            Stage("· gain", normal * gain.value, gain),
            Stage("+ shift", normal * gain.value + shift.value, shift),
        ]
        return Computation(
            normal * gain.value + shift.value, ("x − mean", "squared"), terms, stages
        )


@dataclass(frozen=True)
class RMSNormalisation(Operation):
    """Each row over the root of its mean square, then gain: inputs (x,), weights (gain,)."""

    eps: float = 1e-6

    kind = "RMSNorm"
    formula = "x / √(mean of x² + eps) · gain"
    paper = "Zhang & Sennrich 2019"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        gain = store[self.weights[0]]
        return F.rms_norm(store[self.inputs[0]][rows], gain.shape, gain, self.eps)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, j = index
        numbers = store.along(self.inputs[0], row, ALL)
        terms, running = _squares(numbers, 0.0, j)
        square = running / len(numbers)
        normal = numbers[j].value / math.sqrt(square + self.eps)
        gain = store.one(self.weights[0], j)
        stages = [Stage("mean square", square), Stage("eps", self.eps), Stage("normalised", normal)]
        result = normal * gain.value
        return Computation(
            result, ("x", "squared"), terms, [*stages, Stage("· gain", result, gain)]
        )


def _squares(numbers: list[Operand], mean: float, here: int) -> tuple[list[Term], float]:
    terms, running = [], 0.0
    for i, one in enumerate(numbers):
        apart = one.value - mean
        running += apart * apart
        terms.append(Term((one,), (apart, apart * apart), running, i == here))
    return terms, running


@dataclass(frozen=True)
class LogProbability(Operation):
    """Log-softmax over the vocabulary: inputs (logits,)."""

    kind = "log-probability"
    formula = "l − max − log Σ exp(l − max)"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][rows].log_softmax(-1)

    def explain(self, store: TensorStore, index: Index) -> Computation:
        row, here = index
        terms, largest, total = exponentials(store.along(self.inputs[0], row, ALL), here)
        own = terms[here].numbers[0]
        stages = [Stage("max", largest), Stage("Σ exp", total), Stage("log Σ exp", math.log(total))]
        return Computation(own - math.log(total), ("l − max", "exp"), terms, stages)


@dataclass(frozen=True)
class TemperatureScaling(Operation):
    """A tensor divided by a temperature."""

    temperature: float = 1.0

    kind = "temperature"
    formula = "x / temperature"
    paper = "Hinton et al. 2015"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][rows] / self.temperature

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0], *index)
        result = operand.value / self.temperature
        temperature = constant("temperature", self.temperature)
        return Computation(result, ("quotient",), [Term((operand, temperature), (result,))])


@dataclass(frozen=True)
class HeadTemperatureScaling(TemperatureScaling):
    """The same for a tensor with heads."""

    time = 1

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][:, rows] / self.temperature


@dataclass(frozen=True)
class ChosenLogProb(Operation):
    """The log-probability of the token that follows each row: inputs (logprobs, following)."""

    kind = "selection"
    formula = "logprobs[row, next token]"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        logprobs, following = (store[name][rows] for name in self.inputs)
        return logprobs.gather(1, following[:, None])[:, 0]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        token = int(store[self.inputs[1]][index[0]])
        operand = store.one(self.inputs[0], index[0], token)
        return Computation(
            operand.value, ("value",), [Term((operand,), (operand.value,))], [Stage("token", token)]
        )


@dataclass(frozen=True)
class SequenceLogProb(Operation):
    """The log-probability of the whole output: inputs (chosen,).

    The first `given` rows predict start tokens, which do not count."""

    given: int = 0

    kind = "sum"
    formula = "Σₜ log p(tokenₜ)"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]][self.given :].sum()

    def explain(self, store: TensorStore, index: Index) -> Computation:
        counted = store.along(self.inputs[0], ALL)[self.given :]
        terms, total = product_sum([(one,) for one in counted])
        return Computation(total, ("term",), terms)


@dataclass(frozen=True)
class LengthPenalised(Operation):
    """The score that ranks outputs: log-probability over the length penalty: inputs (total,)."""

    penalty: float = 1.0

    kind = "length penalty"
    formula = "log p / lengthᵅ"
    paper = "Wu et al. 2016, eq. 14"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        return store[self.inputs[0]] / self.penalty

    def explain(self, store: TensorStore, index: Index) -> Computation:
        operand = store.one(self.inputs[0])
        result = operand.value / self.penalty
        return Computation(
            result, ("quotient",), [Term((operand, constant("penalty", self.penalty)), (result,))]
        )
