"""Absolute positions: a vector for each position, added to the embeddings."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import RegardError, ShapeError
from regard.positions.position import AdditivePosition
from regard.positions.sinusoids import cos_sin


class Sinusoidal(AdditivePosition):
    """Sines and cosines of decreasing frequency; computed, so any length is supported.

    `order` is their order in the vector: "paired" (sin, cos, sin, cos …, as in the paper) or
    "halves" (all sines, then all cosines, as in Marian and Tensor2Tensor). The two are equivalent
    for a model trained from scratch, but imported weights need the right one.
    """

    formula = "P[p, 2i] = sin(p / base^(2i/width)), P[p, 2i+1] = cos(p / base^(2i/width))"
    paper = "Vaswani et al. 2017, §3.5"

    def __init__(self, width: int, *, base: float = 10000.0, order: str = "paired") -> None:
        super().__init__()
        if order not in ("paired", "halves"):
            raise RegardError(f"order must be 'paired' or 'halves'; got {order!r}")
        if width < 1:
            raise ShapeError(f"width must be at least 1; got {width}")
        self.width, self.base = width, base
        self.order = order
        self.frequencies = tuple(base ** (-2 * pair / width) for pair in range((width + 1) // 2))

    def forward(self, positions: Int[Tensor, "*time"]) -> Float[Tensor, "*time width"]:
        cos, sin = cos_sin(positions, self.frequencies, torch.get_default_dtype())
        axis = -1 if self.order == "paired" else -2
        return torch.stack([sin, cos], axis).flatten(-2)[..., : self.width]


class Learned(AdditivePosition):
    """A table with a learned vector for each of the first `max_length` positions."""

    formula = "P[p], a row of a learned table"
    paper = "Gehring et al. 2017, §3.1"

    def __init__(self, width: int, *, max_length: int = 1024) -> None:
        super().__init__()
        self.max_length = max_length
        self.table = nn.Parameter(torch.randn(max_length, width) * 0.02)

    def check_position(self, last: int) -> None:
        if last >= self.max_length:
            raise RegardError(
                f"position {last} is beyond the {self.max_length} learned positions; use a larger "
                "'max_length', or an encoding that is computed, such as 'sinusoidal' or 'rotary'"
            )

    def forward(self, positions: Int[Tensor, "*time"]) -> Float[Tensor, "*time width"]:
        if positions.numel() and not positions.is_cuda:
            self.check_position(int(positions.max()))
            if int(positions.min()) < 0:
                raise RegardError(f"positions start at 0; got {int(positions.min())}")
        return self.table[positions]
