"""AdamW (Loshchilov & Hutter 2019) by torch's fused kernel, without torch's compiler.

The methods of `torch.optim.Optimizer` import torch's compiler stack on first use, which takes
seconds at the start of every training, and nothing here is compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class EagerOptimizer(torch.optim.Optimizer):
    """An optimizer whose methods do not import torch's compiler stack."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class FusedAdamW(EagerOptimizer):
    """`torch.optim.AdamW(fused=True)`: the same kernel, the same state."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        # "fused" makes `load_state_dict` keep the step counts on the device of the weights
        own = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "fused": True}
        super().__init__(params, {"lr": lr, **own})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for dtype in dict.fromkeys(weight.dtype for weight in weights):
                self._update([weight for weight in weights if weight.dtype == dtype], group)

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {
                    "step": torch.zeros((), dtype=torch.float32, device=weight.device),
                    "exp_avg": torch.zeros_like(weight, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(weight, memory_format=torch.preserve_format),
                }
        states = [self.state[weight] for weight in weights]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            weights,
            [weight.grad for weight in weights if weight.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )
