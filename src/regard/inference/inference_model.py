"""InferenceModel: a model that is searched in place of another."""

from __future__ import annotations

from typing import Generic, TypeVar

from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention
from regard.models.contract import Model
from regard.ragged import Ragged

M = TypeVar("M", bound=Model)


class InferenceModel(Model, Generic[M]):
    """Has its own `encode`, `start` and `step`; teacher-forced passes are the original's."""

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

    def cross_attentions(self) -> list[Attention]:
        """The original's."""
        return self.original.cross_attentions()
