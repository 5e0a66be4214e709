"""Ragged: a batch of sequences end to end, with no padding. The one shape in which data travels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from regard.errors import ShapeError


class Layout:
    """Where each sequence of a batch starts and ends, and what follows from it, each computed once."""

    def __init__(self, offsets: Int[Tensor, " ends"], longest: int, tokens: int) -> None:
        self.offsets, self.longest, self.tokens = offsets, longest, tokens

    def __len__(self) -> int:
        return self.offsets.size(0) - 1  # len() of a tensor takes five times as long

    @property
    def even(self) -> bool:
        """Whether every sequence is as long as the longest, so that a dense table has no padding."""
        return self.tokens == len(self) * self.longest

    @cached_property
    def lengths(self) -> Int[Tensor, " batch"]:
        """How many tokens each sequence has."""
        return self._kept(self.offsets.diff)

    @cached_property
    def rows(self) -> Int[Tensor, " token"]:
        """Which sequence each token belongs to."""
        sequences = self._kept(lambda: torch.arange(len(self), device=self.offsets.device))
        return self._kept(lambda: sequences.repeat_interleave(self.lengths, output_size=self.tokens))

    @cached_property
    def positions(self) -> Int[Tensor, " token"]:
        """Each token's place in its own sequence, from 0."""
        return self._kept(lambda: torch.arange(self.tokens, device=self.offsets.device) - self.offsets[self.rows])

    @cached_property
    def slots(self) -> Int[Tensor, " token"]:
        """Each token's place in the flattened (batch × longest) table, for a backend that must pad."""
        return self._kept(lambda: self.rows * self.longest + self.positions)

    def _kept(self, computed: Callable[[], Tensor]) -> Tensor:
        """What is kept of a lasting batch must last, too: who meets it next may be learning."""
        if self.offsets.is_inference() or not torch.is_inference_mode_enabled():
            return computed()
        with torch.inference_mode(False):
            return computed()


class Ragged:
    """All tokens of all sequences end to end (`values`), and where each sequence starts (`offsets`: one more than
    there are sequences). `longest` lives on the host, so that nothing waits for a GPU. Empty sequences are allowed.
    """

    def __init__(self, values: Shaped[Tensor, "token ..."], offsets: Int[Tensor, " ends"]) -> None:
        self.values = values
        self.layout = Layout(offsets, _longest(offsets, len(values)), len(values))

    @classmethod
    def of(cls, sequences: Iterable[Tensor]) -> Ragged:
        """Join sequences of any lengths. `Ragged.of([a, b]).unbind()` gives them back."""
        sequences = list(sequences)
        if not sequences:
            raise ShapeError("a batch needs at least one sequence (it may be empty); got none")
        for one in sequences:
            if not isinstance(one, Tensor) or not one.ndim:
                raise ShapeError(f"sequences are tensors, time first; got {one!r:.80}")
        if len(shapes := {tuple(one.shape[1:]) for one in sequences}) > 1:
            raise ShapeError(f"a token has one shape in a batch; got {' and '.join(map(str, sorted(shapes)))}")
        ends = torch.tensor([0, *(len(sequence) for sequence in sequences)]).cumsum(0)
        return cls(torch.cat(list(sequences)), ends.to(sequences[0].device))

    @classmethod
    def arranged(cls, values: Shaped[Tensor, "token ..."], layout: Layout) -> Ragged:
        """Values in a layout that is known to be good; the layout is shared, not checked or computed again."""
        if len(values) != layout.tokens:
            raise ShapeError(f"this batch has {layout.tokens} tokens; got values for {len(values)}")
        ragged = cls.__new__(cls)
        ragged.values, ragged.layout = values, layout
        return ragged

    @classmethod
    def even(cls, values: Shaped[Tensor, "token ..."], batch: int) -> Ragged:
        """`batch` sequences of one length."""
        longest = len(values) // max(batch, 1)
        offsets = torch.arange(batch + 1, device=values.device) * longest
        return cls.arranged(values, Layout(offsets, longest, batch * longest))

    def like(self, values: Shaped[Tensor, "token ..."]) -> Ragged:
        """The same sequences carrying other values."""
        return Ragged.arranged(values, self.layout)

    def twice(self) -> Ragged:
        """All sequences, and then all of them again."""
        layout, tokens = self.layout, self.layout.tokens
        offsets = torch.cat([layout.offsets, layout.offsets[1:] + tokens])
        values = torch.cat([self.values, self.values])
        return Ragged.arranged(values, Layout(offsets, layout.longest, 2 * tokens))

    def same_cut(self, other: Ragged) -> bool:
        """Whether the other batch has sequences of the same lengths."""
        return self.layout is other.layout or torch.equal(self.offsets, other.offsets)

    def to(self, device: torch.device | str) -> Ragged:
        """The same batch on another device."""
        layout = Layout(self.offsets.to(device), self.longest, self.layout.tokens)
        return Ragged.arranged(self.values.to(device), layout)

    def unbind(self) -> list[Tensor]:
        """The sequences, one tensor each."""
        return list(self.values.split(self.lengths.tolist()))

    def __len__(self) -> int:
        return len(self.layout)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __repr__(self) -> str:
        return f"Ragged({len(self)} sequences, {self.layout.tokens} tokens, longest {self.longest})"

    @property
    def offsets(self) -> Int[Tensor, " ends"]:
        """Where each sequence starts; the last entry is where the last one ends."""
        return self.layout.offsets

    @property
    def longest(self) -> int:
        """The length of the longest sequence."""
        return self.layout.longest

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """How many tokens each sequence has."""
        return self.layout.lengths

    @property
    def positions(self) -> Int[Tensor, " token"]:
        """Each token's place in its own sequence, from 0."""
        return self.layout.positions


def _longest(offsets: Int[Tensor, " ends"], tokens: int) -> int:
    """The longest sequence of offsets found to be good."""
    if not isinstance(offsets, Tensor) or offsets.ndim != 1 or offsets.is_floating_point() or offsets.is_complex():
        raise ShapeError(f"offsets are whole numbers in a tensor of one axis; got {offsets!r:.80}")
    if len(offsets) == 0 or offsets[0] != 0:
        raise ShapeError(f"offsets must start with 0; got {offsets[:1].tolist() or 'no offsets'}")
    lengths = offsets.diff()
    if (lengths < 0).any():
        i = int((lengths < 0).nonzero()[0])
        raise ShapeError(f"offsets must not fall: offsets[{i}] is {offsets[i]}, offsets[{i + 1}] is {offsets[i + 1]}")
    if offsets[-1] != tokens:
        raise ShapeError(f"the last offset must be the number of tokens, {tokens}; got {offsets[-1]}")
    return int(lengths.max()) if len(lengths) else 0
