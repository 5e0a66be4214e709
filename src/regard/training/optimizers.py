"""Optimizers of a run: Muon (Jordan et al. 2024) for matrices, AdamW for all other weights.

torch.optim.Muon computes in bfloat16, which CPUs emulate; ours computes in the weights' precision
there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.positions import Distance
from regard.training.distributed import gather_full, shard_like
from regard.training.fused_adamw import EagerOptimizer, FusedAdamW

# Moves singular values of (0, 1] towards 1, fast rather than exactly. The authors use five rounds;
# on small models the last two improve less than the steps they cost.
_QUINTIC = (3.4445, -4.7750, 2.0315)
ROUNDS = 3


class Muon(EagerOptimizer):
    """Momentum replaced by the nearest (nearly) orthogonal matrix, scaled like an AdamW update
    (Liu et al. 2025)."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all matrices that have a gradient, one batch per shape since most are small."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
            for matrices in by_shape.values():
                self._update(matrices, group["lr"], group["momentum"], group["weight_decay"])

    def _update(
        self, matrices: list[Tensor], rate: float | Tensor, momentum: float, decay: float
    ) -> None:
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        averages = [self.state[matrix]["momentum"] for matrix in matrices]
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        torch._foreach_lerp_(gradients, averages, momentum)  # Nesterov; gradients are used up here
        updates = orthogonalize(torch.stack(gradients))
        size = -rate * 0.2 * math.sqrt(max(matrices[0].shape))
        torch._foreach_mul_(matrices, 1 - rate * decay)
        if isinstance(size, Tensor):
            torch._foreach_add_(matrices, (updates * size).unbind())
        else:  # saves one pass
            torch._foreach_add_(matrices, updates.unbind(), alpha=size)


def orthogonalize(
    matrices: Float[Tensor, "matrix row column"],
) -> Float[Tensor, "matrix row column"]:
    """About U Vᵀ for each matrix U S Vᵀ, by a few Newton–Schulz rounds."""
    a, b, c = _QUINTIC
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    if x.is_cuda:  # directions need no more precision, and tensor cores are many times faster
        x = x.bfloat16()
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).to(matrices.dtype)


def build_optimizers(
    model: nn.Module, name: str, *, rate: float | Tensor, decay: float
) -> list[torch.optim.Optimizer]:
    """Muon for the inner matrices and AdamW for all else, or AdamW for everything.

    A rate in a GPU tensor may change after a step was captured as a CUDA graph.
    """
    distances = [m for m in model.modules() if isinstance(m, Distance)]
    scaled = {m.table: m.scale for m in distances if m.table.requires_grad}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for label, parameter in model.named_parameters():
        if not parameter.requires_grad:  # frozen
            continue
        inner = name == "muon" and parameter.ndim == 2 and not label.endswith("table")
        (matrices if inner else others).append(parameter)
    decayed = [p for p in others if p.ndim >= 2 and p not in scaled]
    plain = [p for p in others if p.ndim < 2]  # norms and biases do not decay
    groups = [
        {"params": decayed, "weight_decay": decay, "rate_factor": 1.0},
        {"params": plain, "weight_decay": 0.0, "rate_factor": 1.0},
    ]
    # A table divided by √d before use would learn and decay √d times more slowly than others.
    for scale in sorted(set(scaled.values())):
        tables = [table for table in scaled if scaled[table] == scale]
        group = {"params": tables, "weight_decay": decay * scale, "rate_factor": 1 / scale}
        groups.append({**group, "lr": rate / scale})
    adamw = FusedAdamW(groups, lr=rate, betas=(0.9, 0.98), weight_decay=decay)
    if not matrices:
        return [adamw]
    muon = [{"params": matrices, "rate_factor": 1.0}]
    return [adamw, Muon(muon, lr=rate, weight_decay=decay)]


def set_rate(optimizers: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """Set the learning rate of every group. A rate in a GPU tensor is written in place, once."""
    written: set[int] = set()
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        current = group["lr"]
        if not isinstance(current, Tensor):
            group["lr"] = rate * group["rate_factor"]
        elif id(current) not in written:
            current.fill_(rate * group["rate_factor"])
            written.add(id(current))


def optimizer_states(optimizers: Sequence[torch.optim.Optimizer]) -> list[dict[Any, Any]]:
    """The state of each optimizer with full tensors; every process must call it."""
    return [gather_full(optimizer.state_dict()["state"]) for optimizer in optimizers]


def restore_optimizers(
    optimizers: Sequence[torch.optim.Optimizer], states: Sequence[dict[Any, Any]]
) -> None:
    """Load what `optimizer_states` returned, sharded as the weights are."""
    for optimizer, state in zip(optimizers, states, strict=True):
        full = optimizer.state_dict()
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        full["state"] = {
            int(key): {name: shard_like(value, weights[int(key)]) for name, value in own.items()}
            for key, own in state.items()
        }
        rates = [group["lr"] for group in optimizer.param_groups]
        optimizer.load_state_dict(full)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate  # loading replaced the tensor that captured steps read
