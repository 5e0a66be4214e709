"""Muon: momentum made orthogonal, matrix by matrix (Jordan et al. 2024); everything else learns by AdamW.

torch.optim.Muon computes in bfloat16, which CPUs emulate; this one computes in the weights' own precision there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# Drives singular values of (0, 1] towards 1, fast rather than exactly. The authors take five rounds; on small models
# the last two bring less than the steps they cost.
_QUINTIC = (3.4445, -4.7750, 2.0315)
ROUNDS = 3


class Muon(torch.optim.Optimizer):
    """Momentum, then the nearest (nearly) orthogonal matrix, sized like an AdamW update (Liu et al. 2025)."""

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, *, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient; those of one shape together, for most are small."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike.setdefault(matrix.shape, []).append(matrix)
            for matrices in alike.values():
                self._update(matrices, group["lr"], group["momentum"], group["weight_decay"])

    def _update(self, matrices: list[Tensor], rate: float | Tensor, momentum: float, decay: float) -> None:
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        smooth = [self.state[matrix]["momentum"] for matrix in matrices]
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        torch._foreach_lerp_(smooth, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, smooth, momentum)
        updates, size = orthogonal(torch.stack(ahead)), -rate * 0.2 * math.sqrt(max(matrices[0].shape))
        torch._foreach_mul_(matrices, 1 - rate * decay)
        if isinstance(size, Tensor):
            torch._foreach_add_(matrices, (updates * size).unbind())
        else:  # one pass less
            torch._foreach_add_(matrices, updates.unbind(), alpha=size)


def orthogonal(matrices: Float[Tensor, "many row column"]) -> Float[Tensor, "many row column"]:
    """About U Vᵀ for each matrix U S Vᵀ, by a few Newton–Schulz rounds."""
    a, b, c = _QUINTIC
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    if x.is_cuda:  # a direction does not need more, and tensor cores are many times faster with it
        x = x.bfloat16()
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).to(matrices.dtype)
