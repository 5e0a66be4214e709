"""Trace: every number that a model computes for one text, by name, and how it is computed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from regard.answer import Answer
from regard.errors import RegardError, UnknownName, suggestion
from regard.pipeline import Pipeline
from regard.text import Piece
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.trace.attention_edits import Change
from regard.trace.operations.operation import Computation, Index, Operand, Operation, TensorStore
from regard.trace.program import AttentionBlock, Program, Step


@dataclass(frozen=True, eq=False)
class Trace:
    """The result of `record`. `trace["dec.0.cross.weights"]` is a tensor (head, query, key), and
    `trace.explain(name, index)` shows how one of its numbers is computed.

    Rows of the target are the decoder's inputs, the start tokens first. `following` are the tokens
    after each of them. `check` is the largest difference of the logits from the model's own; None
    for an edited model. `template` has the special tokens of both sides.
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
    template: Template = DEFAULT_TEMPLATE

    @classmethod
    def from_arrays(
        cls,
        source: Sequence[str | Piece],
        target: Sequence[str | Piece],
        arrays: Mapping[str, Any],
        *,
        following: Sequence[str | Piece] | None = None,
        text: str | None = None,
    ) -> Trace:
        """A trace of numbers from any model: arrays by the names of Regard's tensors.

        `source` are the tokens that the encoder reads, `target` those that the decoder reads, and
        `following` the token after each of them (default: the next one, then an end). The arrays
        need at least one attention, such as dec.0.cross.weights of shape (head, target, source).
        """
        from regard.trace.array_trace import trace_from_arrays

        return trace_from_arrays(source, target, arrays, following, text)

    @property
    def has_model(self) -> bool:
        """Whether the numbers were computed by a model that is at hand, not given as arrays."""
        return "bundle" in vars(self.pipeline)

    @cached_property
    def _steps(self) -> dict[str, Step]:
        return {step.name: step for step in self.program.steps}

    @property
    def names(self) -> list[str]:
        """The names of all tensors, in order of computation."""
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
        """The names of a tensor's axes."""
        return self._step(name).axes

    def operation(self, name: str) -> Operation:
        """The operation that computed a tensor."""
        return self._step(name).operation

    def origin(self, name: str) -> Operation:
        """The model's own operation for a tensor, even if an edit replaced it."""
        own = f"{name}.own"
        return self.operation(own if own in self._steps else name)

    def pieces(self, side: str) -> list[Piece]:
        """The tokens of a side: "source" or "target"."""
        if side not in ("source", "target"):
            raise RegardError(f"side must be 'source' or 'target'; got {side!r}")
        return self.source if side == "source" else self.target

    def piece(self, side: str, position: int) -> Piece:
        """One token of a side; raises if there is no such position."""
        pieces = self.pieces(side)
        if not 0 <= position < len(pieces):
            raise RegardError(
                f"position {position} is not one of the {side}'s 0 to {len(pieces) - 1}"
            )
        return pieces[position]

    def explain(self, name: str, index: int | Sequence[int]) -> Explanation:
        """How one number is computed, from its operands."""
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

    def show(self, *, height: int = 720, weights_mb: float | None = None) -> Any:
        """The explorer's pages of this trace, for a notebook; `save` writes them to a file.

        The pages explain numbers with at most `weights_mb` megabytes of weights (default: 16)."""
        import regard  # loads the explorer, a higher layer, on demand

        limit = {} if weights_mb is None else {"weights_mb": weights_mb}
        return regard.show(self, height=height, **limit)

    def place(self, name: str, index: Index) -> str:
        """An index with the names of its axes and the tokens there."""
        axes, parts = self.axes(name), []
        for at, (axis, i) in enumerate(zip(axes, index, strict=True)):
            title = axis
            if len(axes) == 3 and axes[0] == "head" and axis in ("source", "target"):
                title = "key" if at == 2 else "query" if axes[2] in ("source", "target") else axis
            parts.append(f"{title} {i}{self._word(axis, i)}")
        return ", ".join(parts) or "the whole output"

    def _word(self, axis: str, i: int) -> str:
        """The token at an index of an axis, in quotes."""
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
    kinds: dict[str, str]  # by operand name: tensor (can be explained in turn), parameter, constant

    @property
    def result(self) -> float:
        """The number, computed in float64 from the operands."""
        return self.computation.result

    @property
    def difference(self) -> float:
        """The distance of the model's number from it."""
        return 0.0 if self.result == self.value else abs(self.result - self.value)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: such numbers become strings."""

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
    """A number, or a string if it is not finite, which JSON lacks."""
    return number if math.isfinite(number) else str(number)
