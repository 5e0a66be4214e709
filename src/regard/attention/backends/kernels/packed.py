"""Packed: sequences as the kernels read them: all rows in one tensor, where each sequence starts, how long it is.

A ragged batch is packed as it stands; dense rows become one tensor without a copy where their memory allows it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.padded import Padded, Sequences
from regard.ragged import Ragged


class Packed(NamedTuple):
    """Rows (token, head, dim), of which sequence i holds `lengths[i]` from `starts[i]` on."""

    rows: Float[Tensor, "token head dim"]
    starts: Int[Tensor, " ..."]
    lengths: Int[Tensor, " batch"]
    longest: int
    whole: bool  # whether every row belongs to a sequence

    @classmethod
    def of(cls, sequences: Sequences) -> Packed:
        """Any sequences, packed."""
        if isinstance(sequences, Ragged):
            rows = sequences.values
            return cls(_readable(rows), sequences.offsets, sequences.lengths, sequences.longest, True)
        tensor, lengths = (sequences.tensor, sequences.lengths) if isinstance(sequences, Padded) else (sequences, None)
        batch, _, time, _ = tensor.shape
        starts = torch.arange(batch, device=tensor.device) * time
        whole = lengths is None
        if lengths is None:
            lengths = torch.full((batch,), time, device=tensor.device)
        return cls(_readable(tensor.transpose(1, 2).flatten(0, 1)), starts, lengths, time, whole)

    def cut(self, stop: int | Tensor | None) -> Packed:
        """Each sequence ended at `stop`, where it is longer."""
        return self if stop is None else self._replace(lengths=self.lengths.clamp(max=stop), whole=False)

    def room(self, heads: int, dim: int) -> Tensor:
        """Memory for a gradient of these rows; rows of no sequence have none."""
        make = self.rows.new_empty if self.whole else self.rows.new_zeros
        return make(len(self.rows), heads, dim)


def _readable(rows: Tensor) -> Tensor:
    return rows if rows.stride(-1) == 1 else rows.contiguous()
