"""Looks: the weights of every attention along an answer, seen in one teacher-forced pass."""

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
    """For one source and one prefix, the weights of every attention in the model under its name, layer by layer.
    Row i of a decoder's weights belongs to the step after prefix token i."""
    seen: dict[str, list[Tensor]] = {}
    here = get_ident()

    def watcher(name: str) -> Any:
        def watch(attention: Attention, arguments: Any, options: Any = None) -> None:
            if get_ident() == here:  # another thread may ask the same model, even while the hook is half in its place
                seen.setdefault(name, []).append(attention.steps(*arguments, **options).weights[0])

        watch.harmless = True  # type: ignore[attr-defined]  # so that whoever searches meanwhile need not mind
        return watch

    parts = [(name, part) for name, part in model.named_modules() if isinstance(part, Attention)]
    hooks = [part.register_forward_pre_hook(watcher(name), with_kwargs=True) for name, part in parts]
    try:
        model.read(source, prefix)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: torch.cat(rows, 1) for name, rows in seen.items()}  # a recurrent decoder looks once for each step


def alignment(model: Model, seen: dict[str, Weights]) -> Float[Tensor, "query key"]:
    """How much the step after each prefix token looked at each source token: the mean over the layers and heads that
    look at the source. Every row sums to 1."""
    crossing = set(map(id, model.cross_attentions()))
    names = [name for name, part in model.named_modules() if id(part) in crossing]
    if not names:
        raise RegardError("this model has no attention to its source: all it knows of it is one vector")
    return torch.stack([seen[name].mean(0) for name in names]).mean(0)


def links(matrix: Float[Tensor, "query key"]) -> list[list[int]]:
    """[i, j] for each answer token j and the source token i that the row before it looked at most (Pharaoh's way).

    The end, last on both sides, is linked with nothing."""
    most = matrix[:-1].argmax(1).tolist()
    return [[i, j] for j, i in enumerate(most) if i < matrix.shape[1] - 1]
