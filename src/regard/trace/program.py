"""A program: the named steps by which a model makes its numbers for one sentence, and how they are
run.

A model is traced by writing it down as such a list and running it; the result is held to the
model's own fast path. Edits are changes to the list, so that edited numbers explain themselves like
all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from regard.errors import RegardError, UnknownName, suggestion
from regard.trace.operations.operation import Operation, TensorStore


@dataclass(frozen=True)
class Step:
    """One named tensor: its axes in words, and the operation that makes it."""

    name: str
    axes: tuple[str, ...]
    operation: Operation


@dataclass(frozen=True)
class Recurrence:
    """Steps that wait for each other from one position to the next: run row by row along an axis of
    `length_of`.
    """

    steps: tuple[Step, ...]
    length_of: str
    backward: bool = False


@dataclass(frozen=True)
class AttentionBlock:
    """One attention of a model: where its tensors begin in name, who asks and who answers, and its
    stages in order.
    """

    name: str
    kind: str
    layer: int
    heads: int
    query: str
    key: str
    stages: tuple[str, ...]
    module: str

    def check_head(self, head: int) -> None:
        """Raise unless it has that head."""
        if not 0 <= head < self.heads:
            raise RegardError(f"{self.name} has heads 0 to {self.heads - 1}; got {head}")


@dataclass(frozen=True)
class Program:
    """All steps in order. Those before `decoding` do not depend on the target, and are run once for
    any prefix.
    """

    parts: tuple[Step | Recurrence, ...]
    decoding: int
    attentions: tuple[AttentionBlock, ...]

    @property
    def steps(self) -> Iterator[Step]:
        """Every step, those of walks among them."""
        for part in self.parts:
            yield from part.steps if isinstance(part, Recurrence) else (part,)

    def attention(self, name: str) -> AttentionBlock:
        """The attention of that name."""
        known = {one.name: one for one in self.attentions}
        if name not in known:
            way_out = suggestion(name, known) if known else "this model has none"
            raise UnknownName(f"unknown attention {name!r}; {way_out}")
        return known[name]

    def changed(self, name: str, change: Callable[[Step], tuple[Step, ...]]) -> Program:
        """The program with one step replaced by others."""
        done = False
        parts: list[Step | Recurrence] = []
        decoding = self.decoding
        for place, part in enumerate(self.parts):
            old = part.steps if isinstance(part, Recurrence) else (part,)
            new = tuple(
                made for step in old for made in (change(step) if step.name == name else (step,))
            )
            done = done or any(step.name == name for step in old)
            if isinstance(part, Recurrence):
                parts.append(replace(part, steps=new))
            else:
                parts += new
                decoding += (len(new) - 1) * (place < self.decoding)
        if not done:
            raise UnknownName(
                f"unknown tensor {name!r}; {suggestion(name, [step.name for step in self.steps])}"
            )
        return replace(self, parts=tuple(parts), decoding=decoding)

    def renewed(self, name: str, operation: Operation) -> Program:
        """The program with a tensor made by another operation."""
        return self.changed(name, lambda step: (replace(step, operation=operation),))

    def overlaid(self, name: str, over: Callable[[str], Operation]) -> Program:
        """The program with a tensor replaced by what `over` makes of it; the model's own stays as
        `<name>.own`.
        """
        own = f"{name}.own"
        while any(step.name == own for step in self.steps):
            own += ".own"
        return self.changed(
            name, lambda step: (replace(step, name=own), Step(name, step.axes, over(own)))
        )

    def own(self, name: str) -> str:
        """Where the model's own numbers of a tensor are made, under all edits."""
        own = f"{name}.own"  # those of edits that came later have longer names
        return own if any(step.name == own for step in self.steps) else name

    def walks(self, name: str) -> bool:
        """Whether a tensor is made position by position."""
        return any(
            step.name == name
            for part in self.parts
            if isinstance(part, Recurrence)
            for step in part.steps
        )

    def run(self, store: TensorStore, *, start: int = 0) -> None:
        """Make every tensor from part `start` on, in place."""
        for part in self.parts[start:]:
            if isinstance(part, Recurrence):
                walk(part, store)
            else:
                store.tensors[part.name] = part.operation.compute(store, slice(None))


def walk(part: Recurrence, store: TensorStore) -> None:
    """Run the steps of a walk position by position."""
    length = len(store[part.length_of])
    for step in part.steps:
        store.tensors.pop(step.name, None)
    for t in reversed(range(length)) if part.backward else range(length):
        rows = slice(t, t + 1)
        for step in part.steps:
            row = step.operation.compute(store, rows)
            axis = step.operation.time
            if step.name not in store.tensors:
                shape = list(row.shape)
                shape[axis] = length
                store.tensors[step.name] = torch.zeros(shape)
            store.tensors[step.name].narrow(axis, t, 1).copy_(row)
