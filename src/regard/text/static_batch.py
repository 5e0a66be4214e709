"""Teacher-forced training batches, as they are or with static shapes.

A static batch is padded with extra sequences so that shapes repeat, and a training step can be
captured as a CUDA graph once per shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.kernels import IGNORE_INDEX
from regard.ragged import Layout, Ragged
from regard.text.batching import Batch, with_begin, with_labels, with_source_tokens
from regard.text.template import DEFAULT_TEMPLATE, Template

MAX_LENGTH = 128  # of a sequence in a static batch

# Part of a packed batch: its numbers, the tokens before and after each sequence, and its padding.
Section = tuple[Int64[np.ndarray, " token"], Sequence[int], Sequence[int], int]


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """Sources, decoder inputs (`prefix`), the label of each decoder position, and the weight of a
    token's loss."""

    source: Ragged
    prefix: Ragged
    labels: Int64[Tensor, " token"]
    token_weight: Float[Tensor, ""]

    @classmethod
    def from_batch(cls, batch: Batch, template: Template = DEFAULT_TEMPLATE) -> TrainingBatch:
        """The training batch of a batch as it is; every token of a step has the same weight."""
        source, target = batch.source, batch.target
        weight = 1 / (batch.step_target_tokens + batch.step_pairs)
        if not len(batch):  # a rank without pairs still joins the gradient exchange: an empty pair
            source = target = Ragged.of([source.values])
            weight = 0.0
        token_weight = torch.full((), weight, device=source.values.device)
        labels = with_labels(target, template).values
        source, prefix = with_source_tokens(source, template), with_begin(target, template)
        return cls(source, prefix, labels, token_weight)


class StaticShape(NamedTuple):
    """The sizes of a static batch: tokens per side, sequences, and maximum lengths."""

    source: int
    target: int
    pairs: int
    source_longest: int
    target_longest: int

    @classmethod
    def from_batch(
        cls, batch: Batch, multiple: int, template: Template = DEFAULT_TEMPLATE
    ) -> StaticShape | None:
        """The smallest static shape that fits, with tokens in multiples of `multiple`; None if a
        sequence is too long."""
        pairs = len(batch)
        sides = (batch.source, template.source_tokens), (batch.target, len(template.start))
        longest = [_round_length(side.longest + added) for side, added in sides]
        if not pairs or max(longest) > MAX_LENGTH:
            return None
        tokens = [len(side.values) + added * pairs for side, added in sides]
        sizes = [-(-count // multiple) * multiple for count in tokens]
        padding = max(
            -(-(size - count) // length)
            for size, count, length in zip(sizes, tokens, longest, strict=True)
        )
        return cls(sizes[0], sizes[1], _round_rows(pairs + padding), *longest)

    @property
    def size(self) -> int:
        """The number of integers in a packed batch."""
        return self.source + 2 * self.target + 2 * (self.pairs + 1)


def pack_batch(
    batch: Batch,
    shape: StaticShape,
    *,
    pinned: bool = False,
    template: Template = DEFAULT_TEMPLATE,
) -> Int64[Tensor, " number"]:
    """A batch as one flat tensor, padded with sequences that do not contribute to the loss.

    `unpack_batch` is the inverse.
    """
    flat = torch.empty(shape.size, dtype=torch.int64, pin_memory=pinned)
    # NumPy on the same memory: its calls on small arrays are several times as fast as torch's.
    ends = np.cumsum(_section_sizes(shape))[:-1]
    source, prefix, labels, source_offsets, target_offsets = np.split(flat.numpy(), ends)
    start, ignored = template.start, (IGNORE_INDEX,) * (len(template.start) - 1)
    fill = template.source([0])[-1]
    _pack_side(
        batch.source,
        source_offsets,
        [(source, template.source_prefix, template.source_suffix, fill)],
        shape.source_longest,
    )
    _pack_side(
        batch.target,
        target_offsets,
        [
            (prefix, start, (), template.end),
            (labels, ignored, (template.end,), IGNORE_INDEX),
        ],
        shape.target_longest,
    )
    return flat


def _pack_side(
    side: Ragged,
    offsets: Int64[np.ndarray, " end"],
    sections: Sequence[Section],
    longest: int,
) -> None:
    """Write the sequences of one side with their special tokens, and the offsets."""
    values, ends = side.values.numpy(), side.offsets.numpy()
    size, before, after, _ = len(sections[0][0]), *sections[0][1:]
    added, pairs = len(before) + len(after), len(ends) - 1
    offsets[: pairs + 1] = ends + np.arange(pairs + 1) * added
    padding = offsets[pairs] + np.arange(1, len(offsets) - pairs) * longest
    np.minimum(padding, size, out=offsets[pairs + 1 :])
    shifts = np.repeat(offsets[:pairs] - ends[:-1], np.diff(ends))
    positions = np.arange(len(values)) + shifts
    for section, before, after, padding_token in sections:
        section[offsets[pairs] :] = padding_token
        section[positions + len(before)] = values
        for place, token in enumerate(before):
            section[offsets[:pairs] + place] = token
        for place, token in enumerate(after, -len(after)):
            section[offsets[1 : pairs + 1] + place] = token


def unpack_batch(
    flat: Int64[Tensor, " number"], shape: StaticShape, token_weight: Float[Tensor, ""]
) -> TrainingBatch:
    """The training batch in a packed tensor (views, no copies)."""
    source, prefix, labels, source_offsets, target_offsets = flat.split(_section_sizes(shape))
    source_layout = Layout(source_offsets, shape.source_longest, shape.source)
    target_layout = Layout(target_offsets, shape.target_longest, shape.target)
    return TrainingBatch(
        Ragged.from_layout(source, source_layout),
        Ragged.from_layout(prefix, target_layout),
        labels,
        token_weight,
    )


def _section_sizes(shape: StaticShape) -> list[int]:
    return [shape.source, shape.target, shape.target, shape.pairs + 1, shape.pairs + 1]


def _round_length(longest: int) -> int:
    """The next power of two, at least 16."""
    return max(16, 1 << (longest - 1).bit_length())


def _round_rows(count: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12 …: padding is cheap, and few sizes need few CUDA graphs."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if count <= power * 3 // 4 else power
