"""The contract of a model: the methods that training, search and the explorer call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.errors import ShapeError
from regard.ragged import Ragged


class State(ABC):
    """The state of a decoder, one row per hypothesis; passed explicitly, not kept in a module."""

    @abstractmethod
    def select(self, rows: Int[Tensor, " chosen"]) -> State:
        """The chosen rows in this order, repeats allowed, each with its own source: finished rows
        leave."""

    @abstractmethod
    def branch(
        self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None
    ) -> State:
        """The chosen rows, equally many for each source and sharing it: beams.

        Only the sources in `sources` stay; without it, all.
        """


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

    @property
    def output_table(self) -> nn.Parameter | None:
        """E where `project` is h · Eᵀ, so that a loss can fuse that product; None otherwise."""
        return None

    def forward(self, source: Ragged, prefix: Ragged) -> Ragged:
        """Logits of the next token after each token of each prefix."""
        if len(source) != len(prefix):
            raise ShapeError(f"each source needs one prefix; got {len(source)} and {len(prefix)}")
        read = self.read(source, prefix)
        return read.like(self.project(read.values))

    @abstractmethod
    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The decoder's output vectors, before the vocabulary, for each token of each prefix."""

    @abstractmethod
    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """Logits from those vectors."""

    @abstractmethod
    def cross_attentions(self) -> list[Attention]:
        """The decoder's attentions to the source; none in a model without cross-attention."""

    @abstractmethod
    def encode(self, source: Ragged) -> Any:
        """The encoded source, which the decoder reads."""

    @abstractmethod
    def start(self, memory: Any) -> State:
        """The state before the first token."""

    @abstractmethod
    def step(
        self, tokens: Int[Tensor, " row"], state: Any
    ) -> tuple[Float[Tensor, "row vocabulary"], Any]:
        """Logits of the next token after one more token in each row, and the new state."""


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode (no dropout); restores each module's mode afterwards."""
    modules = [part for part in model.modules() if part.training]
    try:
        for part in modules:
            part.training = False
        yield
    finally:
        for part in modules:
            part.training = True


def is_finite(model: nn.Module) -> bool:
    """Whether all weights are finite."""
    return bool(torch.stack([weight.isfinite().all() for weight in model.parameters()]).all())
