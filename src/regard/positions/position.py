"""Position encodings act in one of three places: embeddings, queries and keys, or scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.axes import Queries, Site


class Position(nn.Module):
    """A position encoding. Subclass the class below that fits the place where it acts."""

    place: ClassVar[Literal["none", "additive", "rotary", "bias"]] = "none"
    formula: ClassVar[str]
    paper: ClassVar[str]


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

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        raise NotImplementedError
