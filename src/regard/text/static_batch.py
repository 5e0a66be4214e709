"""Lessons: what a model reads and must say in a step. For a GPU they are filled up so that shapes repeat: a step of a
known shape can be recorded once and replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.kernels import IGNORED
from regard.ragged import Layout, Ragged
from regard.text.batching import Batch, begun, ended
from regard.text.tokenizers import END

LONGEST = 128  # of a sequence in a lesson that is filled up


@dataclass(frozen=True, eq=False)
class Lesson:
    """Sources, the prefixes a decoder reads, what it must say after each of their tokens, and how much each counts."""

    source: Ragged
    prefix: Ragged
    right: Int64[Tensor, " token"]
    share: Float[Tensor, ""]

    @classmethod
    def of(cls, batch: Batch) -> Lesson:
        """The lesson of a batch as it is: every token counts the same share of its step."""
        source, target = batch.source, batch.target
        share = 1 / (batch.step_tokens + batch.step_pairs)
        if not len(batch):  # a rank with nothing to do still takes part in the exchange, with a pair of nothing
            source, target, share = Ragged.of([source.values]), Ragged.of([source.values]), 0.0
        counted = torch.full((), share, device=source.values.device)
        return cls(ended(source), begun(target), ended(target).values, counted)


class Shape(NamedTuple):
    """The sizes of a lesson that is filled up: tokens, sequences, and what the longest may have."""

    source: int
    target: int
    pairs: int
    source_longest: int
    target_longest: int

    @classmethod
    def of(cls, batch: Batch, grain: int) -> Shape | None:
        """The next sizes that hold a batch, tokens in multiples of a grain; None where a sequence is too long."""
        pairs, longest = len(batch), [_tile(side.longest + 1) for side in (batch.source, batch.target)]
        if not pairs or max(longest) > LONGEST:
            return None
        tokens = [len(side.values) + pairs for side in (batch.source, batch.target)]
        sizes = [-(-count // grain) * grain for count in tokens]
        filling = max(-(-(size - count) // long) for size, count, long in zip(sizes, tokens, longest, strict=True))
        return cls(sizes[0], sizes[1], _rows(pairs + filling), *longest)

    @property
    def numbers(self) -> int:
        """How many numbers describe such a lesson."""
        return self.source + 2 * self.target + 2 * (self.pairs + 1)


def filled(batch: Batch, shape: Shape, *, pinned: bool = False) -> Int64[Tensor, " number"]:
    """A batch as one row of numbers, with pairs added of which nothing is learned. `opened` reads it."""
    flat = torch.empty(shape.numbers, dtype=torch.int64, pin_memory=pinned)
    source, prefix, right, asked, told = flat.split(_cuts(shape))
    target = ended(batch.target).values
    for room, values, rest in (
        (source, ended(batch.source).values, END),
        (prefix, begun(batch.target).values, END),
        (right, target, IGNORED),
    ):
        room[: len(values)] = values
        room[len(values) :] = rest
    for ends, side, size, longest in (
        (asked, batch.source, shape.source, shape.source_longest),
        (told, batch.target, shape.target, shape.target_longest),
    ):
        pairs = len(batch)
        torch.add(side.offsets, torch.arange(pairs + 1), out=ends[: pairs + 1])
        fillers = torch.arange(1, shape.pairs - pairs + 1) * longest + ends[pairs]
        ends[pairs + 1 :] = fillers.clamp_(max=size)
    return flat


def opened(flat: Int64[Tensor, " number"], shape: Shape, share: Float[Tensor, ""]) -> Lesson:
    """The lesson that lies in a row of numbers."""
    source, prefix, right, asked, told = flat.split(_cuts(shape))
    sources = Layout(asked, shape.source_longest, shape.source)
    prefixes = Layout(told, shape.target_longest, shape.target)
    return Lesson(Ragged.arranged(source, sources), Ragged.arranged(prefix, prefixes), right, share)


def _cuts(shape: Shape) -> list[int]:
    return [shape.source, shape.target, shape.target, shape.pairs + 1, shape.pairs + 1]


def _tile(longest: int) -> int:
    """The next power of two."""
    return max(16, 1 << (longest - 1).bit_length())


def _rows(count: int) -> int:
    """The next of 1, 1.5, 2, 3, 4, 6, 8 …: empty sequences cost little, and few sizes are few recordings."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if count <= power * 3 // 4 else power
