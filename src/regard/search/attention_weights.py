"""Attention weights: those of every attention, recorded in one teacher-forced pass."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention
from regard.errors import RegardError
from regard.models import Model
from regard.ragged import Ragged

Weights = Float[Tensor, "_head _query _key"]  # each attention has its own


@torch.no_grad()
def record_attention(model: Model, source: Ragged, prefix: Ragged) -> dict[str, Weights]:
    """The weights of every attention by module name, for one source and one prefix. Row i of a
    decoder's weights belongs to the step after prefix token i."""
    seen: dict[str, list[Tensor]] = {}
    here = get_ident()

    def watcher(name: str) -> Any:
        def watch(attention: Attention, arguments: Any, options: Any = None) -> None:
            if get_ident() == here:  # other threads may run the same model
                seen.setdefault(name, []).append(
                    attention.intermediates(*arguments, **options).weights[0]
                )

        watch.harmless = True  # type: ignore[attr-defined]  # concurrent searches may ignore it
        return watch

    parts = [(name, part) for name, part in model.named_modules() if isinstance(part, Attention)]
    hooks = [
        part.register_forward_pre_hook(watcher(name), with_kwargs=True) for name, part in parts
    ]
    try:
        model.read(source, prefix)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        name: torch.cat(rows, 1) for name, rows in seen.items()
    }  # a recurrent decoder attends once per step


def alignment(model: Model, seen: dict[str, Weights]) -> Float[Tensor, "query key"]:
    """The alignment of each decoding step with the source: mean cross-attention over layers and
    heads. With softmax, every row sums to 1."""
    crossing = set(map(id, model.cross_attentions()))
    names = [name for name, part in model.named_modules() if id(part) in crossing]
    if not names:
        raise RegardError(
            "this model has no cross-attention to align with (model.attention = none)"
        )
    return torch.stack([seen[name].mean(0) for name in names]).mean(0)


def links(matrix: Float[Tensor, "query key"]) -> list[list[int]]:
    """Pharaoh links [i, j]: output token j and the source token i with the largest weight.

    END, last on both sides, is not linked."""
    most = matrix[:-1].argmax(1).tolist()
    return [[i, j] for j, i in enumerate(most) if i < matrix.shape[1] - 1]
