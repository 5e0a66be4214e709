"""Explanation: how one number of a trace is computed, with its operands, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A number that went in: the name and index of the tensor or weight it stands in; a constant
    has no index.
    """

    name: str
    index: Index
    value: float


class Term(NamedTuple):
    """One line of a sum: what went in, the numbers made of it, and the sum so far. `here` marks the
    line of the number that is explained, where all terms are of its kind (softmax, norms)."""

    operands: tuple[Operand, ...]
    numbers: tuple[float, ...]
    running: float | None = None
    here: bool = False


class Stage(NamedTuple):
    """A number on the way to the result, after the terms; with the operand it brings in, if there
    is one.
    """

    label: str
    value: float
    operand: Operand | None = None


@dataclass
class Computation:
    """The arithmetic of one number: terms, stages after them, and the result, all in float64."""

    result: float
    columns: tuple[str, ...] = ()
    terms: list[Term] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)

    @property
    def largest(self) -> float:
        """The largest number on the way: what float32 can lose is a share of this, not of the
        result.
        """
        inside = [number for term in self.terms for number in term.numbers if math.isfinite(number)]
        inside += [stage.value for stage in self.stages if math.isfinite(stage.value)]
        return max(
            map(abs, [*inside, self.result if math.isfinite(self.result) else 0.0]), default=0.0
        )


def product_sum(pairs: Iterable[Sequence[Operand]]) -> tuple[list[Term], float]:
    """Products of operands, line by line, and their running sum."""
    terms, running = [], 0.0
    for operands in pairs:
        product = math.prod(operand.value for operand in operands)
        running += product
        terms.append(Term(tuple(operands), (product,), running))
    return terms, running


def sigmoid(x: float) -> float:
    """σ(x) of any number, however far from 0."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def copied(operand: Operand) -> Computation:
    """A number that is taken over as it is."""
    return Computation(operand.value, ("value",), [Term((operand,), (operand.value,))])


@dataclass(frozen=True)
class Explanation:
    """Result of `explain`: the computation, and its deviation from the model's float32 number."""

    name: str
    index: Index
    place: str
    operation: str
    formula: str
    paper: str | None
    computation: Computation
    value: float
    kinds: dict[
        str, str
    ]  # of the operands' names: tensor (has an explanation of its own), parameter or constant

    @property
    def result(self) -> float:
        """The number, computed again in float64 from the operands shown."""
        return self.computation.result

    @property
    def difference(self) -> float:
        """How far the model's number is from it."""
        return 0.0 if self.result == self.value else abs(self.result - self.value)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, which knows no infinity: such numbers are words."""

        def operand(one: Operand) -> dict[str, Any]:
            kind = self.kinds.get(one.name, "constant")
            return {
                "name": one.name,
                "index": list(one.index),
                "value": plain(one.value),
                "kind": kind,
            }

        terms = [
            {
                "operands": [operand(one) for one in term.operands],
                "numbers": [plain(number) for number in term.numbers],
                "running": None if term.running is None else plain(term.running),
                "here": term.here,
            }
            for term in self.computation.terms
        ]
        stages = [
            {
                "label": stage.label,
                "value": plain(stage.value),
                "operand": stage.operand and operand(stage.operand),
            }
            for stage in self.computation.stages
        ]
        return {
            "name": self.name,
            "index": list(self.index),
            "place": self.place,
            "operation": self.operation,
            "formula": self.formula,
            "paper": self.paper,
            "columns": list(self.computation.columns),
            "rows": terms,
            "steps": stages,
            "result": plain(self.result),
            "value": plain(self.value),
            "difference": plain(self.difference),
        }

    def __str__(self) -> str:
        head = (
            f"{self.name}[{', '.join(map(str, self.index))}] = {self.value:.6g}   "
            f"({self.place})\n{self.formula}"
        )
        shown = [
            "  "
            + " · ".join(
                f"{one.name}{list(one.index) if one.index else ''} {one.value:.4g}"
                for one in term.operands
            )
            + ("" if term.running is None else f"   Σ {term.running:.6g}")
            for term in self.computation.terms
        ]
        if len(shown) > 12:
            shown = [*shown[:8], f"  … {len(shown) - 10} more", *shown[-2:]]
        shown += [f"  {stage.label}: {stage.value:.6g}" for stage in self.computation.stages]
        return "\n".join(
            [
                head,
                *shown,
                f"  = {self.result:.9g} in float64, {self.difference:.1e} from the model's",
            ]
        )


def plain(number: float) -> float | str:
    """A number as JSON can hold it."""
    return number if math.isfinite(number) else str(number)
