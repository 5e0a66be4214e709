"""Evaluation mode, and whether all weights are finite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode (no dropout); restores each module's mode afterwards."""
    modules = [part for part in model.modules() if part.training]
    try:
        for part in modules:
            part.training = False
        yield
    finally:
        for part in modules:
            part.training = True


def is_finite(model: nn.Module) -> bool:
    """Whether all weights are finite."""
    return bool(torch.stack([weight.isfinite().all() for weight in model.parameters()]).all())
