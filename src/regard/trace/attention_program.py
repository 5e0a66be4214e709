"""The steps of one attention, read from its parts: score, bias, mask, normaliser, rotation.

Both model families build their programs with `ProgramBuilder`. Parts that Regard defines have an
operation that explains their formula; other parts are computed by their own module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

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
from regard.errors import RegardError
from regard.models import Model
from regard.positions import T5, Alibi, Distance, Rotary, Shaw
from regard.trace.operations import positional
from regard.trace.operations import score_operations as scores
from regard.trace.operations.element_wise import CopyHeads
from regard.trace.operations.normaliser_operations import NORMALISER_OPERATIONS, NormalisedWeights
from regard.trace.operations.operation import Operation, in_float32
from regard.trace.program import AttentionBlock, Step

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
        """The same of a module that has to be a plain linear layer."""
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
        """The operation that makes weights of scores."""
        operation = NORMALISER_OPERATIONS.get(type(part), NormalisedWeights)
        return operation((masked,), self.parameters(part), in_float32(part))

    def rotation(self, part: Any, vectors: str, side: str) -> Operation:
        """The operation that rotates queries or keys by their positions."""
        inputs = (vectors, f"{SIDES[side]}.positions")
        if type(part) is Rotary:
            return positional.RotatedVectors(inputs, (), part)
        return positional.ComputedRotation(inputs, self.parameters(part), in_float32(part))
