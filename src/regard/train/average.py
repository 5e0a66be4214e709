"""Averages of weights, over steps or of the last few evaluations: they generalise better than the last ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.train.distributed import like


class Average:
    """Keeps the average beside the weights that learn, and lends it to the model while it is measured or saved.

    `ema` moves by 1/window at each step; `last` is the plain mean of the weights at the last `count` evaluations.
    """

    def __init__(self, model: nn.Module, kind: str, *, count: int, window: int) -> None:
        self.model, self.kind, self.count, self.window = model, kind, count, max(window, 1)
        self.weights = dict(model.named_parameters())
        self.moving: dict[str, Tensor] = {}
        self.snapshots: list[dict[str, Tensor]] = []

    @torch.no_grad()
    def stepped(self, step: int) -> None:
        """Take in the weights after an update (steps count from 1)."""
        if self.kind != "ema":
            return
        if not self.moving:
            self.moving = _copy(self.model)
            return
        share = 1 / min(self.window, step)  # early on, the plain mean of all steps so far
        moving = [self.moving[name] for name in self.weights]
        torch._foreach_lerp_(moving, list(self.weights.values()), share)

    def evaluated(self) -> None:
        """Take in the weights at an evaluation."""
        if self.kind == "last":
            self.snapshots = [*self.snapshots[-(self.count - 1) :], _copy(self.model)][-self.count :]

    @contextmanager
    def lent(self) -> Iterator[None]:
        """The model with averaged weights inside the block."""
        average = self.moving
        if self.kind == "last" and self.snapshots:
            average = {n: torch.stack([s[n] for s in self.snapshots]).mean(0) for n in self.snapshots[0]}
        if self.kind == "none" or not average:
            yield
            return
        own = _copy(self.model)
        _load(self.model, average)
        try:
            yield
        finally:
            _load(self.model, own)

    def state(self) -> dict[str, Tensor]:
        """All that is kept, by flat names."""
        kept = {f"moving.{name}": tensor for name, tensor in self.moving.items()}
        for i, snapshot in enumerate(self.snapshots):
            kept.update({f"snapshot{i}.{name}": tensor for name, tensor in snapshot.items()})
        return kept

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave, to where the weights are."""
        groups: dict[str, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            group, own = name.split(".", 1)
            groups.setdefault(group, {})[own] = like(tensor.to(self.weights[own].device), self.weights[own])
        self.moving = groups.pop("moving", {})
        self.snapshots = [groups[f"snapshot{i}"] for i in range(len(groups))]


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@torch.no_grad()
def _load(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, weight in model.named_parameters():
        weight.copy_(weights[name])
