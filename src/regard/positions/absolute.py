"""Absolute positions: a vector for each place, added to the embeddings."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import RegardError, ShapeError
from regard.positions.position import Added
from regard.positions.waves import waves


class Sinusoidal(Added):
    """Sines and cosines of falling frequency; computed, so any length will do.

    `order` is how they lie in the vector: "paired" (sin, cos, sin, cos …, as the paper writes) or "halves" (all sines,
    then all cosines, as Marian and Tensor2Tensor do). Attention cannot tell the difference; loading weights can.
    """

    formula = "P[p, 2i] = sin(p / base^(2i/width)), P[p, 2i+1] = cos(p / base^(2i/width))"
    paper = "Vaswani et al. 2017, §3.5"

    def __init__(self, width: int, *, base: float = 10000.0, order: str = "paired") -> None:
        super().__init__()
        if order not in ("paired", "halves"):
            raise RegardError(f"order must be 'paired' or 'halves'; got {order!r}")
        if width < 1:
            raise ShapeError(f"width must be at least 1; got {width}")
        self.width, self.base, self.order = width, base, order
        self.rates = tuple(base ** (-2 * pair / width) for pair in range((width + 1) // 2))

    def forward(self, positions: Int[Tensor, "*time"]) -> Float[Tensor, "*time width"]:
        cos, sin = waves(positions, self.rates, torch.get_default_dtype())
        return torch.stack([sin, cos], -1 if self.order == "paired" else -2).flatten(-2)[..., : self.width]


class Learned(Added):
    """A table with a learned vector for each of the first `longest` positions."""

    formula = "P[p], a row of a learned table"
    paper = "Gehring et al. 2017, §3.1"

    def __init__(self, width: int, *, longest: int = 1024) -> None:
        super().__init__()
        self.longest = longest
        self.table = nn.Parameter(torch.randn(longest, width) * 0.02)

    def within(self, last: int) -> None:
        if last >= self.longest:
            raise RegardError(
                f"position {last} is past the {self.longest} that were learned; use a larger "
                "'longest', or an encoding that is computed, such as 'sinusoidal' or 'rotary'"
            )

    def forward(self, positions: Int[Tensor, "*time"]) -> Float[Tensor, "*time width"]:
        if positions.numel() and not positions.is_cuda:
            self.within(int(positions.max()))
            if int(positions.min()) < 0:
                raise RegardError(f"positions count from 0; got {int(positions.min())}")
        return self.table[positions]
