"""Rotary positions: each pair of coordinates turned by an angle that grows with the position."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError, ShapeError
from regard.positions.position import Turning
from regard.positions.waves import waves


class Rotary(Turning):
    """Turns pair i of a query or key by p · base^(−2i/turned), so that q · k depends on the distance alone.

    `part` is the share of the dimensions that turn (the rest carry no position). `pairs` is which coordinates make a
    pair: "halves" (i with i + d/2, as Llama) or "neighbours" (2i with 2i + 1, as the paper). For texts longer than
    those trained on, `scaling` stretches by `factor`: "linear" divides positions by it (Chen et al. 2023), "ntk"
    raises the base so that only slow pairs stretch (bloc97 2023).
    """

    formula = "(q R_p) · (k R_m) = q R_(p−m) · k, R_p turning pair i by p · base^(−2i/d)"
    paper = "Su et al. 2021, §3.2"

    def __init__(
        self,
        dim: int,
        *,
        base: float = 10000.0,
        part: float = 1.0,
        pairs: str = "halves",
        scaling: str = "none",
        factor: float = 1.0,
    ) -> None:
        super().__init__()
        for name, value, known in (
            ("pairs", pairs, ("halves", "neighbours")),
            ("scaling", scaling, ("none", "linear", "ntk")),
        ):
            if value not in known:
                raise RegardError(f"{name} must be one of {known}; got {value!r}")
        turned = int(dim * part)
        if not 0 < part <= 1 or turned % 2 or not turned:
            raise ShapeError(f"rotary turns pairs, so part · dim must be even and above 0; got {part} · {dim}")
        if factor < 1 or (scaling == "ntk" and turned < 4 and factor > 1):
            raise RegardError(f"scaling needs a factor of at least 1 (and ntk at least 4 turned dims); got {factor}")
        if scaling == "none" and factor != 1:
            raise RegardError(f"factor = {factor} does nothing without a scaling; choose scaling='linear' or 'ntk'")
        if scaling == "ntk" and factor > 1:
            base = base * factor ** (turned / (turned - 2))
        self.dim, self.turned, self.pairs = dim, turned, pairs
        slower = factor if scaling == "linear" else 1.0
        self.rates = tuple(base ** (-i / turned) / slower for i in range(0, turned, 2))

    def turn(self, vectors: Float[Tensor, "*time dim"], positions: Int[Tensor, ...]) -> Float[Tensor, "*time dim"]:
        """The vectors turned; `positions` broadcast against all axes but the last."""
        if vectors.shape[-1] != self.dim:
            raise ShapeError(f"Rotary was made for dim {self.dim}; got vectors of dim {vectors.shape[-1]}")
        cos, sin = waves(positions, self.rates, vectors.dtype)
        turning, still = vectors.split((self.turned, self.dim - self.turned), -1)
        if self.pairs == "halves":
            a, b = turning.chunk(2, -1)
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        else:
            a, b = turning[..., 0::2], turning[..., 1::2]
            turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        return turned if self.turned == self.dim else torch.cat([turned, still], -1)
