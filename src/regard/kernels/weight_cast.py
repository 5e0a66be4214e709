"""Weight cast: all weights are cast to the compute dtype at once, at the start of a step.

Autocast casts each weight separately, and a small model has a hundred of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor


class WeightCast:
    """Copies of groups of weights in the compute dtype; each group is concatenated."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, ...], Tensor] = {}
        self.weights: list[Tensor] = []
        self.copies: list[Tensor] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Refresh all copies, and let `cast_and_concat` use them inside this block."""
        if self.copies:
            with torch.no_grad():
                torch._foreach_copy_(self.copies, self.weights)
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def group(self, weights: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        """The copy of these weights, concatenated."""
        key = tuple(map(id, weights))
        if key not in self.groups:
            self.groups[key] = _cast_and_concat(weights, dtype)
            self.copies += self.groups[key].split([len(weight) for weight in weights])
            self.weights += [weight.detach() for weight in weights]
        return self.groups[key]


_CURRENT: ContextVar[WeightCast | None] = ContextVar("regard_weight_cast", default=None)


def cast_and_concat(weights: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
    """The weights concatenated in the compute dtype; read-only."""
    if len(weights) == 1 and weights[0].dtype == dtype:
        return weights[0]
    current = _CURRENT.get()
    if current is None or weights[0].dtype == dtype:
        return _cast_and_concat(weights, dtype)
    return current.group(weights, dtype)


def _cast_and_concat(weights: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
    whole = torch.empty(
        sum(map(len, weights)), *weights[0].shape[1:], dtype=dtype, device=weights[0].device
    )
    torch._foreach_copy_(
        whole.split([len(weight) for weight in weights]), [weight.detach() for weight in weights]
    )
    return whole
