"""The contract of a model: the verbs that training, search and the explorer know, and no
architecture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.errors import ShapeError
from regard.ragged import Ragged


class State(ABC):
    """Where a decoder stands, row by row. Handed over at each step, never hidden in a module."""

    @abstractmethod
    def select(self, rows: Int[Tensor, " chosen"]) -> State:
        """The chosen rows in that order, repeats allowed, each with a source of its own: finished
        rows leave.
        """

    @abstractmethod
    def branch(
        self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None
    ) -> State:
        """The chosen rows, as many for each source, side by side and sharing it: beams. Of the
        sources those in `sources` stay; without it, all."""


class Model(nn.Module, ABC):
    """A sequence-to-sequence model over ids. Source sequences end with END; prefixes begin with
    BEGIN.

    >>> logits = model(source, prefix)              # all positions at once: teacher forcing
    >>> state = model.start(model.encode(source))   # or one at a time
    >>> logits, state = model.step(tokens, state)
    >>> state = state.select(rows)                  # rows leave
    >>> state = state.branch(rows)                  # or several rows share a source
    """

    static_shapes: ClassVar[bool] = False
    """Whether a training step can be captured as a CUDA graph: it reads no length on the host."""

    @property
    def attention_backend(self) -> str:
        """The backend that the settings request for the attentions."""
        return "auto"

    def forward(self, source: Ragged, prefix: Ragged) -> Ragged:
        """Logits over the vocabulary for what follows each token of each prefix."""
        if len(source) != len(prefix):
            raise ShapeError(f"each source needs its prefix; got {len(source)} and {len(prefix)}")
        read = self.read(source, prefix)
        return read.like(self.project(read.values))

    @abstractmethod
    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The last vectors before the vocabulary, for each token of each prefix."""

    @abstractmethod
    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """Logits from those vectors."""

    @abstractmethod
    def cross_attentions(self) -> list[Attention]:
        """The attentions by which the decoder looks at the source; none for a bottleneck."""

    @abstractmethod
    def encode(self, source: Ragged) -> Any:
        """What the decoder will look at."""

    @abstractmethod
    def start(self, memory: Any) -> State:
        """The state before the first token."""

    @abstractmethod
    def step(
        self, tokens: Int[Tensor, " row"], state: Any
    ) -> tuple[Float[Tensor, "row vocabulary"], Any]:
        """Logits for what follows one more token in each row, and the state after it."""
