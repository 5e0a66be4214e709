"""Padded: dense rows of which only the first `lengths` are real. Used in backends and caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.ragged import Layout, Ragged


@dataclass(frozen=True, eq=False)
class Padded:
    """A dense (batch, head, time, dim) tensor and each row's real length; None: no padding."""

    tensor: Float[Tensor, "batch head time dim"]
    lengths: Int[Tensor, " batch"] | None = None


# Ragged (token, head, dim), padded rows, or dense (batch, head, time, dim).
Sequences = Ragged | Padded | Tensor


def pad(sequences: Sequences) -> Padded:
    """Sequences as dense rows. Free for dense tensors and for ragged batches of equal lengths."""
    if isinstance(sequences, Padded):
        return sequences
    if isinstance(sequences, Tensor):
        return Padded(sequences)
    values, layout = sequences.values, sequences.layout
    size = len(layout) * layout.longest
    table = values if layout.is_uniform else _scatter(values, layout.padded_index, size)
    dense = table.view(len(layout), layout.longest, *values.shape[1:]).transpose(1, 2)
    return Padded(dense, None if layout.is_uniform else layout.lengths)


def unpad(dense: Float[Tensor, "batch head time dim"], layout: Layout) -> Ragged:
    """Dense rows as a ragged batch; the padding is dropped."""
    table = dense.transpose(1, 2).flatten(0, 1)
    return Ragged.from_layout(
        table if layout.is_uniform else _gather(table, layout.padded_index), layout
    )


class _Scatter(torch.autograd.Function):
    """Copy tokens to their slots in a table of zeros.

    Each slot is written once, so the gradient is a plain gather. Autograd's own gradient would add
    into the table, many times slower on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, slots: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(slots)
        return tokens.new_zeros(size, *tokens.shape[1:]).index_copy_(0, slots, tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        return _gather(gradients[0], slots), None, None


class _Gather(torch.autograd.Function):
    """Read tokens from their slots: the inverse of `_Scatter`, and its gradient."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.size = len(table)
        return table.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (slots,) = ctx.saved_tensors
        return _scatter(gradients[0], slots, ctx.size), None


_scatter: Callable[[Tensor, Tensor, int], Tensor] = _Scatter.apply
_gather: Callable[[Tensor, Tensor], Tensor] = _Gather.apply
