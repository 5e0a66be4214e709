"""An operation: how one named tensor is made from others, and how one of its numbers is explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from regard.trace.explanation import Index, Operand, Working

ALL = slice(None)


class Numbers(Mapping[str, Tensor]):
    """The tensors of a trace so far and the weights of its model, by name."""

    def __init__(self, weights: Mapping[str, Tensor], tensors: dict[str, Tensor] | None = None) -> None:
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

    `compute` makes some `rows` (positions) of it, so that a recurrent model can be walked one position at a time;
    `time` is the axis on which those rows lie. `explain` redoes one number in float64.
    """

    inputs: tuple[str, ...]
    weights: tuple[str, ...] = ()

    kind: ClassVar[str]
    formula: ClassVar[str]
    paper: ClassVar[str | None] = None
    time: ClassVar[int] = 0

    def compute(self, at: Numbers, rows: slice) -> Tensor:
        """Those rows of the tensor, in float32."""
        raise NotImplementedError

    def explain(self, at: Numbers, index: Index) -> Working:
        """One number, from the numbers it is made of."""
        raise NotImplementedError


def constant(name: str, value: float) -> Operand:
    """A number that stands in no tensor."""
    return Operand(name, (), value)
