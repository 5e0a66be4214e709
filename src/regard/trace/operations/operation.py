"""An operation: computes one named tensor from others and explains each of its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.trace.explanation import Computation, Index, Operand, Stage

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
        before, after = index[:axis], index[axis + 1 :]
        values = self[name][index].double().tolist()
        return [Operand(name, (*before, i, *after), value) for i, value in enumerate(values)]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Operation:
    """Makes a tensor from its `inputs` and `weights` (names both).

    `compute` makes some `rows` (positions) of it, so that a recurrent model can be walked one
    position at a time; `time` is the axis on which those rows lie. `explain` redoes one number in
    float64.
    """

    inputs: tuple[str, ...]
    weights: tuple[str, ...] = ()

    kind: ClassVar[str]
    formula: ClassVar[str]
    paper: ClassVar[str | None] = None
    time: ClassVar[int] = 0

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        """Those rows of the tensor, in float32."""
        raise NotImplementedError

    def explain(self, store: TensorStore, index: Index) -> Computation:
        """One number, from the numbers it is made of."""
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
        return getattr(self.part, "formula", f"{self.name}({', '.join(self.inputs)})")

    @property
    def paper(self) -> str | None:  # type: ignore[override]
        """The paper of the part, if its class names one."""
        return getattr(self.part, "paper", None)

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
