"""Rotary positions: each pair of dims is rotated by an angle proportional to the position."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError, ShapeError
from regard.model_limits import MAX_FACTOR
from regard.positions.absolute import RotaryPosition, check_frequency, cos_sin


class Rotary(RotaryPosition):
    """Rotates pair i of a query or key by p · base^(−2i/d), so q · k depends on the distance only.

    `fraction` is the fraction of the dims that is rotated (the rest carry no position). `pairs`
    selects which dims form a pair: "halves" (i with i + d/2, as in Llama) or "neighbours" (2i with
    2i + 1, as in the paper). For texts longer than those seen in training, `scaling` stretches
    positions by `factor`: "linear" divides positions by it (Chen et al. 2023), "ntk" raises the
    base so that only low frequencies are stretched (bloc97 2023).
    """

    formula = "(q R_p) · (k R_m) = q R_(p−m) · k, R_p rotating pair i by p · base^(−2i/d)"
    paper = "Su et al. 2021, §3.2"

    def __init__(
        self,
        dim: int,
        *,
        base: float = 10000.0,
        fraction: float = 1.0,
        pairs: str = "halves",
        scaling: str = "none",
        factor: float = 1.0,
    ) -> None:
        super().__init__()
        check_frequency(base)
        rotated = int(dim * fraction)
        _check(pairs, scaling, factor, rotated)
        if not 0 < fraction <= 1 or rotated % 2 or not rotated:
            raise ShapeError(
                "rotary rotates pairs, so fraction · dim must be even and above 0; got "
                f"{fraction} · {dim}"
            )
        if scaling == "ntk" and factor > 1:
            base = base * factor ** (rotated / (rotated - 2))
        self.dim, self.rotated_dims = dim, rotated
        self.pairs = pairs
        divisor = factor if scaling == "linear" else 1.0
        self.frequencies = tuple(base ** (-i / rotated) / divisor for i in range(0, rotated, 2))

    def rotate(
        self, vectors: Float[Tensor, "*time dim"], positions: Int[Tensor, ...]
    ) -> Float[Tensor, "*time dim"]:
        """The rotated vectors; `positions` broadcast against all axes but the last."""
        if vectors.shape[-1] != self.dim:
            raise ShapeError(
                f"Rotary was built for dim {self.dim}; got vectors of dim {vectors.shape[-1]}"
            )
        cos, sin = cos_sin(positions, self.frequencies, vectors.dtype)
        paired, rest = vectors.split((self.rotated_dims, self.dim - self.rotated_dims), -1)
        if self.pairs == "halves":
            a, b = paired.chunk(2, -1)
            rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        else:
            a, b = paired[..., 0::2], paired[..., 1::2]
            rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        return rotated if self.rotated_dims == self.dim else torch.cat([rotated, rest], -1)


def _check(pairs: str, scaling: str, factor: float, rotated: int) -> None:
    """Raise for options that are unknown or have no effect."""
    for name, value, known in (
        ("pairs", pairs, ("halves", "neighbours")),
        ("scaling", scaling, ("none", "linear", "ntk")),
    ):
        if value not in known:
            raise RegardError(f"{name} must be one of {known}; got {value!r}")
    if factor < 1 or (scaling == "ntk" and rotated < 4 and factor > 1):
        raise RegardError(
            f"factor must be at least 1 (and ntk needs at least 4 rotated dims); got {factor}"
        )
    if factor > MAX_FACTOR:
        raise RegardError(f"factor must be at most {MAX_FACTOR:g}; got {factor}")
    if scaling == "none" and factor != 1:
        raise RegardError(
            f"factor = {factor} has no effect without scaling; use scaling='linear' or 'ntk'"
        )
