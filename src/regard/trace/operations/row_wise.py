"""Norms, masks and shares: what looks at a whole row at once. And the score of an answer, which sums them up."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.trace.explanation import Index, Line, Operand, Stage, Working, product_sum
from regard.trace.operations.operation import ALL, Numbers, Operation, constant


@dataclass(frozen=True)
class LayerNorm(Operation):
    """Each row to mean 0 and variance 1, then gain and shift: inputs (x,), weights (gain, shift)."""

    eps: float = 1e-5

    kind = "LayerNorm"
    formula = "(x − mean) / √(variance + eps) · gain + shift"
    paper = "Ba et al. 2016"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        gain, shift = (at[name] for name in self.weights)
        return F.layer_norm(at[self.inputs[0]][rows], gain.shape, gain, shift, self.eps)

    def explain(self, at: Numbers, index: Index) -> Working:
        row, j = index
        numbers = at.along(self.inputs[0], row, ALL)
        mean = sum(one.value for one in numbers) / len(numbers)
        lines, running = _squares(numbers, mean, j)
        variance = running / len(numbers)
        normal = (numbers[j].value - mean) / math.sqrt(variance + self.eps)
        gain, shift = (at.one(name, j) for name in self.weights)
        stages = [Stage("mean", mean), Stage("variance", variance), Stage("eps", self.eps), Stage("normalised", normal)]
        stages += [
            Stage("· gain", normal * gain.value, gain),
            Stage("+ shift", normal * gain.value + shift.value, shift),
        ]
        return Working(normal * gain.value + shift.value, ("x − mean", "squared"), lines, stages)


@dataclass(frozen=True)
class RMSNorm(Operation):
    """Each row over the root of its mean square, then gain: inputs (x,), weights (gain,)."""

    eps: float = 1e-6

    kind = "RMSNorm"
    formula = "x / √(mean of x² + eps) · gain"
    paper = "Zhang & Sennrich 2019"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        gain = at[self.weights[0]]
        return F.rms_norm(at[self.inputs[0]][rows], gain.shape, gain, self.eps)

    def explain(self, at: Numbers, index: Index) -> Working:
        row, j = index
        numbers = at.along(self.inputs[0], row, ALL)
        lines, running = _squares(numbers, 0.0, j)
        square = running / len(numbers)
        normal = numbers[j].value / math.sqrt(square + self.eps)
        gain = at.one(self.weights[0], j)
        stages = [Stage("mean square", square), Stage("eps", self.eps), Stage("normalised", normal)]
        result = normal * gain.value
        return Working(result, ("x", "squared"), lines, [*stages, Stage("· gain", result, gain)])


def _squares(numbers: list[Operand], mean: float, here: int) -> tuple[list[Line], float]:
    lines, running = [], 0.0
    for i, one in enumerate(numbers):
        apart = one.value - mean
        running += apart * apart
        lines.append(Line((one,), (apart, apart * apart), running, i == here))
    return lines, running


@dataclass(frozen=True)
class Causal(Operation):
    """−∞ where the key stands after the query, so that softmax gives it exactly nothing."""

    kind = "mask"
    formula = "score where key ≤ query, else −∞"
    paper = "Vaswani et al. 2017, §3.2.3"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        scores = at[self.inputs[0]]
        keys = torch.arange(scores.shape[2])
        queries = torch.arange(scores.shape[1])[rows, None]
        return scores[:, rows].masked_fill(keys > queries, -math.inf)

    def explain(self, at: Numbers, index: Index) -> Working:
        _, query, key = index
        operand = at.one(self.inputs[0], *index)
        result = operand.value if key <= query else -math.inf
        stages = [Stage("query", query), Stage("key", key)]
        return Working(result, ("masked",), [Line((operand,), (result,))], stages)


@dataclass(frozen=True)
class Softmax(Operation):
    """Shares of exp, over the last axis: inputs (masked,)."""

    kind = "softmax"
    formula = "exp(s − max) / Σ exp(s − max)"
    paper = "Vaswani et al. 2017, §3.2.1"
    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][:, rows].softmax(-1).nan_to_num(0.0)  # a row that may see nothing gets nothing

    def explain(self, at: Numbers, index: Index) -> Working:
        *row, here = index
        lines, largest, total = _exps(at.along(self.inputs[0], *row, ALL), here)
        own = lines[here].numbers[1]
        stages = [Stage("max", largest), Stage("Σ exp", total), Stage("exp here", own)]
        return Working(own / total if total else 0.0, ("s − max", "exp"), lines, stages)


@dataclass(frozen=True)
class LogSoftmax(Operation):
    """Logarithms of shares over the vocabulary: inputs (logits,)."""

    kind = "log-probability"
    formula = "l − max − log Σ exp(l − max)"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][rows].log_softmax(-1)

    def explain(self, at: Numbers, index: Index) -> Working:
        row, here = index
        lines, largest, total = _exps(at.along(self.inputs[0], row, ALL), here)
        own = lines[here].numbers[0]
        stages = [Stage("max", largest), Stage("Σ exp", total), Stage("log Σ exp", math.log(total))]
        return Working(own - math.log(total), ("l − max", "exp"), lines, stages)


def _exps(numbers: list[Operand], here: int) -> tuple[list[Line], float, float]:
    largest = max(one.value for one in numbers)
    lines, running = [], 0.0
    for i, one in enumerate(numbers):
        apart = one.value - largest if math.isfinite(one.value) else -math.inf
        running += math.exp(apart)
        lines.append(Line((one,), (apart, math.exp(apart)), running, i == here))
    return lines, largest, running


@dataclass(frozen=True)
class Temper(Operation):
    """A tensor divided by a temperature."""

    temperature: float = 1.0

    kind = "temperature"
    formula = "x / temperature"
    paper = "Hinton et al. 2015"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][rows] / self.temperature

    def explain(self, at: Numbers, index: Index) -> Working:
        operand = at.one(self.inputs[0], *index)
        result = operand.value / self.temperature
        temperature = constant("temperature", self.temperature)
        return Working(result, ("quotient",), [Line((operand, temperature), (result,))])


@dataclass(frozen=True)
class TemperHeads(Temper):
    """The same for a tensor with heads."""

    time = 1

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]][:, rows] / self.temperature


@dataclass(frozen=True)
class Chosen(Operation):
    """The log-probability of the token that follows each row: inputs (logprobs, following)."""

    kind = "choice"
    formula = "logprobs[row, following token]"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        logprobs, following = (at[name][rows] for name in self.inputs)
        return logprobs.gather(1, following[:, None])[:, 0]

    def explain(self, at: Numbers, index: Index) -> Working:
        token = int(at[self.inputs[1]][index[0]])
        operand = at.one(self.inputs[0], index[0], token)
        return Working(operand.value, ("value",), [Line((operand,), (operand.value,))], [Stage("token", token)])


@dataclass(frozen=True)
class Total(Operation):
    """The log-probability of the whole answer: inputs (chosen,)."""

    kind = "sum"
    formula = "Σₜ log p(tokenₜ)"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]].sum()

    def explain(self, at: Numbers, index: Index) -> Working:
        lines, total = product_sum([(one,) for one in at.along(self.inputs[0], ALL)])
        return Working(total, ("term",), lines)


@dataclass(frozen=True)
class Penalised(Operation):
    """The score an answer is ranked by: its log-probability over a penalty for its length; inputs (total,)."""

    penalty: float = 1.0

    kind = "length penalty"
    formula = "log p / lengthᵅ"
    paper = "Wu et al. 2016, eq. 14"

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        return at[self.inputs[0]] / self.penalty

    def explain(self, at: Numbers, index: Index) -> Working:
        operand = at.one(self.inputs[0])
        result = operand.value / self.penalty
        return Working(result, ("quotient",), [Line((operand, constant("penalty", self.penalty)), (result,))])
