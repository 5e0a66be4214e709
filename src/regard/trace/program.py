"""Program: the named steps by which a model computes its numbers for one sentence.

A model is traced by writing it down as a list of steps and running them; the result is compared
with the model's own. Edits are changes to the list, so edited numbers can be explained like all
others. `ProgramBuilder` builds the steps of an attention from its parts, for all model families:
parts that Regard defines have an operation that explains their formula; other parts are computed
by their own module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.attention import (
    Additive,
    Cosine,
    Dot,
    Gaussian,
    General,
    Mask,
    Normaliser,
    ScaledDot,
    Score,
    everything,
)
from regard.errors import RegardError, UnknownName, suggestion
from regard.models import Model
from regard.positions import T5, Alibi, Distance, Rotary, Shaw
from regard.trace.operations import positional
from regard.trace.operations import score_operations as scores
from regard.trace.operations.element_wise import CopyHeads
from regard.trace.operations.normaliser_operations import NORMALISER_OPERATIONS, NormalisedWeights
from regard.trace.operations.operation import Operation, TensorStore, in_float32


@dataclass(frozen=True)
class Step:
    """A named tensor: the names of its axes, and the operation that computes it."""

    name: str
    axes: tuple[str, ...]
    operation: Operation


@dataclass(frozen=True)
class Recurrence:
    """Steps that are run position by position, because each position needs the previous one.

    There are as many positions as `length_of` has rows.
    """

    steps: tuple[Step, ...]
    length_of: str
    backward: bool = False


@dataclass(frozen=True)
class AttentionBlock:
    """An attention of a model: the prefix of its tensors' names, the sides of its queries and keys,
    its stages in order, and the name of its module."""

    name: str
    kind: str
    layer: int
    heads: int
    query: str
    key: str
    stages: tuple[str, ...]
    module: str

    def check_head(self, head: int) -> None:
        """Raise if it has no such head."""
        if not 0 <= head < self.heads:
            raise RegardError(f"{self.name} has heads 0 to {self.heads - 1}; got {head}")


@dataclass(frozen=True)
class Program:
    """All steps in order. Those before `decoding` do not depend on the target."""

    parts: tuple[Step | Recurrence, ...]
    decoding: int
    attentions: tuple[AttentionBlock, ...]

    @property
    def steps(self) -> Iterator[Step]:
        """Every step, including those of recurrences."""
        for part in self.parts:
            yield from part.steps if isinstance(part, Recurrence) else (part,)

    def attention(self, name: str) -> AttentionBlock:
        """The attention with this name."""
        known = {one.name: one for one in self.attentions}
        if name not in known:
            fix = suggestion(name, known) if known else "this model has none"
            raise UnknownName(f"unknown attention {name!r}; {fix}")
        return known[name]

    def changed(self, name: str, change: Callable[[Step], tuple[Step, ...]]) -> Program:
        """The program with one step replaced by the steps that `change` returns."""
        done = False
        parts: list[Step | Recurrence] = []
        decoding = self.decoding
        for place, part in enumerate(self.parts):
            old = part.steps if isinstance(part, Recurrence) else (part,)
            new = tuple(
                made for step in old for made in (change(step) if step.name == name else (step,))
            )
            done = done or any(step.name == name for step in old)
            if isinstance(part, Recurrence):
                parts.append(replace(part, steps=new))
            else:
                parts += new
                decoding += (len(new) - 1) * (place < self.decoding)
        if not done:
            raise UnknownName(
                f"unknown tensor {name!r}; {suggestion(name, [step.name for step in self.steps])}"
            )
        return replace(self, parts=tuple(parts), decoding=decoding)

    def renewed(self, name: str, operation: Operation) -> Program:
        """The program with another operation for a tensor."""
        return self.changed(name, lambda step: (replace(step, operation=operation),))

    def overlaid(self, name: str, over: Callable[[str], Operation]) -> Program:
        """The program with a tensor replaced by an operation on it; its own numbers stay as
        `<name>.own`."""
        own = f"{name}.own"
        while any(step.name == own for step in self.steps):
            own += ".own"
        return self.changed(
            name, lambda step: (replace(step, name=own), Step(name, step.axes, over(own)))
        )

    def own(self, name: str) -> str:
        """The name of the tensor with the model's own numbers, below all edits."""
        own = f"{name}.own"  # further edits add further suffixes
        return own if any(step.name == own for step in self.steps) else name

    def is_recurrent(self, name: str) -> bool:
        """Whether a tensor is computed position by position."""
        return any(
            step.name == name
            for part in self.parts
            if isinstance(part, Recurrence)
            for step in part.steps
        )

    def run(self, store: TensorStore, *, start: int = 0) -> None:
        """Compute every tensor from part `start` on and store it."""
        for part in self.parts[start:]:
            if isinstance(part, Recurrence):
                run_recurrence(part, store)
            else:
                store.tensors[part.name] = part.operation.compute(store, slice(None))


