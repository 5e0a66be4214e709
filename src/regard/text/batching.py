"""Batches: the training batch of each step, from (seed, epoch, step, world size, rank) alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from regard.kernels import IGNORE_INDEX
from regard.ragged import Layout, Ragged
from regard.text.bpe_dropout import BpeDropout
from regard.text.bucketing import BatchError, BatchPlan, plan_batches
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.text.tokenized_pairs import FlatIds, TokenizedPairs


@dataclass(frozen=True, eq=False)
class Batch:
    """The ids of some pairs, without begin and end tokens, and the indices of the pairs.

    The `step_…` fields count the pairs, target tokens and source tokens of the whole step, over all
    ranks and parts. Dividing a sum of losses by them gives the same step however it is divided.
    """

    source: Ragged
    target: Ragged
    indices: Int64[Tensor, " batch"]
    step_pairs: int
    step_target_tokens: int
    step_source_tokens: int

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def total_tokens(self) -> int:
        """All tokens of the whole step, including end tokens."""
        return self.step_source_tokens + self.step_target_tokens + 2 * self.step_pairs

    def to(self, device: torch.device | str) -> Batch:
        """The batch on another device."""
        source, target = self.source.to(device), self.target.to(device)
        return replace(self, source=source, target=target, indices=self.indices.to(device))


class Batches:
    """The batches of all epochs. With several processes, the pairs of a step are distributed over
    the ranks: together they process the same pairs as one process with the same `batch_tokens`.

    `batch_tokens` is the number of source and target tokens per step; `bpe_dropout` (per side) adds
    some. With `reversed_targets`, each target runs from its last token to its first. Pairs with
    more than `max_tokens` on a side are skipped and counted in `plan(epoch).too_long`. A rank has
    an empty batch if a step has fewer pairs than ranks.
    """

    def __init__(
        self,
        pairs: TokenizedPairs,
        *,
        batch_tokens: int,
        seed: int,
        max_tokens: int | None = None,
        world_size: int = 1,
        rank: int = 0,
        bpe_dropout: Sequence[BpeDropout | None] = (None, None),
        reversed_targets: bool = False,
    ) -> None:
        if not 0 <= rank < world_size:
            raise BatchError(f"rank must be from 0 to {world_size - 1}; got {rank}")
        self.pairs = pairs
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.max_tokens = max_tokens
        self.world_size = world_size
        self.rank = rank
        self.bpe_dropout = tuple(bpe_dropout)
        self.reversed_targets = reversed_targets
        self._latest: tuple[int, BatchPlan] | None = None

    def plan(self, epoch: int) -> BatchPlan:
        """The plan of an epoch; the latest one is cached. Safe to call from several threads."""
        latest = self._latest
        if latest is None or latest[0] != epoch:
            latest = self._latest = None  # release the old plan before making a new one
            plan = plan_batches(
                self.pairs.source_lengths,
                self.pairs.target_lengths,
                batch_tokens=self.batch_tokens,
                seed=self.seed,
                epoch=epoch,
                max_tokens=self.max_tokens,
            )
            latest = self._latest = epoch, plan
        return latest[1]

    def next_batch(self, epoch: int, step: int) -> tuple[int, int, Batch]:
        """Epoch, step and batch of this rank; after the last step, the first of the next epoch."""
        if step >= self.steps(epoch):
            epoch, step = epoch + 1, 0
        return epoch, step, self.at(epoch, step)

    def steps(self, epoch: int) -> int:
        """The number of steps of an epoch."""
        return len(self.plan(epoch))

    def at(self, epoch: int, step: int) -> Batch:
        """The batch of this rank at a step."""
        step_indices = self.plan(epoch).batch(step)
        # A step is sorted by length, so all ranks get about as many tokens.
        indices = step_indices[self.rank :: self.world_size]
        source, target = map(_ragged, self._gather(indices, epoch))
        if self.world_size == 1:
            source_tokens, target_tokens = len(source.values), len(target.values)
        else:
            source_tokens, target_tokens = self._count_tokens(step_indices, epoch)
        rows = torch.from_numpy(indices)
        return Batch(source, target, rows, len(step_indices), target_tokens, source_tokens)

    def _gather(self, indices: Int64[np.ndarray, " batch"], epoch: int) -> list[FlatIds]:
        """Both sides of these pairs, with this epoch's BPE-dropout."""
        sides = zip(self.pairs.gather(indices), self.bpe_dropout, strict=True)
        source, target = (
            ids if dropout is None else dropout(ids, indices, epoch) for ids, dropout in sides
        )
        return [source, _reverse(target) if self.reversed_targets else target]

    def _count_tokens(self, indices: Int64[np.ndarray, " batch"], epoch: int) -> list[int]:
        """The source and target tokens of these pairs."""
        if self.bpe_dropout == (None, None):
            sides = self.pairs.source_lengths, self.pairs.target_lengths
            return [int(lengths[indices].sum()) for lengths in sides]
        return [len(ids) for ids, _ in self._gather(indices, epoch)]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from step `start`."""
        for step in range(start, self.steps(epoch)):
            yield self.at(epoch, step)


def split_batch(batch: Batch) -> tuple[Batch, Batch]:
    """Two halves with about as many tokens, for a batch that does not fit in memory."""
    if len(batch) < 2:
        tokens = len(batch.source.values) + len(batch.target.values)
        raise BatchError(
            f"a batch of one pair ({tokens:,} tokens) cannot be split; lower text.max_tokens"
        )
    first, second = (
        replace(
            batch,
            source=Ragged.of(batch.source.unbind()[half::2]),
            target=Ragged.of(batch.target.unbind()[half::2]),
            indices=batch.indices[half::2],
        )
        for half in (0, 1)
    )
    return first, second


def with_source_tokens(ids: Ragged, template: Template = DEFAULT_TEMPLATE) -> Ragged:
    """Every source with the special tokens around it: the encoder's input."""
    return _surround(ids, template.source_prefix, template.source_suffix)


