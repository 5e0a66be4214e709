"""Halves: a model's weights in the type of its products, all turned at once at the beginning of a step.

Autocast turns each weight by itself, and a small model has a hundred of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor


class Halves:
    """Keeps room for each group of weights that was asked for; groups lie side by side."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, ...], Tensor] = {}
        self.weights: list[Tensor] = []
        self.rooms: list[Tensor] = []

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Inside, weights are those of now."""
        if self.rooms:
            with torch.no_grad():
                torch._foreach_copy_(self.rooms, self.weights)
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def group(self, weights: tuple[Tensor, ...], kind: torch.dtype) -> Tensor:
        """Some weights, one after another."""
        key = tuple(map(id, weights))
        if key not in self.groups:
            self.groups[key] = _beside(weights, kind)
            self.rooms += self.groups[key].split([len(weight) for weight in weights])
            self.weights += [weight.detach() for weight in weights]
        return self.groups[key]


_CURRENT: ContextVar[Halves | None] = ContextVar("regard_halves", default=None)


def beside(weights: tuple[Tensor, ...], kind: torch.dtype) -> Tensor:
    """Weights one after another in the type of products; not to be changed."""
    if len(weights) == 1 and weights[0].dtype == kind:
        return weights[0]
    current = _CURRENT.get()
    if current is None or weights[0].dtype == kind:
        return _beside(weights, kind)
    return current.group(weights, kind)


def _beside(weights: tuple[Tensor, ...], kind: torch.dtype) -> Tensor:
    whole = torch.empty(sum(map(len, weights)), *weights[0].shape[1:], dtype=kind, device=weights[0].device)
    torch._foreach_copy_(whole.split([len(weight) for weight in weights]), [weight.detach() for weight in weights])
    return whole
