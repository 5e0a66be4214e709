"""Dropout that does not cost more than the work around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """Zeroes a share of the numbers in training and scales up the rest (Srivastava et al. 2014).

    On a CPU torch draws 32 random bits for each number, which takes longer than a matrix product.
    One byte is enough: the share is rounded to 256ths, and the scale is that of the rounded share,
    so the mean stays exact.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.bytes = min(255, max(1, round(share * 256))) if share else 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        return F.dropout(x, self.share) if x.is_cuda else x * self._scales(x)

    def _scales(self, x: Tensor) -> Tensor:
        """What each number is multiplied by: 0 or the scale. As floats, for torch's loops over
        bools are slow.
        """
        drawn = (
            torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
            .random_(-(2**63), None)
            .view(torch.uint8)
        )
        kept = torch.ge(drawn, self.bytes, out=torch.empty_like(drawn))[: x.numel()].view(x.shape)
        return kept.to(x.dtype).mul_(256 / (256 - self.bytes))

    def extra_repr(self) -> str:
        return str(self.share)
