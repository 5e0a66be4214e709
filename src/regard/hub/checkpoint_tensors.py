"""CheckpointTensors: the tensors of a checkpoint by name; what is read is checked and counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.hub.checkpoint_folder import MAX_NAME, CheckpointFolder
from regard.text.template import Template

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class ConvertedCheckpoint:
    """A checkpoint in the terms of Regard: settings and weights of a Transformer, the sizes of its
    vocabularies, and its template, still without languages."""

    settings: dict[str, Any]
    weights: Weights
    sizes: tuple[int, int]
    template: Template


class CheckpointTensors:
    """Reads tensors in float32 and remembers which ones were used."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.folder.shapes

    def read(self, name: str, *shape: int) -> Tensor:
        """A tensor; raises unless it exists and has this shape."""
        found = self.folder.shapes.get(name)
        if found is None:
            raise self.folder.error(f"tensor {name!r} is missing")
        if found != shape:
            raise self.folder.error(f"tensor {name!r} has shape {found}, not {shape}")
        self._used.add(name)
        return self.folder.read_tensor(name)

    def read_first(self, names: Iterable[str], *shape: int) -> Tensor:
        """The first of these tensors that exists; the others are copies of it."""
        names = list(names)
        first = next((name for name in names if name in self), names[0])
        made = self.read(first, *shape)
        self._used |= set(names)
        return made

    def linear(self, name: str, out: str, rows: int, columns: int) -> Weights:
        """Weight and bias of a linear layer."""
        weight = self.read(f"{name}.weight", rows, columns)
        return {f"{out}.weight": weight, f"{out}.bias": self.read(f"{name}.bias", rows)}

    def norm(self, name: str, out: str, width: int) -> Weights:
        """Weight and bias of a LayerNorm."""
        weight = self.read(f"{name}.weight", width)
        return {f"{out}.weight": weight, f"{out}.bias": self.read(f"{name}.bias", width)}

    def ignore(self, name: str) -> None:
        """Count a tensor that is not needed as used."""
        self._used.add(name)

    def check_all_used(self) -> None:
        """Raise if the checkpoint has tensors that were not read: it is another kind of model."""
        left = sorted(set(self.folder.shapes) - self._used)
        if left:
            more = f" and {len(left) - 1} others" if len(left) > 1 else ""
            raise self.folder.error(
                f"it has tensor {left[0][:MAX_NAME]!r}{more}, unknown in this family",
                "merge adapters into the weights, or use the base model",
            )


def with_rows(tensor: Tensor, rows: int) -> Tensor:
    """The tensor with zeros below, up to this many rows."""
    missing = rows - tensor.shape[0]
    return torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])]) if missing else tensor


def tie(source: Tensor, target: Tensor, output: Tensor) -> tuple[str, Weights]:
    """`model.tie_embeddings` and the tables that it leaves."""
    same_inputs = source.shape == target.shape and torch.equal(source, target)
    same_output = torch.equal(target, output)
    if same_inputs and same_output:
        return "all", {"source.table": source}
    if same_inputs:
        return "inputs", {"source.table": source, "output.table": output}
    tables = {"source.table": source, "target.table": target}
    if same_output:
        return "target", tables
    return "none", {**tables, "output.table": output}
