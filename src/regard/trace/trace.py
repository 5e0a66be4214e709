"""Trace: every named number of one sentence's way through a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from regard.answer import Answer
from regard.errors import RegardError, UnknownName, suggestion
from regard.pipeline import Pipeline
from regard.text import Piece
from regard.trace.attention_edits import Change
from regard.trace.explanation import Explanation, Index
from regard.trace.operations.operation import Operation, TensorStore
from regard.trace.program import AttentionBlock, Program, Step


@dataclass(frozen=True, eq=False)
class Trace:
    """What `record` saw. `trace["dec.0.cross.weights"]` is a tensor (head, query, key);
    `trace.explain(name, index)` says where one of its numbers comes from.

    Rows of the target are the tokens fed in: the first is BEGIN, and `following` is what comes
    after each. `check` is the largest difference of the logits from the model's fast path; None
    where edits make them differ.
    """

    pipeline: Pipeline
    program: Program
    numbers: TensorStore
    source: list[Piece]
    target: list[Piece]
    following: list[Piece]
    answer: Answer
    edits: tuple[Change, ...]
    check: float | None

    @cached_property
    def _steps(self) -> dict[str, Step]:
        return {step.name: step for step in self.program.steps}

    @property
    def names(self) -> list[str]:
        """The names of all tensors, in the order in which they arise."""
        return list(self._steps)

    @property
    def attentions(self) -> tuple[AttentionBlock, ...]:
        """Every attention of the model."""
        return self.program.attentions

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._steps

    def __getitem__(self, name: str) -> Tensor:
        return self.numbers.tensors[self._step(name).name]

    def axes(self, name: str) -> tuple[str, ...]:
        """What the axes of a tensor stand for."""
        return self._step(name).axes

    def operation(self, name: str) -> Operation:
        """What made a tensor."""
        return self._step(name).operation

    def origin(self, name: str) -> Operation:
        """What the model itself makes a tensor with, also where an edit changed it afterwards."""
        own = f"{name}.own"
        return self.operation(own if own in self._steps else name)

    def pieces(self, side: str) -> list[Piece]:
        """The tokens of a side: "source", or "target"."""
        if side not in ("source", "target"):
            raise RegardError(f"side must be 'source' or 'target'; got {side!r}")
        return self.source if side == "source" else self.target

    def piece(self, side: str, position: int) -> Piece:
        """One token of a side, or a line that says which positions there are."""
        pieces = self.pieces(side)
        if not 0 <= position < len(pieces):
            raise RegardError(
                f"position {position} is not one of the {side}'s 0 to {len(pieces) - 1}"
            )
        return pieces[position]

    def explain(self, name: str, index: int | Sequence[int]) -> Explanation:
        """Where one number comes from."""
        tensor, operation = self[name], self.operation(name)
        index = (index,) if isinstance(index, int) else tuple(index)  # a list would gather
        if len(index) != tensor.ndim or not all(
            0 <= i < size for i, size in zip(index, tensor.shape, strict=True)
        ):
            shape = tuple(tensor.shape)
            raise RegardError(f"{name} has shape {shape}; there is no number at {index}")
        computation = operation.explain(self.numbers, index)
        known = {one.name for term in computation.terms for one in term.operands}
        known |= {stage.operand.name for stage in computation.stages if stage.operand}
        kinds = {
            one: "tensor" if one in self._steps else "parameter"
            for one in known
            if one in self.numbers
        }
        value = float(tensor[index])
        return Explanation(
            name,
            index,
            self.place(name, index),
            operation.kind,
            operation.formula,
            operation.paper,
            computation,
            value,
            kinds,
        )

    def show(self, *, height: int = 720) -> Any:
        """The explorer's pages of this trace in a frame, for a notebook: an object with
        `_repr_html_` and `save`.
        """
        # here: the explorer stands above the trace, and is loaded when it is asked for
        import regard

        return regard.show(self, height=height)

    def place(self, name: str, index: Index) -> str:
        """An index in words."""
        axes, parts = self.axes(name), []
        for at, (axis, i) in enumerate(zip(axes, index, strict=True)):
            title = axis
            if len(axes) == 3 and axes[0] == "head" and axis in ("source", "target"):
                title = "key" if at == 2 else "query" if axes[2] in ("source", "target") else axis
            parts.append(f"{title} {i}{self._word(axis, i)}")
        return ", ".join(parts) or "the whole answer"

    def _word(self, axis: str, i: int) -> str:
        """The token at a place, in quotes."""
        if axis == "vocabulary":
            return f" “{self.pipeline.bundle.target.label(i)}”"
        return f" “{self.piece(axis, i).text}”" if axis in ("source", "target") else ""

    def _step(self, name: str) -> Step:
        if name not in self._steps:
            raise UnknownName(f"unknown tensor {name!r}; {suggestion(name, self._steps)}")
        return self._steps[name]

    def __repr__(self) -> str:
        count = sum(self[name].numel() for name in self.names)
        return (
            f"Trace({self.answer.source!r} → {self.answer.text!r}: {len(self.names)} tensors, "
            f"{count:,} numbers)"
        )
