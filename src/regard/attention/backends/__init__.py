"""Backends: implementations of the one definition of attention. Each declares what it cannot run.

Register your own with `BACKENDS.register("name", Backend(run, cannot))`; select it by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.backends import flex, sdpa, triton
from regard.attention.backends.dispatch_table import backend_order
from regard.attention.cache import Padded, Sequences, pad, unpad
from regard.attention.masks import Mask, PaddingMask, everything
from regard.attention.reference import Parts, Rotation, intermediates
from regard.attention.scores import Additive
from regard.axes import Offset
from regard.errors import BackendError
from regard.ragged import Ragged
from regard.registry import Registry


@dataclass(frozen=True)
class Backend:
    """One way to run an attention; `cannot` returns the reason why it cannot run one, or None.

    `run` takes padded rows; a `packed` backend takes any sequences, without padding. Without an
    example tensor, `cannot` checks the parts only, for the backend's own device. The first example
    is of the queries; those of keys and values come last.
    """

    run: Callable[..., Any]
    cannot: Callable[..., str | None]
    packed: bool = False


def _reference(
    parts: Parts, queries: Padded, keys: Padded, values: Padded, mask: Mask, offset: Offset
) -> Tensor:
    visible = mask if keys.lengths is None else mask & PaddingMask(keys.lengths)
    dense = queries.tensor, keys.tensor, values.tensor
    return intermediates(parts, *dense, visible, offset, parts.dropout).context


def _never(
    parts: Parts,
    example: Tensor | None = None,
    mask: Mask = everything,
    offset: Offset = 0,
    *others: Tensor,
) -> None:
    """The reference runs everything."""


BACKENDS: Registry[Backend] = Registry(
    "backend",
    {
        "reference": Backend(_reference, _never),
        "sdpa": Backend(sdpa.run, sdpa.cannot),
        "flex": Backend(flex.run, flex.cannot),
        "triton": Backend(triton.run, triton.cannot, packed=True),
    },
)


def choose_backend(
    parts: Parts,
    example: Tensor,
    mask: Mask = everything,
    offset: Offset = 0,
    *others: Tensor,
    uneven: bool = False,
) -> str:
    """The backend of `auto`: the first in the dispatch table that can run this attention.

    `uneven`: rows differ in length, so a backend that pads has more work.
    """
    biased = "plain" if parts.bias is None else "biased"
    score = "additive" if isinstance(parts.score, Additive) else biased
    device = "cuda" if example.is_cuda else "cpu"  # devices that were not measured count as CPUs
    order = backend_order(device, score, "uneven" if uneven else "even", example.shape[2])
    arguments = parts, example, mask, offset, *others
    return next(name for name in order if BACKENDS[name].cannot(*arguments) is None)


def run(
    name: str,
    parts: Parts,
    queries: Sequences,
    keys: Sequences,
    values: Sequences,
    mask: Mask,
    offset: Offset,
    rotation: Rotation | None = None,
) -> Any:
    """Attend on the backend `name` (or "auto"); an explicit request never falls back."""
    example, *others = (example_tensor(sequences) for sequences in (queries, keys, values))
    if name == "auto":
        uneven = isinstance(queries, Ragged) and not queries.layout.is_uniform
        backend = BACKENDS[choose_backend(parts, example, mask, offset, *others, uneven=uneven)]
    else:
        backend = BACKENDS.choose(name)
        if reason := backend.cannot(parts, example, mask, offset, *others):
            raise BackendError(
                f"backend {name!r} cannot run this attention: {reason}. Use backend='reference' "
                "or 'auto'."
            )
    if 0 in (*example.shape[:3], others[0].shape[2]):  # no queries, or no keys
        return _zeros(queries, others[1].shape[3])
    if backend.packed:
        return backend.run(parts, queries, keys, values, mask, offset, rotation)
    if rotation is not None:
        queries, keys = rotate(rotation, queries, offset), rotate(rotation, keys)
    padded = pad(queries), pad(keys), pad(values)
    context = backend.run(parts, *padded, mask, offset)
    if backend.run is not _reference and _may_have_masked_nan(context, mask, padded[1]):
        context = _reference(parts, *padded, mask, offset)
    return unpad(context, queries.layout) if isinstance(queries, Ragged) else context


def _may_have_masked_nan(context: Tensor, mask: Mask, keys: Padded) -> bool:
    """Whether NaN or infinity in a masked value may have reached a row, by 0 · NaN = NaN.

    On a CPU only: elsewhere the answer would make the device wait.
    """
    if context.device.type != "cpu" or torch.compiler.is_exporting():
        return False
    masked = mask != everything or keys.lengths is not None
    return masked and not bool(context.detach().sum().isfinite())


def rotate(rotation: Rotation, sequences: Any, offset: Offset = 0) -> Any:
    """Sequences rotated by their positions, each starting at position `offset`."""
    if isinstance(sequences, Ragged):
        start = offset[sequences.layout.rows] if isinstance(offset, Tensor) else offset
        positions = (sequences.positions + start)[:, None]
        return sequences.like(rotation.rotate(sequences.values, positions))
    tensor: Tensor = sequences.tensor if isinstance(sequences, Padded) else sequences
    start = offset[:, None, None] if isinstance(offset, Tensor) else offset
    rotated = rotation.rotate(tensor, torch.arange(tensor.shape[2], device=tensor.device) + start)
    return Padded(rotated, sequences.lengths) if isinstance(sequences, Padded) else rotated


def example_tensor(sequences: Sequences) -> Tensor:
    """A tensor with the device, dtype and (batch, head, time, dim) of the sequences, not padded."""
    if isinstance(sequences, Ragged):
        rows = sequences.values[: sequences.longest].transpose(0, 1)
        return rows.expand(len(sequences), *rows.shape)
    return sequences.tensor if isinstance(sequences, Padded) else sequences


def _zeros(queries: Sequences, dim: int) -> Any:
    """A context of zeros per query, connected to the graph so that gradients exist."""
    if isinstance(queries, Ragged):
        return queries.like(0 * queries.values.sum(-1, keepdim=True).expand(-1, -1, dim))
    return 0 * example_tensor(queries).sum(-1, keepdim=True).expand(-1, -1, -1, dim)
