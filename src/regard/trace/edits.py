"""Edits of a model while it is traced. Each edit is a change to the program.

>>> record(pipeline, "attention", edits=[{"kind": "ablate", "attention": "dec.0.cross", "head": 1}])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

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
    """Positions told in another order, drawn by a seed; the tokens stay where they are."""

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
    """Scores or logits divided before softmax: below 1 sharper, above 1 flatter. `at` an attention,
    or "out".
    """

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
    """A token said at one step, whatever the model would say."""

    kind: Literal["force"] = "force"
    step: int = Field(ge=0)
    token: int = Field(ge=0)

    @property
    def label(self) -> str:
        return f"token {self.token} forced at step {self.step}"


class Patch(Change):
    """A tensor taken from elsewhere, such as another trace."""

    kind: Literal["patch"] = "patch"
    name: str
    values: list[Any]

    @field_validator("values", mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """A tensor or an array as its numbers."""
        return values.tolist() if hasattr(values, "tolist") else values

    def apply(self, program: Program) -> Program:
        try:
            given = torch.tensor(self.values, dtype=torch.float32)
            finite = bool(given.isfinite().all())
        except (ValueError, TypeError, RuntimeError, OverflowError):
            raise RegardError(
                f"the values of a patch must be a full grid of numbers; those for {self.name} "
                "are not"
            ) from None
        if not finite:
            raise RegardError(
                "the values of a patch must be numbers that 32 bits can hold; those for "
                f"{self.name} are not"
            )
        step = next((step for step in program.steps if step.name == self.name), None)
        if step is not None and not step.axes:
            raise RegardError(f"{self.name} is one number, made of others; patch those")
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
    """An edit from plain values, or one line that says what is wrong with them."""
    if not isinstance(values, Mapping | Change):
        raise RegardError(
            f"edits are a list of them, each with a kind, as in [{{'kind': 'unmasked'}}]; got "
            f"{values!r}"
        )
    return values if isinstance(values, Change) else parse(Edit, dict(values), "edit")


def edited(program: Program, edits: Iterable[Change]) -> Program:
    """The program with all edits in it, one after another."""
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
    """A division by the temperature put before a softmax, under whatever was laid over it since."""

    def change(step: Step) -> tuple[Step, ...]:
        operation: Operation = step.operation
        assert isinstance(operation, NormalisedWeights | row_wise.LogProbability)
        cooled = Step(between, step.axes, temper(operation.inputs, (), value))
        return cooled, replace(step, operation=replace(operation, inputs=(between,)))

    if any(step.name == between for step in program.steps):
        raise RegardError(f"{name} has a temperature already; give one")
    return program.changed(program.own(name), change)