def with_begin(ids: Ragged, template: Template = DEFAULT_TEMPLATE) -> Ragged:
    """Every target after the start tokens: the decoder's input."""
    return _surround(ids, template.start, ())


def with_end(ids: Ragged, template: Template = DEFAULT_TEMPLATE) -> Ragged:
    """Every target with the end token appended: what the decoder generates."""
    return _surround(ids, (), (template.end,))


def with_labels(ids: Ragged, template: Template = DEFAULT_TEMPLATE) -> Ragged:
    """The label at each position of `with_begin`: start tokens are given, and so not predicted."""
    return _surround(ids, [IGNORE_INDEX] * (len(template.start) - 1), (template.end,))


def _surround(ids: Ragged, before: Sequence[int], after: Sequence[int]) -> Ragged:
    """Every sequence with the same tokens before and after it."""
    added = len(before) + len(after)
    if not added:
        return ids
    values = ids.values.new_full((len(ids.values) + added * len(ids),), (*before, *after)[0])
    rows = ids.layout.rows if added == 1 else added * ids.layout.rows
    positions = torch.arange(len(ids.values), device=values.device) + rows + len(before)
    offsets = ids.offsets + added * torch.arange(len(ids) + 1, device=values.device)
    if added > 1:
        for place, token in enumerate(before):
            values[offsets[:-1] + place] = token
        for place, token in enumerate(after):
            values[offsets[1:] - len(after) + place] = token
    layout = Layout(offsets, ids.longest + added, len(values))
    return Ragged.from_layout(values.index_copy_(0, positions, ids.values), layout)


def _reverse(ids: FlatIds) -> FlatIds:
    """Every text from its last token to its first."""
    values, offsets = ids
    lengths = np.diff(offsets)
    mirrored = np.repeat(offsets[:-1] + offsets[1:] - 1, lengths) - np.arange(len(values))
    return values[mirrored], offsets


def _ragged(ids: FlatIds) -> Ragged:
    """The same in torch. Ids on disk have valid offsets, so they are not checked again."""
    values, offsets = ids
    layout = Layout(torch.from_numpy(offsets), int(np.diff(offsets).max(initial=0)), len(values))
    return Ragged.from_layout(torch.from_numpy(values), layout)
