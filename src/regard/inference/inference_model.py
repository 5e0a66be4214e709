"""Stand-in: a model that is searched in another's place."""

from __future__ import annotations

from typing import Generic, TypeVar

from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention
from regard.models.contract import Model
from regard.ragged import Ragged

M = TypeVar("M", bound=Model)


class StandIn(Model, Generic[M]):
    """Takes its own steps; whatever reads all positions at once is the original's."""

    original: M

    def __init__(self, original: M) -> None:
        super().__init__()
        self.original = original

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The original's."""
        return self.original.read(source, prefix)

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """The original's."""
        return self.original.project(vectors)

    def looks(self) -> list[Attention]:
        """The original's."""
        return self.original.looks()
