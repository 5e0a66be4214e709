"""Distributed training: `torchrun … -m regard train …` with torch's own DDP and FSDP."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from regard.device import resolve_device

# The other processes wait while rank 0 prepares the data. NCCL gives up after ten minutes, and
# 10⁷ pairs may take longer.
MAX_PREPARATION = timedelta(days=7)


@dataclass(frozen=True)
class World:
    """The number of processes, the rank of this one, its device, and the group in which processes
    wait for long."""

    size: int
    rank: int
    device: torch.device
    patient: distributed.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which reports, saves and evaluates for all."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all processes arrive here."""
        if self.size > 1:
            distributed.barrier()

    @contextmanager
    def first_process_first(self) -> Iterator[None]:
        """Rank 0 runs the block before the other processes do, which wait as long as it takes; no
        process continues before all have run it."""
        if not self.first:
            self._wait()
        yield
        if self.first:
            self._wait()
        self._wait()

    def _wait(self) -> None:
        if self.size > 1:
            distributed.barrier(group=self.patient)

    def broadcast(self, value: Any) -> Any:
        """The value of rank 0, in every process."""
        if self.size == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def all_reduce(self, value: Tensor) -> Tensor:
        """The sum over all processes, in every process."""
        if self.size > 1:
            distributed.all_reduce(value)
        return value

    def parallelize(self, objective: nn.Module, parallel: str) -> nn.Module:
        """The objective wrapped in DDP or FSDP, which exchange gradients in each backward pass."""
        if self.size == 1:
            return objective
        if parallel == "fsdp":
            from torch.distributed.fsdp import fully_shard

            # As one group: FSDP looks for tensors between layers to know when to gather, and a
            # Ragged hides them. So weights are gathered for each step, while gradients and the
            # optimizer state stay sharded.
            fully_shard(objective)
            return objective
        return nn.parallel.DistributedDataParallel(objective)


def gather_full(tree: Any) -> Any:
    """A tree of tensors with sharded tensors gathered; every process must call it."""
    if _is_sharded(tree):
        return tree.full_tensor()
    if isinstance(tree, Mapping):
        return {key: gather_full(value) for key, value in tree.items()}
    return [gather_full(value) for value in tree] if isinstance(tree, list) else tree


def shard_like(tensor: Tensor, other: Any) -> Tensor:
    """A full tensor sharded as `other` is; unchanged if their shapes differ."""
    if not _is_sharded(other) or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements)


def _is_sharded(value: Any) -> bool:
    """Whether this is a DTensor. Importing its module would take a third of the start-up time."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


@contextmanager
def world(device: str = "auto") -> Iterator[World]:
    """The processes started by torchrun, or this process alone."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = resolve_device(device)
    if place.type == "cuda" and place.index is None:
        place = resolve_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    if place.type == "cuda":
        torch.cuda.set_device(place)
    patient = None
    if size > 1:
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo")
        patient = distributed.new_group(backend="gloo", timeout=MAX_PREPARATION)
    try:
        yield World(size, rank, place, patient)
    finally:
        if size > 1:
            distributed.destroy_process_group()
