"""Weight averages over steps or evaluations: they generalise better than the last weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.training.distributed import shard_like


class WeightAverage:
    """Average of a model's weights, kept beside the weights that are trained.

    `ema` moves by 1/window at each step; `last` is the mean of the weights at the last `count`
    evaluations; `none` keeps nothing.
    """

    def __init__(self, model: nn.Module, kind: str, *, count: int, window: int) -> None:
        self.model, self.kind = model, kind
        self.count, self.window = count, max(window, 1)
        self.weights = dict(model.named_parameters())
        self.moving: dict[str, Tensor] = {}
        self.snapshots: list[dict[str, Tensor]] = []

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the weights after an update (steps count from 1)."""
        if self.kind != "ema":
            return
        if not self.moving:
            self.moving = _copy(self.model)
            return
        weight = 1 / min(self.window, step)  # the plain mean until the window is full
        moving = [self.moving[name] for name in self.weights]
        torch._foreach_lerp_(moving, list(self.weights.values()), weight)

    def add_snapshot(self) -> None:
        """Include the weights at an evaluation."""
        if self.kind == "last":
            kept = [*self.snapshots[-(self.count - 1) :], _copy(self.model)]
            self.snapshots = kept[-self.count :]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        average = self.moving
        if self.kind == "last" and self.snapshots:
            names = self.snapshots[0]
            average = {n: torch.stack([s[n] for s in self.snapshots]).mean(0) for n in names}
        if self.kind == "none" or not average:
            yield
            return
        trained = _copy(self.model)
        _load(self.model, average)
        try:
            yield
        finally:
            _load(self.model, trained)

    def state(self) -> dict[str, Tensor]:
        """All tensors of the average by flat names."""
        tensors = {f"moving.{name}": tensor for name, tensor in self.moving.items()}
        for i, snapshot in enumerate(self.snapshots):
            tensors.update({f"snapshot{i}.{name}": tensor for name, tensor in snapshot.items()})
        return tensors

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load what `state` returned, onto the device of the weights."""
        groups: dict[str, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            group, weight_name = name.split(".", 1)
            weight = self.weights[weight_name]
            tensors = groups.setdefault(group, {})
            tensors[weight_name] = shard_like(tensor.to(weight.device), weight)
        self.moving = groups.pop("moving", {})
        self.snapshots = [groups[f"snapshot{i}"] for i in range(len(groups))]


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@torch.no_grad()
def _load(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, weight in model.named_parameters():
        weight.copy_(weights[name])
