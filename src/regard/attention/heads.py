"""MultiHead: attention in several subspaces at once, with projections of any widths."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.attend import Attention
from regard.attention.cache import Cache
from regard.attention.masks import Mask, everything
from regard.attention.normalisers import Normaliser
from regard.attention.reference import Bias, Steps
from regard.attention.scores import SCORES, Score
from regard.axes import Offset
from regard.errors import ShapeError, choose
from regard.ragged import Ragged

S = TypeVar("S", Ragged, Tensor)


@runtime_checkable
class Turn(Protocol):
    """A position encoding that turns queries and keys (rotary)."""

    def turn(self, vectors: Tensor, positions: Tensor) -> Tensor: ...


class MultiHead(nn.Module):
    """concat(head₁ … headₕ) W_O, headᵢ = attention(x W_Qᵢ, z W_Kᵢ, z W_Vᵢ) (Vaswani et al. 2017, §3.2.2).

    Widths are free: queries x of `width` (d_X), context z of width `context` (d_Z), attention space `attention`
    (d_attn, over all heads), values of width `values` over all heads, output `out` (d_out). Each defaults to
    `width`, and `values` to `attention`.
    With `groups` below `heads`, a group of keys and values serves several heads (Ainslie et al. 2023).

    Sequences are `Ragged` batches of (token, width), or dense (batch, time, width).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        context: int | None = None,
        attention: int | None = None,
        values: int | None = None,
        out: int | None = None,
        groups: int | None = None,
        biases: bool = True,
        score: str | Score = "scaled-dot",
        bias: Bias | None = None,
        turn: Turn | None = None,
        normaliser: str | Normaliser = "softmax",
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if heads < 1 or (groups is not None and groups < 1):
            raise ShapeError(f"there must be at least 1 head and 1 group; got heads={heads}, groups={groups}")
        attention, values, groups = attention or width, values or attention or width, groups or heads
        for name, size, parts in (("attention", attention, heads), ("values", values, heads), ("heads", heads, groups)):
            if size % parts:
                raise ShapeError(f"{name} = {size} cannot be split into {parts} equal parts")
        self.heads, self.groups, self.dim = heads, groups, attention // heads
        self.queries = nn.Linear(width, attention, biases)
        self.keys = nn.Linear(context or width, groups * self.dim, biases)
        self.values = nn.Linear(context or width, groups * (values // heads), biases)
        self.out = nn.Linear(values, out or width, biases)
        if isinstance(score, str):
            score = choose(SCORES, score, "score")(heads, self.dim)
        self.attention = Attention(score, bias=bias, normaliser=normaliser, dropout=dropout, backend=backend)
        self.turn = turn

    def forward(self, queries: S, context: S | None = None, *, mask: Mask = everything) -> S:
        """All positions at once: self-attention, or attention to a `context`."""
        context = queries if context is None else context
        asked = self._split(queries, self.queries, self.heads, turning=True)
        keys, values = self._remembered(context, 0)
        return self._join(queries, self.attention(asked, keys, values, mask=mask))

    def steps(self, queries: S, context: S | None = None, *, mask: Mask = everything) -> Steps:
        """Every intermediate of the attention inside, for those who look: weights are (batch, head, query, key)."""
        asked = self._split(queries, self.queries, self.heads, turning=True)
        keys, values = self._remembered(queries if context is None else context, 0)
        return self.attention.steps(asked, keys, values, mask=mask)

    def remember(self, context: Ragged | Tensor, cache: Cache | None = None) -> Cache:
        """A cache with the keys and values of `context` at its end: once for a source, each step for a target."""
        cache = cache or Cache()
        return cache.append(*self._remembered(context, cache.offset))

    def recall(self, queries: S, cache: Cache, *, mask: Mask = everything, offset: Offset = 0) -> S:
        """Attend to what a cache holds; the first query of each row stands at `offset`."""
        asked = self._split(queries, self.queries, self.heads, turning=True, offset=offset)
        return self._join(queries, self.attention(asked, cache.keys, cache.values, mask=mask, offset=offset))

    def step(self, queries: S, cache: Cache, *, mask: Mask = everything) -> tuple[S, Cache]:
        """Self-attention of the next positions: remember them, then attend to all so far."""
        grown = self.remember(queries, cache)
        return self.recall(queries, grown, mask=mask, offset=cache.offset), grown

    def _remembered(self, context: Ragged | Tensor, offset: Offset) -> tuple[Any, Any]:
        keys = self._split(context, self.keys, self.groups, turning=True, offset=offset)
        return keys, self._split(context, self.values, self.groups)

    def _split(
        self, sequences: Ragged | Tensor, project: nn.Linear, parts: int, *, turning: bool = False, offset: Offset = 0
    ) -> Any:
        """Project, cut into heads or groups, and turn by position where the encoding turns."""
        rotate = self.turn if turning else None
        if isinstance(sequences, Tensor) and sequences.ndim != 3:
            raise ShapeError(f"dense sequences must be (batch, time, width); got shape {tuple(sequences.shape)}")
        width = (sequences.values if isinstance(sequences, Ragged) else sequences).shape[-1]
        if width != project.in_features:
            raise ShapeError(f"this attention reads vectors of width {project.in_features}; got width {width}")
        if isinstance(sequences, Ragged):
            packed = project(sequences.values).unflatten(-1, (parts, -1))
            return sequences.like(rotate.turn(packed, _places(sequences, offset)[:, None]) if rotate else packed)
        dense = project(sequences).unflatten(-1, (parts, -1)).transpose(1, 2)
        return rotate.turn(dense, _places(sequences, offset)) if rotate else dense

    def _join(self, like: S, contexts: S) -> S:
        if isinstance(like, Ragged) and isinstance(contexts, Ragged):
            return like.like(self.out(contexts.values.flatten(-2)))
        return self.out(contexts.transpose(1, 2).flatten(-2))


def _places(sequences: Ragged | Tensor, offset: Offset) -> Int[Tensor, ...]:
    """Each token's position: (token,) in a ragged batch; (time,) or (batch, 1, time) in a dense one."""
    if isinstance(sequences, Ragged):
        return sequences.positions + (offset[sequences.layout.rows] if isinstance(offset, Tensor) else offset)
    time = torch.arange(sequences.shape[1], device=sequences.device)
    return time + (offset[:, None, None] if isinstance(offset, Tensor) else offset)