def run_recurrence(part: Recurrence, store: TensorStore) -> None:
    """Run the steps of a recurrence position by position."""
    length = len(store[part.length_of])
    for step in part.steps:
        store.tensors.pop(step.name, None)
    for t in reversed(range(length)) if part.backward else range(length):
        rows = slice(t, t + 1)
        for step in part.steps:
            row = step.operation.compute(store, rows)
            axis = step.operation.time
            if step.name not in store.tensors:
                shape = list(row.shape)
                shape[axis] = length
                store.tensors[step.name] = torch.zeros(shape)
            store.tensors[step.name].narrow(axis, t, 1).copy_(row)


SIDES = {"source": "src", "target": "tgt"}


class ProgramBuilder:
    """Names a model's parameters, and builds the steps of its attentions."""

    def __init__(self, model: Model) -> None:
        self.parameter_names = {id(weight): name for name, weight in model.named_parameters()}
        self.module_names = {id(module): name for name, module in model.named_modules()}
        self.model = model
        self.attentions: list[AttentionBlock] = []

    def require(self, module: object, kind: type, name: str) -> None:
        """Raise unless a module is exactly of the kind that the tracer knows."""
        if type(module) is not kind:
            raise RegardError(
                f"cannot trace {name}: it is a {type(module).__name__}, and the tracer knows "
                f"{kind.__name__}; use {kind.__name__}, or register a program for this model"
            )

    def weights(self, module: nn.Module) -> tuple[str, ...]:
        """The names of a layer's weight and bias."""
        present = (p for p in (module.weight, module.bias) if p is not None)
        return tuple(self.parameter_names[id(p)] for p in present)

    def linear(self, module: nn.Module, name: str) -> tuple[str, ...]:
        """The names of weight and bias; raises unless the module is exactly a linear layer."""
        self.require(module, nn.Linear, name)
        return self.weights(module)

    def parameters(self, part: object) -> tuple[str, ...]:
        """The names of all parameters of a part."""
        known = part.parameters() if isinstance(part, nn.Module) else ()
        return tuple(self.parameter_names[id(p)] for p in known)

    def score(
        self, part: Score, name: str, last: str, inputs: tuple[str, str], sides: tuple[str, str]
    ) -> Iterator[Step]:
        """The steps from queries and keys (`inputs`) to the scores, which are called `last`."""
        queries, grid, kind = inputs[0], ("head", *sides), type(part)
        operation: Operation
        if kind is ScaledDot:
            yield Step(f"{name}.dots", grid, scores.DotProduct(inputs))
            operation = scores.ScoreScaling((f"{name}.dots",), (), 1 / math.sqrt(part.dim))
        elif kind is Dot:
            operation = scores.DotProduct(inputs)
        elif kind is General:
            mapped = scores.BilinearQuery((queries,), self.parameters(part))
            yield Step(f"{name}.mapped", ("head", sides[0], "dim"), mapped)
            operation = scores.DotProduct((f"{name}.mapped", inputs[1]))
        elif kind is Additive:
            operation = scores.AdditiveScore(inputs, self.parameters(part))
        elif isinstance(part, Cosine) and kind is Cosine:
            operation = scores.CosineScore(inputs, (), part.scale)
        elif isinstance(part, Gaussian) and kind is Gaussian:
            operation = scores.GaussianScore(inputs, (), part.bandwidth)
        else:
            operation = scores.ComputedScore(inputs, self.parameters(part), in_float32(part))
        yield Step(last, grid, operation)

    def bias(
        self, part: Any, name: str, query: str, sides: tuple[str, str], scored: str
    ) -> Iterator[Step]:
        """The steps that apply a bias to the scores; none without a bias."""
        grid, kind = ("head", *sides), type(part)
        where = (f"{SIDES[sides[0]]}.positions", f"{SIDES[sides[1]]}.positions")
        weights = self.parameters(part)
        operation: Operation | None = None
        if part is None:
            return
        if kind is Alibi:
            operation = positional.AlibiBias(where, (), tuple(part.slopes.tolist()))
        elif kind in (Distance, T5):
            operation = positional.TableBias(where, weights, part)
        elif kind is Shaw:
            operation = positional.ShawBias((query, *where), weights, part)
        if operation is None:
            inputs = (scored, query, *where)
            computed = positional.ComputedBias(inputs, weights, in_float32(part))
            yield Step(f"{name}.biased", grid, computed)
            return
        yield Step(f"{name}.bias", grid, operation)
        yield Step(f"{name}.biased", grid, scores.BiasAddition((scored, f"{name}.bias")))

    def masked(self, mask: Mask, name: str, scored: str, sides: tuple[str, str]) -> Step:
        """The step that sets forbidden scores to −∞."""
        allowed = mask == everything
        operation = CopyHeads((scored,)) if allowed else scores.MaskedScores((scored,), (), mask)
        return Step(f"{name}.masked", ("head", *sides), operation)

    def normaliser(self, part: Normaliser, masked: str) -> NormalisedWeights:
        """The operation that computes weights from scores."""
        operation = NORMALISER_OPERATIONS.get(type(part), NormalisedWeights)
        return operation((masked,), self.parameters(part), in_float32(part))

    def rotation(self, part: Any, vectors: str, side: str) -> Operation:
        """The operation that rotates queries or keys by their positions."""
        inputs = (vectors, f"{SIDES[side]}.positions")
        if type(part) is Rotary:
            return positional.RotatedVectors(inputs, (), part)
        return positional.ComputedRotation(inputs, self.parameters(part), in_float32(part))
