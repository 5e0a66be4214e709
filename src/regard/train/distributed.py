"""Beyond one process: `torchrun … -m regard train …` and torch's own engines. Nothing home-made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn

from regard.device import resolve_device


@dataclass(frozen=True)
class World:
    """How many processes there are, which this one is, and its device."""

    size: int
    rank: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process speaks, saves and measures for all."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            distributed.barrier()

    def agreed(self, value: Any) -> Any:
        """What the first process says, everywhere."""
        if self.size == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def summed(self, value: Tensor) -> Tensor:
        """The sum over all processes, everywhere."""
        if self.size > 1:
            distributed.all_reduce(value)
        return value

    def wrap(self, objective: nn.Module, parallel: str) -> nn.Module:
        """The objective with its gradients exchanged at each backward pass."""
        if self.size == 1:
            return objective
        if parallel == "fsdp":
            from torch.distributed.fsdp import fully_shard

            # As one group: torch looks for tensors between layers to know when to gather, and finds none in a Ragged.
            # So weights are gathered for each step; gradients and what the optimisers remember stay sharded.
            fully_shard(objective)
            return objective
        return nn.parallel.DistributedDataParallel(objective)


def whole(tree: Any) -> Any:
    """A tree of tensors with those put together that are sharded among processes; all must call it."""
    if _sharded(tree):
        return tree.full_tensor()
    if isinstance(tree, Mapping):
        return {key: whole(value) for key, value in tree.items()}
    return [whole(value) for value in tree] if isinstance(tree, list) else tree


def like(tensor: Tensor, other: Any) -> Tensor:
    """A whole tensor cut and placed as another of its shape is; one of another shape as it is."""
    if not _sharded(other) or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements)


def _sharded(value: Any) -> bool:
    """Whether this is torch's DTensor. Its module is a third of all that training imports, and few runs shard."""
    return isinstance(value, Tensor) and hasattr(value, "full_tensor")


@contextmanager
def world(device: str = "auto") -> Iterator[World]:
    """The world that torchrun made, or this process alone."""
    size, rank, local = (
        int(os.environ.get(name, fallback))
        for name, fallback in (("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "0"))
    )
    place = resolve_device(device)
    if place.type == "cuda" and place.index is None:
        place = resolve_device(f"cuda:{local}")
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if size > 1:
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield World(size, rank, place)
    finally:
        if size > 1:
            distributed.destroy_process_group()
