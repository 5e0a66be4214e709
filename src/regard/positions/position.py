"""A position encoding acts in one of three places: added to embeddings, turning queries and keys, biasing scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.axes import Queries, Site


class Position(nn.Module):
    """Tells a model where its tokens stand. A kind of position overrides the one place where it acts."""

    place: ClassVar[Literal["nowhere", "added", "turning", "biasing"]] = "nowhere"
    formula: ClassVar[str]
    paper: ClassVar[str]


class Nowhere(Position):
    """No position at all: tokens are a set. The baseline, and right for a causal decoder that can count by itself."""

    formula = "–"
    paper = "Haviv et al. 2022"


class Added(Position):
    """A vector for each position, added to the embedding of the token that stands there."""

    place = "added"

    def within(self, last: int) -> None:
        """Raise if it does not know this position: a GPU that is asked for it could only abort."""

    def forward(self, positions: Int[Tensor, "*time"]) -> Float[Tensor, "*time width"]:
        raise NotImplementedError


class Turning(Position):
    """Turns queries and keys by their positions, so that their dot product knows the distance."""

    place = "turning"

    def turn(self, vectors: Float[Tensor, "*time dim"], positions: Int[Tensor, ...]) -> Float[Tensor, "*time dim"]:
        """The vectors turned; `positions` broadcast against all axes but the last."""
        raise NotImplementedError


class Biasing(Position):
    """Adds to a score by where query and key stand."""

    place = "biasing"
    heads: int | None = None  # how many heads it was made for; None: any number
    settles: int | None = None  # from this distance on it is one number a side; None: it never is

    def bind(self, queries: Queries) -> Callable[[Tensor, Site], Tensor]:
        """The bias as a function of score and Site, for these queries. Only Shaw's looks at them."""
        return self.forward

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        raise NotImplementedError
