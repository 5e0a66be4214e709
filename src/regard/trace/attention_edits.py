"""Edits of attention: ablated heads, rows set by hand, no scaling, no mask."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from regard.config import SettingsGroup
from regard.errors import RegardError
from regard.trace.operations import (
    element_wise,
    interventions,
    score_operations,
)
from regard.trace.program import Program

# Larger weights would overflow float32 a few layers later.
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]


class Change(SettingsGroup):
    """An edit of the program. Edits of ids or positions leave the program as it is."""

    def apply(self, program: Program) -> Program:
        """The program with this edit applied."""
        return program

    @property
    def label(self) -> str:
        """A description for users."""
        raise NotImplementedError


class AblateHead(Change):
    """One head ablated before W_O: its context zero or its mean, or its weights uniform."""

    kind: Literal["ablate"] = "ablate"
    attention: str
    head: int = Field(ge=0)
    by: Literal["zero", "mean", "uniform"] = "zero"

    def apply(self, program: Program) -> Program:
        program.attention(self.attention).check_head(self.head)
        if self.by == "uniform":
            seen = _into_softmax(program, self.attention)
            return program.overlaid(
                f"{self.attention}.weights",
                lambda own: interventions.UniformHead((own, seen), (), self.head),
            )
        if self.by == "mean" and program.is_recurrent(f"{self.attention}.context"):
            raise RegardError(
                f"{self.attention} is computed step by step, so its mean is not known before the "
                "last step; use zero or uniform"
            )
        ablation = interventions.ZeroedHead if self.by == "zero" else interventions.MeanAblatedHead
        return program.overlaid(
            f"{self.attention}.context", lambda own: ablation((own,), (), self.head)
        )

    @property
    def label(self) -> str:
        return f"head {self.head} of {self.attention} set to {self.by}"


class SetAttentionRow(Change):
    """One row of one head's weights set by hand."""

    kind: Literal["row"] = "row"
    attention: str
    head: int = Field(ge=0)
    query: int = Field(ge=0)
    weights: tuple[Weight, ...] = Field(min_length=1)

    def apply(self, program: Program) -> Program:
        program.attention(self.attention).check_head(self.head)
        return program.overlaid(
            f"{self.attention}.weights",
            lambda own: interventions.RowReplacement(
                (own,), (), self.head, self.query, self.weights
            ),
        )

    @property
    def label(self) -> str:
        return f"row {self.query} of head {self.head} of {self.attention} set by hand"


class Unscaled(Change):
    """Scores without the division by √dim, in one attention or in all."""

    kind: Literal["unscaled"] = "unscaled"
    attention: str | None = None

    def apply(self, program: Program) -> Program:
        scaled = [
            step
            for step in program.steps
            if isinstance(step.operation, score_operations.ScoreScaling)
            and step.name.startswith(
                tuple(f"{one}." for one in _attentions(program, self.attention))
            )
        ]
        if not scaled:
            where = self.attention or "this model"
            raise RegardError(f"{where} does not scale its scores; nothing to switch off")
        for step in scaled:
            unscaled = score_operations.UnscaledScores(step.operation.inputs)
            program = program.renewed(step.name, unscaled)
        return program

    @property
    def label(self) -> str:
        return f"no scaling in {self.attention or 'any attention'}"


class Unmasked(Change):
    """No mask: every key is visible, future ones too, in one attention or in all."""

    kind: Literal["unmasked"] = "unmasked"
    attention: str | None = None

    def apply(self, program: Program) -> Program:
        masks = {
            step.name: step.operation
            for step in program.steps
            if isinstance(step.operation, score_operations.MaskedScores)
        }
        wanted = [program.own(f"{name}.masked") for name in _attentions(program, self.attention)]
        found = [name for name in wanted if name in masks]
        if not found:
            raise RegardError(
                f"{self.attention or 'this model'} has no mask; nothing to switch off"
            )
        for name in found:
            program = program.renewed(name, element_wise.CopyHeads(masks[name].inputs))
        return program

    @property
    def label(self) -> str:
        return f"no mask in {self.attention or 'any attention'}"


def _attentions(program: Program, name: str | None) -> list[str]:
    return (
        [one.name for one in program.attentions] if name is None else [program.attention(name).name]
    )


def _into_softmax(program: Program, attention: str) -> str:
    """The tensor that the normaliser of an attention reads."""
    name = program.own(f"{attention}.weights")
    return next(step.operation.inputs[0] for step in program.steps if step.name == name)
