"""Ragged: a batch of sequences end to end, with no padding (DESIGN: the one shape all data travels in)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from regard.errors import ShapeError

_LAYOUT = ("lengths", "rows", "positions", "slots")


@dataclass(frozen=True, eq=False)
class Ragged:
    """All tokens of all sequences end to end (`values`), and where each sequence starts (`offsets`, one more than
    there are sequences). `longest` is the length of the longest sequence, kept on the host so that nothing waits
    for a GPU. Empty sequences are allowed.
    """

    values: Shaped[Tensor, "token ..."]
    offsets: Int[Tensor, " ends"]
    longest: int = -1

    def __post_init__(self) -> None:
        ends = self.offsets.tolist()
        if not ends or ends[0] != 0:
            raise ShapeError(f"offsets must start with 0; got {ends[:1] or 'none at all'}")
        for i, (start, end) in enumerate(zip(ends, ends[1:], strict=False)):
            if end < start:
                raise ShapeError(f"offsets must never fall: offsets[{i}] is {start} but offsets[{i + 1}] is {end}")
        if ends[-1] != len(self.values):
            raise ShapeError(f"the last offset must be the number of tokens, {len(self.values)}; got {ends[-1]}")
        longest = max((end - start for start, end in zip(ends, ends[1:], strict=False)), default=0)
        if self.longest not in (-1, longest):
            raise ShapeError(f"the longest sequence has {longest} tokens, but longest={self.longest}")
        object.__setattr__(self, "longest", longest)

    @classmethod
    def of(cls, sequences: Sequence[Tensor]) -> Ragged:
        """Join sequences of any lengths. `Ragged.of([a, b]).unbind()` gives them back."""
        if not sequences:
            raise ShapeError("a batch needs at least one sequence (which may be empty)")
        ends = [0]
        for sequence in sequences:
            ends.append(ends[-1] + len(sequence))
        return cls(torch.cat(list(sequences)), torch.tensor(ends, device=sequences[0].device))

    def like(self, values: Shaped[Tensor, "token ..."]) -> Ragged:
        """The same sequences carrying other values; the layout is shared, not computed again."""
        if len(values) != len(self.values):
            raise ShapeError(f"this batch has {len(self.values)} tokens; got values for {len(values)}")
        twin = object.__new__(Ragged)
        known = {name: self.__dict__[name] for name in _LAYOUT if name in self.__dict__}
        twin.__dict__.update(known, values=values, offsets=self.offsets, longest=self.longest)
        return twin

    def to(self, device: torch.device | str) -> Ragged:
        """The same batch on another device."""
        twin = object.__new__(Ragged)
        twin.__dict__.update(values=self.values.to(device), offsets=self.offsets.to(device), longest=self.longest)
        return twin

    def unbind(self) -> list[Tensor]:
        """The sequences, one tensor each."""
        return list(self.values.split(self.lengths.tolist()))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    @cached_property
    def lengths(self) -> Int[Tensor, " batch"]:
        """How many tokens each sequence has."""
        return self.offsets.diff()

    @cached_property
    def rows(self) -> Int[Tensor, " token"]:
        """Which sequence each token belongs to."""
        sequence = torch.arange(len(self), device=self.offsets.device)
        return sequence.repeat_interleave(self.lengths, output_size=len(self.values))

    @cached_property
    def positions(self) -> Int[Tensor, " token"]:
        """Each token's place in its own sequence, from 0."""
        token = torch.arange(len(self.values), device=self.offsets.device)
        return token - self.offsets[self.rows]

    @cached_property
    def slots(self) -> Int[Tensor, " token"]:
        """Each token's place in the flattened (batch × longest) table, for those who must pad."""
        return self.rows * self.longest + self.positions

    @property
    def even(self) -> bool:
        """Whether every sequence is as long as the longest, so that a dense table has no padding."""
        return len(self.values) == len(self) * self.longest
