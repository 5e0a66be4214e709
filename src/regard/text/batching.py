"""Batches: what a training step reads, found from (seed, epoch, step, world size, rank) alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from regard.ragged import Layout, Ragged
from regard.text.bpe_dropout import Respelling
from regard.text.bucketing import BatchError, Plan, plan
from regard.text.pairs import Gathered, Pairs
from regard.text.tokenizers import BEGIN, END


@dataclass(frozen=True, eq=False)
class Batch:
    """The ids of some pairs, without begin and end, and which pairs they are.

    `step_pairs` and `step_tokens` count the pairs and target tokens of the whole step, over all ranks and parts: what a
    sum of losses is divided by so that the step is the same however it was cut up. `step_sources`: its source tokens.
    """

    source: Ragged
    target: Ragged
    indices: Int64[Tensor, " batch"]
    step_pairs: int
    step_tokens: int
    step_sources: int

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def read(self) -> int:
        """All tokens of the whole step, ends included."""
        return self.step_sources + self.step_tokens + 2 * self.step_pairs

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return replace(
            self, source=self.source.to(device), target=self.target.to(device), indices=self.indices.to(device)
        )


class Batches:
    """All batches of all epochs. With `world` processes each step's batch is dealt out among them by `rank`: together
    they see exactly what one process would at the same (global) budget.

    `budget` is source and target tokens to a step, `limit` the most tokens a side may have (longer pairs are left out
    and counted in `plan(epoch).over_long`). Where a side is `respelt`, a step gets some more tokens than the budget. A
    rank may get no pair at all when a step has fewer pairs than ranks.
    """

    def __init__(
        self,
        pairs: Pairs,
        *,
        batch_tokens: int,
        seed: int,
        limit: int | None = None,
        world: int = 1,
        rank: int = 0,
        respelt: Sequence[Respelling | None] = (None, None),
    ) -> None:
        if not 0 <= rank < world:
            raise BatchError(f"rank {rank} is not one of {world} (they count from 0)")
        self.pairs = pairs
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.limit = limit
        self.world = world
        self.rank = rank
        self.respelt = tuple(respelt)
        self._latest: tuple[int, Plan] | None = None

    def plan(self, epoch: int) -> Plan:
        """The plan of an epoch; the latest is kept, for steps come one after another. Threads may ask side by side."""
        latest = self._latest
        if latest is None or latest[0] != epoch:
            latest = self._latest = None  # let the old one go before there are two
            lengths = self.pairs.source_lengths, self.pairs.target_lengths
            made = plan(*lengths, batch_tokens=self.batch_tokens, seed=self.seed, epoch=epoch, limit=self.limit)
            latest = self._latest = epoch, made
        return latest[1]

    def following(self, epoch: int, step: int) -> tuple[int, int, Batch]:
        """Which step this is, and this rank's part of it; past the end of an epoch, the next one's first."""
        if step >= self.steps(epoch):
            epoch, step = epoch + 1, 0
        return epoch, step, self.at(epoch, step)

    def steps(self, epoch: int) -> int:
        """How many steps an epoch has."""
        return len(self.plan(epoch))

    def at(self, epoch: int, step: int) -> Batch:
        """This rank's part of a step."""
        whole = self.plan(epoch).batch(step)
        mine = whole[self.rank :: self.world]  # the batch is sorted by length, so every rank gets about as many tokens
        source, target = map(_ragged, self._read(mine, epoch))
        counts = [len(side.values) for side in (source, target)] if self.world == 1 else self._tokens(whole, epoch)
        return Batch(source, target, torch.from_numpy(mine), len(whole), counts[1], counts[0])

    def _read(self, indices: Int64[np.ndarray, " batch"], epoch: int) -> list[Gathered]:
        """Both sides of these pairs, as they are spelt in this epoch."""
        both = zip(self.pairs.gather(indices), self.respelt, strict=True)
        return [side if spell is None else spell(side, indices, epoch) for side, spell in both]

    def _tokens(self, whole: Int64[np.ndarray, " batch"], epoch: int) -> list[int]:
        """The source and target tokens of a step, over all ranks."""
        if self.respelt == (None, None):
            return [int(lengths[whole].sum()) for lengths in (self.pairs.source_lengths, self.pairs.target_lengths)]
        return [len(ids) for ids, _ in self._read(whole, epoch)]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from step `start` on."""
        for step in range(start, self.steps(epoch)):
            yield self.at(epoch, step)


def split(batch: Batch) -> tuple[Batch, Batch]:
    """Two halves of about as many tokens, for when the whole does not fit in memory."""
    if len(batch) < 2:
        tokens = len(batch.source.values) + len(batch.target.values)
        raise BatchError(f"a batch of one pair ({tokens:,} tokens) cannot be split; lower the limit of length")
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


def begun(ids: Ragged) -> Ragged:
    """Every sequence with the begin symbol before it: what a decoder reads."""
    return _with(ids, BEGIN, before=True)


def ended(ids: Ragged) -> Ragged:
    """Every sequence with the end symbol after it: what an encoder reads and a decoder must say."""
    return _with(ids, END, before=False)


def _with(ids: Ragged, symbol: int, *, before: bool) -> Ragged:
    """The symbol stands wherever no id was put."""
    values = ids.values.new_full((len(ids.values) + len(ids),), symbol)
    places = torch.arange(len(ids.values), device=values.device) + ids.layout.rows + before
    offsets = ids.offsets + torch.arange(len(ids) + 1, device=values.device)
    return Ragged.arranged(values.index_copy_(0, places, ids.values), Layout(offsets, ids.longest + 1, len(values)))


def _ragged(gathered: Gathered) -> Ragged:
    values, ends = gathered
    return Ragged(torch.from_numpy(values), torch.from_numpy(ends))
