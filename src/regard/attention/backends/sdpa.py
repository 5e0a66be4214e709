"""Backend `sdpa`: torch's fused scaled_dot_product_attention, fed so that it can stay fused.

A query × key map is built only when a bias or an unusual mask asks for one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.masks import Causal, Everything, Inside, Mask, everything
from regard.attention.padded import Padded
from regard.attention.reference import Parts
from regard.axes import Contexts, Offset, Site


def cannot(
    parts: Parts, example: Tensor | None = None, mask: Mask = everything, offset: Offset = 0, *others: Tensor
) -> str | None:
    """Why this attention is beyond sdpa."""
    if not parts.score.is_dot:
        return f"it compares by dot products only, and {type(parts.score).__name__} is none"
    if not parts.normaliser.is_softmax:
        return f"it normalises with softmax only, not {type(parts.normaliser).__name__}"
    return None


def run(parts: Parts, queries: Padded, keys: Padded, values: Padded, mask: Mask, offset: Offset) -> Contexts:
    """The attention of the reference, through torch's kernel."""
    q, k, scale = parts.score.as_dot(queries.tensor, keys.tensor)
    v, out = values.tensor, values.tensor.shape[-1]
    width = max(q.shape[-1], out)
    q, k, v = (F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q, k, v))
    triangle = parts.bias is None and mask == Causal() and _aligned(queries, keys, offset)
    allowed = None if triangle else _map(parts, queries, keys, mask, offset)
    empty = None
    if allowed is not None and allowed.is_cuda:
        # Kernels disagree about a row that may see nothing. It sees all here, and is set to zero after.
        seen = (allowed if allowed.dtype == torch.bool else allowed > float("-inf")).any(-1, keepdim=True)
        allowed = (allowed | ~seen) if allowed.dtype == torch.bool else allowed.masked_fill(~seen, 0)
        empty = ~seen
    context = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=allowed,
        dropout_p=parts.dropout.p if parts.dropout.training else 0.0,
        is_causal=triangle,
        scale=scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )[..., :out]
    return context if empty is None else context.masked_fill(empty, 0)


def _aligned(queries: Padded, keys: Padded, offset: Offset) -> bool:
    """Whether query i stands at key i in every row. Then causality hides the padding too: it comes after."""
    same = queries.lengths is keys.lengths and queries.tensor.shape[2] == keys.tensor.shape[2]
    return same and isinstance(offset, int) and offset == 0


def _map(parts: Parts, queries: Padded, keys: Padded, mask: Mask, offset: Offset) -> Tensor | None:
    """What must be added to or hidden from the scores, in the smallest shape that says it; None = nothing."""
    q, k = queries.tensor, keys.tensor
    last = isinstance(offset, int) and q.shape[2] == 1 and offset == k.shape[2] - 1
    if mask == Causal() and last and keys.lengths is None:
        mask = Everything()  # one query after all keys: the step of a decoder
    if keys.lengths is not None:
        mask = mask & Inside(keys.lengths)
    if parts.bias is None and mask == Everything():
        return None
    site = Site.grid(q, k, offset)
    allowed = mask(site)
    if parts.bias is None:
        return allowed.expand(-1, -1, -1, k.shape[2])
    bias = parts.bias.bind(q)(q.new_zeros(()), site)
    kind = torch.promote_types(bias.dtype, q.dtype)  # torch misreads a float32 map beside float64 queries,
    bias = bias.to(torch.float32 if kind == torch.float64 != q.dtype else kind)  # and refuses the opposite
    return torch.where(allowed, bias, float("-inf"))
