"""Backend `sdpa`: torch's fused scaled_dot_product_attention.

A query × key map is built only for a bias or a mask that torch's kernel does not know.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.cache import Padded
from regard.attention.masks import Causal, Everything, Mask, PaddingMask, everything
from regard.attention.reference import Parts
from regard.axes import Contexts, Offset, Site


def cannot(
    parts: Parts,
    example: Tensor | None = None,
    mask: Mask = everything,
    offset: Offset = 0,
    *others: Tensor,
) -> str | None:
    """Why sdpa cannot run this attention, or None."""
    if not parts.score.is_dot:
        return f"it supports dot-product scores only, not {type(parts.score).__name__}"
    if not parts.normaliser.is_softmax:
        return f"it normalises with softmax only, not {type(parts.normaliser).__name__}"
    if parts.bias is not None and not parts.bias.is_additive:
        return f"it supports additive biases only, not {type(parts.bias).__name__}"
    return None


def run(
    parts: Parts, queries: Padded, keys: Padded, values: Padded, mask: Mask, offset: Offset
) -> Contexts:
    """Run the attention with torch's kernel."""
    q, k, scale = parts.score.as_dot(queries.tensor, keys.tensor)
    v, out = values.tensor, values.tensor.shape[-1]
    width = max(q.shape[-1], out)
    q, k, v = (F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q, k, v))
    is_causal = parts.bias is None and mask == Causal() and _aligned(queries, keys, offset)
    allowed = None if is_causal else _attention_mask(parts, queries, keys, mask, offset)
    empty = None
    if allowed is not None and allowed.is_cuda:
        # torch's kernels disagree about a fully masked row: let it attend to all, zero it later.
        seen = allowed if allowed.dtype == torch.bool else allowed > float("-inf")
        empty = ~seen.any(-1, keepdim=True)
        allowed = allowed | empty if allowed.dtype == torch.bool else allowed.masked_fill(empty, 0)
    context = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=allowed,
        dropout_p=parts.dropout.p if parts.dropout.training else 0.0,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )[..., :out]
    return context if empty is None else context.masked_fill(empty, 0)


def _aligned(queries: Padded, keys: Padded, offset: Offset) -> bool:
    """Whether query i and key i have the same position in every row.

    The causal mask then hides the padding as well, because padding comes last.
    """
    same = queries.lengths is keys.lengths and queries.tensor.shape[2] == keys.tensor.shape[2]
    return same and isinstance(offset, int) and offset == 0


def _attention_mask(
    parts: Parts, queries: Padded, keys: Padded, mask: Mask, offset: Offset
) -> Tensor | None:
    """`attn_mask` for torch in the smallest shape that broadcasts; None: nothing to add or hide."""
    q, k = queries.tensor, keys.tensor
    last = isinstance(offset, int) and q.shape[2] == 1 and offset == k.shape[2] - 1
    if mask == Causal() and last and keys.lengths is None:
        mask = Everything()  # one query after all keys: a decoding step
    if keys.lengths is not None:
        mask = mask & PaddingMask(keys.lengths)
    if parts.bias is None and mask == Everything():
        return None
    site = Site.grid(q, k, offset)
    allowed = mask(site)
    if parts.bias is None:
        return allowed.expand(-1, -1, -1, k.shape[2])
    bias = parts.bias.bind(q)(q.new_zeros(()), site)
    # torch misreads a float32 mask with float64 queries, and refuses the opposite.
    dtype = torch.promote_types(bias.dtype, q.dtype)
    bias = bias.to(torch.float32 if dtype == torch.float64 != q.dtype else dtype)
    return torch.where(allowed, bias, float("-inf"))
