"""Alignments: how much each answer token looked at each source token."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention
from regard.errors import RegardError
from regard.models import Model
from regard.ragged import Ragged


@torch.no_grad()
def aligned(model: Model, source: Ragged, prefix: list[int]) -> Float[Tensor, "prefix source"]:
    """For one source, the weights with which the step after each prefix token looked at it, averaged over the heads and
    layers that do. Every row sums to 1."""
    looks = model.looks()
    if not looks:
        raise RegardError("this model has no attention to its source: all it knows of it is one vector")
    seen: list[Tensor] = []

    def watch(attention: Attention, arguments: Any, options: Any) -> None:
        seen.append(attention.steps(*arguments, **options).weights.mean(1)[0, 0])

    hooks = [look.register_forward_pre_hook(watch, with_kwargs=True) for look in looks]
    try:
        state, rows = model.start(model.encode(source)), []
        for token in prefix:
            seen.clear()
            _, state = model.step(torch.tensor([token], device=source.values.device), state)
            rows.append(torch.stack(seen).mean(0))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(rows)
