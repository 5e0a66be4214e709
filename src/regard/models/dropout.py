"""Dropout that does not cost more than the work around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """Zeroes a share of the numbers in training and scales up the rest (Srivastava et al. 2014).

    On a CPU torch draws 32 random bits for each number, which takes longer than a matrix product. One byte is enough:
    the share is rounded to 256ths, and the scale is that of the rounded share, so the mean stays exact.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.bytes = round(share * 256)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        if x.is_cuda:
            return F.dropout(x, self.share)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.bytes
        return _kept(x, kept, 256 / (256 - self.bytes))

    def extra_repr(self) -> str:
        return str(self.share)


class _Kept(torch.autograd.Function):
    """The kept numbers, scaled; the rest zero. Saves a byte a number for the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return (x * scale).masked_fill_(~kept, 0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return (gradients[0] * ctx.scale).masked_fill_(~kept, 0), None, None


_kept: Callable[[Tensor, Tensor, float], Tensor] = _Kept.apply
