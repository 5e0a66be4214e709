"""Ragged: a batch of sequences of different lengths, concatenated without padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from regard.errors import ShapeError


class Layout:
    """Start and end of each sequence in a batch, with derived indices that are computed once."""

    def __init__(self, offsets: Int[Tensor, " ends"], longest: int, tokens: int) -> None:
        self.offsets = offsets
        self.longest = longest
        self.tokens = tokens

    def __len__(self) -> int:
        return self.offsets.size(0) - 1  # five times as fast as len() of a tensor

    @property
    def is_uniform(self) -> bool:
        """Whether all sequences have the same length, so that a dense table has no padding."""
        return self.tokens == len(self) * self.longest

    @cached_property
    def lengths(self) -> Int[Tensor, " batch"]:
        """The number of tokens of each sequence."""
        return self._reusable(self.offsets.diff)

    @cached_property
    def rows(self) -> Int[Tensor, " token"]:
        """The index of the sequence each token belongs to."""
        indices = self._reusable(lambda: torch.arange(len(self), device=self.offsets.device))
        return self._reusable(
            lambda: indices.repeat_interleave(self.lengths, output_size=self.tokens)
        )

    @cached_property
    def positions(self) -> Int[Tensor, " token"]:
        """The position of each token in its sequence, from 0."""
        return self._reusable(
            lambda: torch.arange(self.tokens, device=self.offsets.device) - self.offsets[self.rows]
        )

    @cached_property
    def padded_index(self) -> Int[Tensor, " token"]:
        """The index of each token in the flattened (batch × longest) table, for padding."""
        return self._reusable(lambda: self.rows * self.longest + self.positions)

    def _reusable(self, compute: Callable[[], Tensor]) -> Tensor:
        """Compute a cached tensor outside inference mode: a later training step may use it."""
        if self.offsets.is_inference() or not torch.is_inference_mode_enabled():
            return compute()
        with torch.inference_mode(False):
            return compute()


class Ragged:
    """The tokens of all sequences, concatenated (`values`), and where each sequence starts
    (`offsets`: one entry more than there are sequences).

    `longest` is a Python int, so reading it needs no device synchronisation. Empty sequences are
    valid.
    """

    def __init__(self, values: Shaped[Tensor, "token ..."], offsets: Int[Tensor, " ends"]) -> None:
        self.values = values
        self.layout = Layout(offsets, _longest(offsets, len(values)), len(values))

    @classmethod
    def of(cls, sequences: Iterable[Tensor]) -> Ragged:
        """Concatenate sequences of any lengths; `Ragged.of([a, b]).unbind()` returns them."""
        sequences = list(sequences)
        if not sequences:
            raise ShapeError("a batch needs at least one sequence (it may be empty); got none")
        for one in sequences:
            if not isinstance(one, Tensor) or not one.ndim:
                raise ShapeError(f"a sequence must be a tensor with time first; got {one!r:.80}")
        if len(shapes := {tuple(one.shape[1:]) for one in sequences}) > 1:
            found = " and ".join(map(str, sorted(shapes)))
            raise ShapeError(f"all tokens of a batch must have the same shape; got {found}")
        ends = torch.tensor([0, *(len(sequence) for sequence in sequences)]).cumsum(0)
        return cls(torch.cat(list(sequences)), ends.to(sequences[0].device))

    @classmethod
    def from_layout(cls, values: Shaped[Tensor, "token ..."], layout: Layout) -> Ragged:
        """Values in a valid layout, which is shared and not checked again."""
        if len(values) != layout.tokens:
            raise ShapeError(f"this batch has {layout.tokens} tokens; got values for {len(values)}")
        ragged = cls.__new__(cls)
        ragged.values = values
        ragged.layout = layout
        return ragged

    @classmethod
    def uniform(cls, values: Shaped[Tensor, "token ..."], batch: int) -> Ragged:
        """`batch` sequences of the same length."""
        longest = len(values) // max(batch, 1)
        offsets = torch.arange(batch + 1, device=values.device) * longest
        return cls.from_layout(values, Layout(offsets, longest, batch * longest))

    def like(self, values: Shaped[Tensor, "token ..."]) -> Ragged:
        """Other values in the same layout."""
        return Ragged.from_layout(values, self.layout)

    def twice(self) -> Ragged:
        """The batch repeated: all sequences, then all of them again."""
        layout, tokens = self.layout, self.layout.tokens
        offsets = torch.cat([layout.offsets, layout.offsets[1:] + tokens])
        values = torch.cat([self.values, self.values])
        return Ragged.from_layout(values, Layout(offsets, layout.longest, 2 * tokens))

    def same_lengths(self, other: Ragged) -> bool:
        """Whether both batches have sequences of the same lengths."""
        return self.layout is other.layout or torch.equal(self.offsets, other.offsets)

    def to(self, device: torch.device | str) -> Ragged:
        """The same batch on another device."""
        layout = Layout(self.offsets.to(device), self.longest, self.layout.tokens)
        return Ragged.from_layout(self.values.to(device), layout)

    def unbind(self) -> list[Tensor]:
        """The sequences as separate tensors."""
        return list(self.values.split(self.lengths.tolist()))

    def __len__(self) -> int:
        return len(self.layout)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __repr__(self) -> str:
        return f"Ragged({len(self)} sequences, {self.layout.tokens} tokens, longest {self.longest})"

    @property
    def offsets(self) -> Int[Tensor, " ends"]:
        """The start of each sequence; the last entry is the end of the last sequence."""
        return self.layout.offsets

    @property
    def longest(self) -> int:
        """The length of the longest sequence."""
        return self.layout.longest

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """The number of tokens of each sequence."""
        return self.layout.lengths

    @property
    def positions(self) -> Int[Tensor, " token"]:
        """The position of each token in its sequence, from 0."""
        return self.layout.positions


def _longest(offsets: Int[Tensor, " ends"], tokens: int) -> int:
    """The length of the longest sequence; raises if the offsets are invalid."""
    is_index = isinstance(offsets, Tensor) and offsets.ndim == 1
    if not is_index or offsets.is_floating_point() or offsets.is_complex():
        raise ShapeError(f"offsets must be a one-dimensional integer tensor; got {offsets!r:.80}")
    if len(offsets) == 0 or offsets[0] != 0:
        raise ShapeError(f"offsets must start with 0; got {offsets[:1].tolist() or 'no offsets'}")
    lengths = offsets.diff()
    if (lengths < 0).any():
        i = int((lengths < 0).nonzero()[0])
        raise ShapeError(
            f"offsets must not decrease: offsets[{i}] is {offsets[i]}, offsets[{i + 1}] is "
            f"{offsets[i + 1]}"
        )
    if offsets[-1] != tokens:
        raise ShapeError(f"the last offset must be the token count, {tokens}; got {offsets[-1]}")
    return int(lengths.max()) if len(lengths) else 0
