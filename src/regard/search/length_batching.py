"""Length batching: sources of similar length are searched together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

BATCH_TOKENS = 4_096  # source tokens searched together
RATIO, EXTRA = 2.0, 20  # an output may have RATIO times the tokens of its source, and EXTRA more


def length_limits(
    lengths: Int[Tensor, " source"], most: int | None = None, ratio: float = RATIO
) -> Int[Tensor, " source"]:
    """The maximum output length of each source: ratio · length + EXTRA, and at most `most`. Without
    a limit, an untrained model would never stop."""
    limits = [math.ceil(ratio * length) + EXTRA for length in lengths.tolist()]
    if most is not None:
        limits = [min(most, limit) for limit in limits]
    return torch.tensor(limits, device=lengths.device)


def length_batches(lengths: Sequence[int], tokens: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices of sources, short to long, in batches of at most `tokens` tokens with padding."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > tokens:  # this one is the longest
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
