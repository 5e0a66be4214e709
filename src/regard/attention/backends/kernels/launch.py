"""Launch: packed sequences, tile sizes and other arguments of kernel launches, and their sums."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from regard.attention.cache import Padded, Sequences
from regard.kernels import LOG2E as LOG2E
from regard.kernels import tile_size as tile_size
from regard.ragged import Ragged

MAX_TILE = 128  # tokens of a sentence that fits one tile
_TILE_BYTES = 128 * 64 * 2  # bytes; four tiles and their products must fit in shared memory


class Bounds(NamedTuple):
    """The mask's bounds of key − query (inclusive), and the position of the first query."""

    low: int | None
    high: int | None
    first: int

    @classmethod
    def of(cls, low: int | None, high: int | None, first: int) -> Bounds:
        """Bounds relative to rows: the first query is row 0 whatever its position."""
        return cls(
            None if low is None else low + first, None if high is None else high + first, first
        )


class Packed(NamedTuple):
    """Sequences as kernels read them: rows (token, head, dim), sequence i at `starts[i]`.

    A ragged batch is packed already; dense rows are reshaped without a copy where strides allow.
    """

    rows: Float[Tensor, "token head dim"]
    starts: Int[Tensor, " ..."]
    lengths: Int[Tensor, " batch"]
    longest: int
    covers_rows: bool  # whether every row belongs to some sequence

    @classmethod
    def of(cls, sequences: Sequences) -> Packed:
        """Any sequences as packed rows."""
        if isinstance(sequences, Ragged):
            rows = sequences.values
            return cls(
                _unit_stride(rows), sequences.offsets, sequences.lengths, sequences.longest, True
            )
        padded = sequences if isinstance(sequences, Padded) else Padded(sequences)
        tensor, lengths = padded.tensor, padded.lengths
        batch, _, time, _ = tensor.shape
        starts = torch.arange(batch, device=tensor.device) * time
        covers_rows = lengths is None
        if lengths is None:
            lengths = torch.full((batch,), time, device=tensor.device)
        return cls(
            _unit_stride(tensor.transpose(1, 2).flatten(0, 1)), starts, lengths, time, covers_rows
        )

    def cut(self, stop: int | Tensor | None) -> Packed:
        """Each sequence truncated to `stop` rows."""
        if stop is None:
            return self
        return self._replace(lengths=self.lengths.clamp(max=stop), covers_rows=False)

    def empty_gradient(self, heads: int, dim: int) -> Tensor:
        """Memory for a gradient of these rows; zeros where rows belong to no sequence."""
        make = self.rows.new_empty if self.covers_rows else self.rows.new_zeros
        return make(len(self.rows), heads, dim)


class PairRotation(NamedTuple):
    """Cosines and sines (position, pair), and the strides between pairs and within a pair."""

    cos_sin: tuple[Tensor, Tensor]
    strides: tuple[int, int]

    def starting_at(self, first: int) -> PairRotation:
        """The tables from position `first` on."""
        cos, sin = self.cos_sin
        return self._replace(cos_sin=(cos[first:], sin[first:])) if first else self


def fits_one_tile(longest: int, *rows: Tensor, distances: int = 0) -> bool:
    """Whether sentences up to this length fit one tile, with a tile of `distances` vectors."""
    rows_needed = max(tile_size(longest), distances)
    small_enough = all(
        rows_needed * tile_size(x.shape[-1]) * x.element_size() <= _TILE_BYTES for x in rows
    )
    return small_enough and max(longest, distances) <= MAX_TILE


def distances_in_tile(max_distance: int, longest: int, first: int) -> int:
    """The largest distance up to `max_distance` that occurs in a tile of such sentences."""
    return min(max_distance, tile_size(longest) - 1 + abs(first))


def precision(tensor: Tensor) -> str:
    """The precision of matrix products: full float32, as in torch by default."""
    return "ieee" if tensor.dtype == torch.float32 else "tf32"


def sum_groups(gradients: Tensor, like: Tensor) -> Tensor:
    """Gradients of every query head, summed over the heads that share a key head."""
    groups = like.shape[1]
    if gradients.shape[1] == groups:
        return gradients
    return gradients.unflatten(1, (groups, -1)).sum(2)


def sum_diagonals(tiles: Tensor) -> Tensor:
    """Sums of square tiles along diagonals: 2 · size − 1 sums, from column − row = 1 − size on."""
    size = tiles.shape[-1]
    skewed = F.pad(tiles.flip(-2), (0, size)).flatten(-2)[..., : size * (2 * size - 1)]
    return skewed.unflatten(-1, (size, 2 * size - 1)).sum(-2)


def _unit_stride(rows: Tensor) -> Tensor:
    return rows if rows.stride(-1) == 1 else rows.contiguous()
