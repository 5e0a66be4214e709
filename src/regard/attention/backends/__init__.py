"""Backends: machines that run the one definition of attention. Each says what it cannot do, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.attention.backends import flex, sdpa
from regard.attention.masks import Inside, Mask
from regard.attention.padded import Padded, Sequences, pad, unpad
from regard.attention.reference import Parts, steps
from regard.axes import Offset
from regard.errors import BackendError, choose
from regard.ragged import Ragged

Dense = Callable[[Parts, Padded, Padded, Padded, Mask, Offset], Tensor]


@dataclass(frozen=True)
class Backend:
    """One way to run an attention: `run` on padded rows, and `cannot`, the reason it will not, if there is one.

    Without an example tensor `cannot` judges the parts alone, on the device the backend is made for.
    """

    run: Dense
    cannot: Callable[[Parts, Tensor | None], str | None]


def _reference(parts: Parts, queries: Padded, keys: Padded, values: Padded, mask: Mask, offset: Offset) -> Tensor:
    visible = mask if keys.lengths is None else mask & Inside(keys.lengths)
    return steps(parts, queries.tensor, keys.tensor, values.tensor, visible, offset, parts.dropout).context


BACKENDS: dict[str, Backend] = {
    "reference": Backend(_reference, lambda parts, example: None),
    "sdpa": Backend(sdpa.run, sdpa.cannot),
    "flex": Backend(flex.run, flex.cannot),
}


def fastest(parts: Parts, example: Tensor) -> str:
    """The fastest backend that can. Benchmarks decide the order (benchmarks/attention.py)."""
    order = ("flex", "sdpa", "reference") if flex.pays(parts, example) else ("sdpa", "reference")
    return next(name for name in order if BACKENDS[name].cannot(parts, example) is None)


def run(
    name: str, parts: Parts, queries: Sequences, keys: Sequences, values: Sequences, mask: Mask, offset: Offset
) -> Any:
    """Attend on the backend called `name` (or "auto"); an explicit one never falls back."""
    dense = pad(queries)
    if name == "auto":
        name = fastest(parts, dense.tensor)
    backend = choose(BACKENDS, name, "backend")
    if reason := backend.cannot(parts, dense.tensor):
        raise BackendError(f"backend {name!r} cannot run this attention: {reason}. Use backend='reference' or 'auto'.")
    known, held = pad(keys), pad(values)
    if 0 in (*dense.tensor.shape[:3], known.tensor.shape[2]):  # nobody asks, or there is nothing to see
        context = 0 * dense.tensor.sum(-1, keepdim=True).expand(-1, -1, -1, held.tensor.shape[3])
    else:
        context = backend.run(parts, dense, known, held, mask, offset)
    return unpad(context, queries.layout) if isinstance(queries, Ragged) else context
