"""Aligned: how much each answer token looked at each source token, and which two belong together."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import RegardError, UnknownName, suggestion
from regard.search.attention_weights import links
from regard.trace.trace import Trace

__all__ = ["MEAN", "aligned", "links"]
MEAN = "mean"
Matrix = Float[Tensor, "target source"]


def aligned(trace: Trace, attention: str = MEAN, head: int | None = None) -> Matrix:
    """How much each row of the target looked at each source token: by one cross-attention (the mean of its heads, or
    one of them), or by the mean of all."""
    crossing = {one.name: one for one in trace.attentions if one.kind == "cross"}
    if not crossing:
        raise RegardError(
            "this model has no attention to its source: all it knows of it is one vector"
        )
    if attention == MEAN:
        if head is not None:
            raise RegardError(
                f"the mean is over all heads; name an attention to see its head {head}"
            )
        return torch.stack([trace[f"{name}.weights"].mean(0) for name in crossing]).mean(0)
    if attention not in crossing:
        raise UnknownName(
            f"unknown cross-attention {attention!r}; {suggestion(attention, [*crossing, MEAN])}"
        )
    weights = trace[f"{attention}.weights"]
    if head is None:
        return weights.mean(0)
    crossing[attention].check_head(head)
    return weights[head]
