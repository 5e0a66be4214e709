"""The optimizers of a run: who learns by which, how much of each weight decays, and at what rate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regard.positions import Distance
from regard.train.muon import Muon


def optimizers(model: nn.Module, name: str, *, rate: float | Tensor, decay: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside and AdamW for all else, or AdamW for all.

    A rate that lies on a GPU may change after a step was recorded.
    """
    slowed = {module.table: module.scale for module in model.modules() if isinstance(module, Distance)}
    inside: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for label, parameter in model.named_parameters():
        matrix = name == "muon" and parameter.ndim == 2 and not label.endswith("table")
        (inside if matrix else rest).append(parameter)
    decayed = [p for p in rest if p.ndim >= 2 and p not in slowed]
    plain = [p for p in rest if p.ndim < 2]  # norms and biases do not shrink
    groups = [
        {"params": decayed, "weight_decay": decay, "times": 1.0},
        {"params": plain, "weight_decay": 0.0, "times": 1.0},
    ]
    # What is divided by √d before it is added would learn, and shrink, √d times more slowly than what is not.
    for scale in sorted(set(slowed.values())):
        tables = [table for table in slowed if slowed[table] == scale]
        groups.append({"params": tables, "weight_decay": decay * scale, "times": 1 / scale, "lr": rate / scale})
    options: dict[str, Any] = {"betas": (0.9, 0.98), "fused": True, "capturable": isinstance(rate, Tensor)}
    made: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups, lr=rate, **options)]
    if inside:
        made.append(Muon([{"params": inside, "times": 1.0}], lr=rate, weight_decay=decay))
    return made


def set_rate(made: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """The rate of the next step, for every group. One that lies on a GPU is written there, once for who share it."""
    written: set[int] = set()
    for group in (group for optimizer in made for group in optimizer.param_groups):
        held = group["lr"]
        if not isinstance(held, Tensor):
            group["lr"] = rate * group["times"]
        elif id(held) not in written:
            held.fill_(rate * group["times"])
            written.add(id(held))
