"""Padded: dense rows of which only the first `lengths` are real. Lives inside backends and caches, nowhere else."""

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
    """A dense (batch, head, time, dim) tensor and how much of each row is real; no lengths = all of it."""

    tensor: Float[Tensor, "batch head time dim"]
    lengths: Int[Tensor, " batch"] | None = None


Sequences = Ragged | Padded | Tensor  # packed (token, head, dim); part-filled rows; dense (batch, head, time, dim)


def pad(sequences: Sequences) -> Padded:
    """Any sequences as dense rows. Free for what is dense already, and for ragged batches of one length."""
    if isinstance(sequences, Padded):
        return sequences
    if isinstance(sequences, Tensor):
        return Padded(sequences)
    values, layout = sequences.values, sequences.layout
    table = values if layout.is_uniform else _spread(values, layout.padded_index, len(layout) * layout.longest)
    dense = table.view(len(layout), layout.longest, *values.shape[1:]).transpose(1, 2)
    return Padded(dense, None if layout.is_uniform else layout.lengths)


def unpad(dense: Float[Tensor, "batch head time dim"], layout: Layout) -> Ragged:
    """Dense rows back as a ragged batch; what stood in the padding is dropped."""
    table = dense.transpose(1, 2).flatten(0, 1)
    return Ragged.from_layout(table if layout.is_uniform else _collect(table, layout.padded_index), layout)


class _Spread(torch.autograd.Function):
    """Tokens to their slots in a table of zeros. Each slot is written once, so the gradient is a plain look-up
    (autograd's own would add into the table, many times slower on a CPU)."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, slots: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(slots)
        return tokens.new_zeros(size, *tokens.shape[1:]).index_copy_(0, slots, tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        return _collect(gradients[0], slots), None, None


class _Collect(torch.autograd.Function):
    """Tokens back from their slots: the reverse of `_Spread`, and its gradient."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.size = len(table)
        return table.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (slots,) = ctx.saved_tensors
        return _spread(gradients[0], slots, ctx.size), None


_spread: Callable[[Tensor, Tensor, int], Tensor] = _Spread.apply
_collect: Callable[[Tensor, Tensor], Tensor] = _Collect.apply
