"""Position encodings act in one of three places: embeddings, queries and keys, or scores.

The base classes of the three places, and the encodings that are added to embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.axes import Queries, Site
from regard.errors import RegardError, ShapeError
from regard.model_limits import MAX_BASE, MAX_POSITIONS, MIN_BASE


class Position(nn.Module):
    """A position encoding. Subclass the class below that fits the place where it acts."""

    place: ClassVar[Literal["none", "additive", "rotary", "bias"]] = "none"
    formula: ClassVar[str] = ""
    paper: ClassVar[str] = ""


class NoPosition(Position):
    """No position encoding: tokens are a set. Useful as a baseline and in causal decoders."""

    formula = "–"
    paper = "Haviv et al. 2022"


class AdditivePosition(Position):
    """A vector for each position, added to the embedding of the token at that position."""

    place = "additive"

    def check_position(self, last: int) -> None:
        """Raise if it has no vector for this position; on a GPU the lookup itself would abort."""

    def forward(self, positions: Int[Tensor, "*time"]) -> Float[Tensor, "*time width"]:
        raise NotImplementedError


class RotaryPosition(Position):
    """Rotates queries and keys by their positions, so that q · k depends on their distance.

    Fused kernels read `rotated_dims` (how many leading dims are rotated in pairs; 0 = unknown, so
    kernels call `rotate`) and `pairs` (which dims form a pair, as in `Rotary`).
    """

    place = "rotary"
    rotated_dims: int = 0
    pairs: str = "halves"

    def rotate(
        self, vectors: Float[Tensor, "*time dim"], positions: Int[Tensor, ...]
    ) -> Float[Tensor, "*time dim"]:
        """The rotated vectors; `positions` broadcast against all axes but the last."""
        raise NotImplementedError


class BiasPosition(Position):
    """A change of each score, usually an added term, by the positions of query and key.

    The attributes declare what fused kernels can rely on. A subclass with its own `forward` or
    `bind` declares them again: it may compute something else than its base class.
    """

    place = "bias"
    heads: int | None = None  # the number of heads it was built for; None: any
    constant_beyond: int | None = None  # from this distance on it is constant on each side
    is_additive: ClassVar[bool] = False  # whether it adds a term that ignores the score
    needs_query: ClassVar[bool] = False  # whether it also depends on the query vector (Shaw)
    has_slopes: ClassVar[bool] = False  # whether it is −slopes[head] · |distance|
    has_table: ClassVar[bool] = False  # whether it is linear in its parameter `table` (head, …)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if {"forward", "bind"} & vars(cls).keys():
            cls.is_additive = vars(cls).get("is_additive", False)
            cls.has_slopes = vars(cls).get("has_slopes", False)
            cls.has_table = vars(cls).get("has_table", False)

    def bind(self, queries: Queries) -> Callable[[Tensor, Site], Tensor]:
        """The bias as a function of score and Site, for these queries."""
        return self.forward

    def head_slopes(self) -> Float[Tensor, " head"] | None:
        """The slopes of a bias that is −slopes[head] · |distance| (`has_slopes`)."""
        return None

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        raise NotImplementedError


LARGEST_TABLE = 1 << 14


def check_count(name: str, value: int, most: int) -> None:
    """Raise unless an option is a whole number from 1 to `most`."""
    if value < 1:
        raise RegardError(f"{name} must be at least 1; got {value}")
    if value > most:
        raise RegardError(f"{name} must be at most {most:,}; got {value}")


def check_frequency(base: float) -> None:
    """Raise unless all powers of the base are finite numbers."""
    if not MIN_BASE <= base <= MAX_BASE:
        raise RegardError(f"base must be from {MIN_BASE:g} to {MAX_BASE:g}; got {base}")


def cos_sin(
    positions: Int[Tensor, "*time"], frequencies: tuple[float, ...], dtype: torch.dtype
) -> tuple[Float[Tensor, "*time pair"], Float[Tensor, "*time pair"]]:
    """cos and sin of position · frequency, for every position and frequency.

    Angles are computed in float64: at position 10⁶ a float32 angle is wrong by a sixteenth of a
    full circle. float64 is slow on a CPU, so the CPU reads the first positions from a table.
    """
    if torch.compiler.is_exporting():  # neither read positions nor keep traced tensors in a cache
        return _compute(positions, torch.tensor(frequencies, dtype=torch.float64), dtype)
    if positions.device.type == "cpu" and positions.numel():
        length = int(positions.max()) + 1
        if length <= LARGEST_TABLE and int(positions.min()) >= 0:
            tables = _table(max(64, 1 << (length - 1).bit_length()), frequencies, dtype)
            flat = positions.reshape(-1)
            cos, sin = (table.index_select(0, flat).view(*positions.shape, -1) for table in tables)
            return cos, sin
    return _compute(positions, _tensor(frequencies, positions.device), dtype)


def _compute(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    angles = positions[..., None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


@lru_cache(maxsize=64)  # copying them to a GPU on every call would force a synchronisation
def _tensor(frequencies: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(frequencies, dtype=torch.float64, device=device)


@lru_cache(maxsize=32)
def _table(
    length: int, frequencies: tuple[float, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    positions = torch.arange(length, device="cpu")
    return _compute(positions, _tensor(frequencies, positions.device), dtype)


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
        check_frequency(base)
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
        check_count("max_length", max_length, MAX_POSITIONS)
        self.max_length = max_length
        self.table = nn.Parameter(torch.randn(max_length, width) * 0.02)

    def check_position(self, last: int) -> None:
        if last >= self.max_length:
            raise RegardError(
                f"position {last} is beyond the {self.max_length} learned positions; use a larger "
                "'max_length', or an encoding that is computed, such as 'sinusoidal' or 'rotary'"
            )

    def forward(self, positions: Int[Tensor, "*time"]) -> Float[Tensor, "*time width"]:
        if positions.numel() and not positions.is_cuda and not torch.compiler.is_exporting():
            self.check_position(int(positions.max()))
            if int(positions.min()) < 0:
                raise RegardError(f"positions start at 0; got {int(positions.min())}")
        return self.table[positions]
