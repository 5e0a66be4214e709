"""An operation: computes one named tensor from others and explains each of its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A number that a computation reads: the name and index in its tensor; constants have none."""

    name: str
    index: Index
    value: float


class Term(NamedTuple):
    """One line of a sum: its operands, the numbers computed from them, and the running sum.

    `here` marks the line of the explained number where a sum is over all of a row (softmax, norms).
    """

    operands: tuple[Operand, ...]
    numbers: tuple[float, ...]
    running: float | None = None
    here: bool = False


class Stage(NamedTuple):
    """An intermediate result after the terms, with the operand that it adds, if any."""

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
        """The largest intermediate number, which bounds the rounding error of float32."""
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
    """σ(x), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def copied(operand: Operand) -> Computation:
    """The computation of a copied number."""
    return Computation(operand.value, ("value",), [Term((operand,), (operand.value,))])


ALL = slice(None)


class TensorStore(Mapping[str, Tensor]):
    """The tensors of a trace so far and the weights of its model, by name."""

    def __init__(
        self, weights: Mapping[str, Tensor], tensors: dict[str, Tensor] | None = None
    ) -> None:
        self.weights, self.tensors = weights, {} if tensors is None else tensors

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name] if name in self.tensors else self.weights[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.tensors
        yield from self.weights

    def __len__(self) -> int:
        return len(self.tensors) + len(self.weights)

    def one(self, name: str, *index: int) -> Operand:
        """One number as an operand."""
        return Operand(name, index, float(self[name][index]))

    def along(self, name: str, *index: int | slice) -> list[Operand]:
        """The numbers along the one axis that is left open with ALL."""
        axis = index.index(ALL)
        places: list[Any] = list(index)
        before, after = places[:axis], places[axis + 1 :]
        values = self[name][index].double().tolist()
        return [Operand(name, (*before, i, *after), value) for i, value in enumerate(values)]


@dataclass(frozen=True)
class Operation:
    """Computes a tensor from its `inputs` and `weights`, both given by name.

    `compute` returns some `rows` (positions), so that a recurrent model can be run one position at
    a time; `time` is the axis of the rows. `explain` recomputes one number in float64.
    """

    inputs: tuple[str, ...]
    weights: tuple[str, ...] = ()

    kind: ClassVar[str]
    formula: ClassVar[str]
    paper: ClassVar[str | None] = None
    time: ClassVar[int] = 0

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        """These rows of the tensor, in float32."""
        raise NotImplementedError

    def explain(self, store: TensorStore, index: Index) -> Computation:
        """The computation of one number."""
        raise NotImplementedError


@dataclass(frozen=True)
class PartOperation(Operation):
    """An operation computed by a part of the model itself, such as a score that a user registered.

    `part` is a float32 copy of the module on the CPU. Formula and paper are those of its class.
    """

    part: Any = None
    role: ClassVar[str]

    @property
    def name(self) -> str:
        """The class of the part."""
        return type(self.part).__name__

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The role of the part, and its class."""
        return f"{self.role} computed by {self.name}"

    @property
    def formula(self) -> str:  # type: ignore[override]
        """The formula of the part, if its class has one."""
        return self.part.formula or f"{self.name}({', '.join(self.inputs)})"

    @property
    def paper(self) -> str | None:  # type: ignore[override]
        """The paper of the part, if its class names one."""
        return self.part.paper or None

    def stage(self, value: float) -> Stage:
        """The result, attributed to the part."""
        return Stage(f"computed by {self.name}", value)


def in_float32(part: Any) -> Any:
    """A copy of a part with its parameters and buffers in float32 on the CPU."""
    return (
        deepcopy(part).eval().requires_grad_(False).float().cpu()
        if isinstance(part, nn.Module)
        else part
    )


def in_float64(part: Any) -> Any:
    """A copy of a part that computes in float64."""
    return deepcopy(part).double() if isinstance(part, nn.Module) else part


def constant(name: str, value: float) -> Operand:
    """A number that is not an element of a tensor."""
    return Operand(name, (), value)
