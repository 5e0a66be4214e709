"""Backends: machines that run the one definition of attention. Each says what it cannot do, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.backends import dispatch_table as measured
from regard.attention.backends import flex, sdpa, triton
from regard.attention.masks import Inside, Mask, everything
from regard.attention.padded import Padded, Sequences, pad, unpad
from regard.attention.reference import Parts, Turn, steps
from regard.attention.scores import Additive
from regard.axes import Offset
from regard.errors import BackendError, choose
from regard.ragged import Ragged


@dataclass(frozen=True)
class Backend:
    """One way to run an attention, and `cannot`, the reason it will not, if there is one.

    `run` takes padded rows; that of a `packed` backend takes sequences as they come, so nothing is padded for it.
    Without an example tensor `cannot` judges the parts alone, on the device the backend is made for. The first example
    is of the queries; those of keys and values come last.
    """

    run: Callable[..., Any]
    cannot: Callable[..., str | None]
    packed: bool = False


def _reference(parts: Parts, queries: Padded, keys: Padded, values: Padded, mask: Mask, offset: Offset) -> Tensor:
    visible = mask if keys.lengths is None else mask & Inside(keys.lengths)
    return steps(parts, queries.tensor, keys.tensor, values.tensor, visible, offset, parts.dropout).context


BACKENDS: dict[str, Backend] = {
    "reference": Backend(_reference, lambda parts, example=None, mask=everything, offset=0, *others: None),
    "sdpa": Backend(sdpa.run, sdpa.cannot),
    "flex": Backend(flex.run, flex.cannot),
    "triton": Backend(triton.run, triton.cannot, packed=True),
}


def fastest(
    parts: Parts,
    example: Tensor,
    mask: Mask = everything,
    offset: Offset = 0,
    *others: Tensor,
    uneven: bool = False,
) -> str:
    """What `auto` takes: the first backend that can, in the order measured for such a case (`measured.py`).

    `uneven` rows differ in length, so that a backend on padded ones has more to do.
    """
    score = "additive" if isinstance(parts.score, Additive) else "plain" if parts.bias is None else "biased"
    device = "cuda" if example.is_cuda else "cpu"  # what nobody measured is taken for a CPU
    order = measured.order(device, score, "uneven" if uneven else "even", example.shape[2])
    return next(name for name in order if BACKENDS[name].cannot(parts, example, mask, offset, *others) is None)


def run(
    name: str,
    parts: Parts,
    queries: Sequences,
    keys: Sequences,
    values: Sequences,
    mask: Mask,
    offset: Offset,
    turn: Turn | None = None,
) -> Any:
    """Attend on the backend called `name` (or "auto"); an explicit one never falls back. A packed one also turns."""
    example, *others = (example_of(given) for given in (queries, keys, values))
    if name == "auto":
        uneven = isinstance(queries, Ragged) and not queries.layout.is_uniform
        backend = BACKENDS[fastest(parts, example, mask, offset, *others, uneven=uneven)]
    else:
        backend = choose(BACKENDS, name, "backend")
        if reason := backend.cannot(parts, example, mask, offset, *others):
            raise BackendError(
                f"backend {name!r} cannot run this attention: {reason}. Use backend='reference' or 'auto'."
            )
    if 0 in (*example.shape[:3], others[0].shape[2]):  # nobody asks, or there is nothing to see
        return _nothing(queries, others[1].shape[3])
    if backend.packed:
        return backend.run(parts, queries, keys, values, mask, offset, turn)
    if turn is not None:
        queries, keys = turned(turn, queries, offset), turned(turn, keys)
    context = backend.run(parts, pad(queries), pad(keys), pad(values), mask, offset)
    return unpad(context, queries.layout) if isinstance(queries, Ragged) else context


def turned(turn: Turn, sequences: Any, first: Offset = 0) -> Any:
    """Sequences turned by their positions, the first of each standing at `first`."""
    if isinstance(sequences, Ragged):
        start = first[sequences.layout.rows] if isinstance(first, Tensor) else first
        return sequences.like(turn.turn(sequences.values, (sequences.positions + start)[:, None]))
    tensor: Tensor = sequences.tensor if isinstance(sequences, Padded) else sequences
    start = first[:, None, None] if isinstance(first, Tensor) else first
    made = turn.turn(tensor, torch.arange(tensor.shape[2], device=tensor.device) + start)
    return Padded(made, sequences.lengths) if isinstance(sequences, Padded) else made


def example_of(sequences: Sequences) -> Tensor:
    """A tensor of the device, dtype and (batch, head, time, dim) of some sequences, with nothing padded to make it."""
    if isinstance(sequences, Ragged):
        rows = sequences.values[: sequences.longest].transpose(0, 1)
        return rows.expand(len(sequences), *rows.shape)
    return sequences.tensor if isinstance(sequences, Padded) else sequences


def _nothing(queries: Sequences, dim: int) -> Any:
    """A context of zeros for each query, to which gradients still flow."""
    if isinstance(queries, Ragged):
        return queries.like(0 * queries.values.sum(-1, keepdim=True).expand(-1, -1, dim))
    return 0 * example_of(queries).sum(-1, keepdim=True).expand(-1, -1, -1, dim)
