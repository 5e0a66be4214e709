"""The condition a model is in: its mode, and whether its weights are numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """The model without dropout, whatever mode it was left in; after it, as it was."""
    were = [part for part in model.modules() if part.training]
    try:
        for part in were:
            part.training = False
        yield
    finally:
        for part in were:
            part.training = True


def finite(model: nn.Module) -> bool:
    """Whether all weights are numbers."""
    return bool(torch.stack([weight.isfinite().all() for weight in model.parameters()]).all())
