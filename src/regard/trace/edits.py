"""Edits of a model while it is traced. Each edit is a change to the program.

>>> record(pipeline, "attention", edits=[{"kind": "ablate", "attention": "dec.0.cross", "head": 1}])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator

from regard.config import parse
from regard.errors import RegardError
from regard.trace.attention_edits import (
    AblateHead,
    Change,
    SetAttentionRow,
    Unmasked,
    Unscaled,
)
from regard.trace.operations import (
    element_wise,
    interventions,
    positional,
    row_wise,
)
from regard.trace.operations.normaliser_operations import NormalisedWeights
from regard.trace.operations.operation import Operation
from regard.trace.program import Program, Step

POSITIONAL = (
    positional.RotatedVectors,
    positional.ComputedRotation,
    positional.ComputedBias,
)  # without positions they leave their first input unchanged


class Unpositioned(Change):
    """No position anywhere: tokens become a set (the causal mask stays)."""

    kind: Literal["unpositioned"] = "unpositioned"

    def apply(self, program: Program) -> Program:
        found = False
        for step in list(program.steps):
            if step.name.endswith((".position", ".bias")):
                program = program.overlaid(step.name, lambda own: interventions.ZeroTensor((own,)))
            elif isinstance(step.operation, POSITIONAL):
                program = program.renewed(
                    step.name, element_wise.CopyHeads(step.operation.inputs[:1])
                )
            else:
                continue
            found = True
        if not found:
            raise RegardError("this model has no position encoding to switch off")
        return program

    @property
    def label(self) -> str:
        return "no positions"


class ShufflePositions(Change):
    """Positions in a random order, drawn by a seed; the tokens stay in place."""

    kind: Literal["shuffled"] = "shuffled"
    seed: int = Field(1, ge=0, lt=2**63)

    def apply(self, program: Program) -> Program:
        if not any(
            name.endswith(".positions") for step in program.steps for name in step.operation.inputs
        ):
            raise RegardError("this model has no position encoding to shuffle")
        return program

    @property
    def label(self) -> str:
        return f"positions shuffled (seed {self.seed})"


class Temperature(Change):
    """Scores of an attention, or logits (`at="out"`), divided by a temperature before softmax."""

    kind: Literal["temperature"] = "temperature"
    at: str = "out"
    value: float = Field(ge=1e-6, le=1000)

    def apply(self, program: Program) -> Program:
        if self.at == "out":
            return _tempered(
                program, "out.logprobs", "out.tempered", row_wise.TemperatureScaling, self.value
            )
        program.attention(self.at)
        return _tempered(
            program,
            f"{self.at}.weights",
            f"{self.at}.tempered",
            row_wise.HeadTemperatureScaling,
            self.value,
        )

    @property
    def label(self) -> str:
        return f"temperature {self.value:g} at {self.at}"


class ForceToken(Change):
    """A token forced at one step, whatever the model would choose."""

    kind: Literal["force"] = "force"
    step: int = Field(ge=0)
    token: int = Field(ge=0)

    @property
    def label(self) -> str:
        return f"token {self.token} forced at step {self.step}"


class Patch(Change):
    """A tensor replaced by given numbers, such as those of another trace (activation patching)."""

    kind: Literal["patch"] = "patch"
    name: str
    values: list[Any]

    @field_validator("values", mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """The numbers of a tensor or an array."""
        return values.tolist() if isinstance(values, torch.Tensor | np.ndarray) else values

    def apply(self, program: Program) -> Program:
        try:
            given = torch.tensor(self.values, dtype=torch.float32)
            finite = bool(given.isfinite().all())
        except (ValueError, TypeError, RuntimeError, OverflowError):
            raise RegardError(
                f"the values of a patch must be numbers in a regular grid; those for {self.name} "
                "are not"
            ) from None
        if not finite:
            raise RegardError(
                f"the values of a patch must be finite in float32; those for {self.name} are not"
            )
        step = next((step for step in program.steps if step.name == self.name), None)
        if step is not None and not step.axes:
            raise RegardError(
                f"{self.name} is a single number; patch the tensors that it is computed from"
            )
        kind = (
            interventions.PatchedHeadTensor
            if step is not None and step.operation.time
            else interventions.PatchedTensor
        )
        square = step is not None and step.axes[-2:] == ("target", "target")
        return program.overlaid(self.name, lambda own: kind((own,), (), given, square))

    @property
    def label(self) -> str:
        return f"{self.name} patched"


Edit = Annotated[
    AblateHead
    | SetAttentionRow
    | Unscaled
    | Unmasked
    | Unpositioned
    | ShufflePositions
    | Temperature
    | ForceToken
    | Patch,
    Field(discriminator="kind"),
]


def edit(values: Mapping[str, Any] | Change) -> Change:
    """An edit from plain values; raises if they are invalid."""
    if not isinstance(values, Mapping | Change):
        raise RegardError(
            f"edits must be a list of dictionaries with a kind, as in [{{'kind': 'unmasked'}}]; "
            f"got {values!r}"
        )
    return values if isinstance(values, Change) else parse(Edit, dict(values), "edit")


def edited(program: Program, edits: Iterable[Change]) -> Program:
    """The program with all edits applied in order."""
    for change in edits:
        program = change.apply(program)
    return program


def _tempered(
    program: Program,
    name: str,
    between: str,
    temper: type[row_wise.TemperatureScaling],
    value: float,
) -> Program:
    """The program with a division by the temperature before a softmax.

    It applies to the model's own scores, below earlier edits of the weights.
    """

    def change(step: Step) -> tuple[Step, ...]:
        operation: Operation = step.operation
        assert isinstance(operation, NormalisedWeights | row_wise.LogProbability)
        cooled = Step(between, step.axes, temper(operation.inputs, (), value))
        return cooled, replace(step, operation=replace(operation, inputs=(between,)))

    if any(step.name == between for step in program.steps):
        raise RegardError(f"{name} already has a temperature; give one only")
    return program.changed(program.own(name), change)
