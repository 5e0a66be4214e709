"""MultiHead: attention in several subspaces at once, with projections of any widths."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.attend import Attention
from regard.attention.cache import Cache
from regard.attention.masks import Mask, everything
from regard.attention.normalisers import Normaliser
from regard.attention.reference import Bias, Steps, Turn
from regard.attention.scores import SCORES, Score
from regard.axes import Offset
from regard.errors import ShapeError
from regard.kernels.fused_linear import linear
from regard.ragged import Ragged

S = TypeVar("S", Ragged, Tensor)


class MultiHead(nn.Module):
    """concat(head₁ … headₕ) W_O, headᵢ = attention(x W_Qᵢ, z W_Kᵢ, z W_Vᵢ) (Vaswani et al. 2017, §3.2.2).

    Widths are free: queries x of `width` (d_X), context z of width `context` (d_Z), attention space `attention`
    (d_attn, over all heads), values of width `values` over all heads, output `out` (d_out). Each defaults to
    `width`, and `values` to `attention`.
    With `kv_heads` below `heads`, a group of keys and values serves several heads (Ainslie et al. 2023).

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
        kv_heads: int | None = None,
        biases: bool = True,
        score: str | Score = "scaled-dot",
        bias: Bias | None = None,
        turn: Turn | None = None,
        normaliser: str | Normaliser = "softmax",
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if heads < 1 or (kv_heads is not None and kv_heads < 1):
            raise ShapeError(f"there must be at least 1 head and 1 group; got heads={heads}, kv_heads={kv_heads}")
        attention, values, kv_heads = attention or width, values or attention or width, kv_heads or heads
        for name, size, parts in (
            ("attention", attention, heads),
            ("values", values, heads),
            ("heads", heads, kv_heads),
        ):
            if size % parts:
                raise ShapeError(f"{name} = {size} cannot be split into {parts} equal parts")
        self.heads, self.kv_heads, self.dim = heads, kv_heads, attention // heads
        self.queries = nn.Linear(width, attention, biases)
        self.keys = nn.Linear(context or width, kv_heads * self.dim, biases)
        self.values = nn.Linear(context or width, kv_heads * (values // heads), biases)
        self.out = nn.Linear(values, out or width, biases)
        if isinstance(score, str):
            score = SCORES.choose(score)(heads, self.dim)
        self.attention = Attention(score, bias=bias, normaliser=normaliser, dropout=dropout, backend=backend)
        self.turn = turn

    def forward(self, queries: S, context: S | None = None, *, mask: Mask = everything) -> S:
        """All positions at once: self-attention, or attention to a `context`."""
        # On a GPU kernels turn what they read; elsewhere queries and keys are turned together, which is one pass less.
        late = self.turn if _vectors(queries).is_cuda else None
        given = self._asked_and_known(queries, context, turn=late is None)
        return self._join(queries, self.attention(*given, mask=mask, turn=late))

    def steps(self, queries: S, context: S | None = None, *, mask: Mask = everything) -> Steps:
        """Every intermediate of the attention inside, for those who look: weights are (batch, head, query, key)."""
        return self.attention.steps(*self._asked_and_known(queries, context), mask=mask)

    def remember(self, context: Ragged | Tensor, cache: Cache | None = None) -> Cache:
        """A cache with the keys and values of `context` at its end: once for a source, each step for a target."""
        cache = cache or Cache()
        return cache.append(*self._project(context, "keys", "values", offset=cache.offset))

    def recall(self, queries: S, cache: Cache, *, mask: Mask = everything, offset: Offset = 0) -> S:
        """Attend to what a cache holds; the first query of each row stands at `offset`."""
        (asked,) = self._project(queries, "queries", offset=offset)
        return self._join(queries, self.attention(asked, cache.keys, cache.values, mask=mask, offset=offset))

    def step(self, queries: S, cache: Cache, *, mask: Mask = everything) -> tuple[S, Cache]:
        """Self-attention of the next positions: remember them, then attend to all so far."""
        asked, *known = self._project(queries, "queries", "keys", "values", offset=cache.offset)
        grown = cache.append(*known)
        context = self.attention(asked, grown.keys, grown.values, mask=mask, offset=cache.offset)
        return self._join(queries, context), grown

    def _asked_and_known(
        self, queries: Ragged | Tensor, context: Ragged | Tensor | None, *, turn: bool = True
    ) -> list[Any]:
        if context is None:
            return self._project(queries, "queries", "keys", "values", turn=turn)
        return [*self._project(queries, "queries", turn=turn), *self._project(context, "keys", "values", turn=turn)]

    def _project(self, sequences: Ragged | Tensor, *roles: str, offset: Offset = 0, turn: bool = True) -> list[Any]:
        """Project vectors, split them into heads or kv_heads, and rotate queries and keys."""
        layers: list[nn.Linear] = [getattr(self, role) for role in roles]
        vectors = _vectors(sequences, *{layer.in_features for layer in layers})
        compared = [layer.out_features for layer, role in zip(layers, roles, strict=True) if role != "values"]
        flat = linear(vectors, *layers)
        turning, still = flat.split([sum(compared), flat.shape[-1] - sum(compared)], -1)
        made: list[Tensor] = []
        if compared:
            heads = turning.unflatten(-1, (-1, self.dim))
            if self.turn is not None and turn:
                heads = self.turn.turn(heads, _places(sequences, offset)[..., None])
            made += heads.split([size // self.dim for size in compared], -2)
        if "values" in roles:
            made.append(still.unflatten(-1, (self.kv_heads, -1)))
        return [sequences.like(x) if isinstance(sequences, Ragged) else x.transpose(1, 2) for x in made]

    def _join(self, like: S, contexts: S) -> S:
        if isinstance(like, Ragged) and isinstance(contexts, Ragged):
            return like.like(linear(contexts.values.flatten(-2), self.out))
        return self.out(contexts.transpose(1, 2).flatten(-2))


def _vectors(sequences: Ragged | Tensor, *widths: int) -> Tensor:
    """The vectors of some sequences, found to be of the right width for all that read them."""
    if isinstance(sequences, Tensor) and sequences.ndim != 3:
        raise ShapeError(f"dense sequences must be (batch, time, width); got shape {tuple(sequences.shape)}")
    vectors = sequences.values if isinstance(sequences, Ragged) else sequences
    for width in widths:
        if vectors.shape[-1] != width:
            raise ShapeError(f"this attention reads vectors of width {width}; got width {vectors.shape[-1]}")
    return vectors


def _places(sequences: Ragged | Tensor, offset: Offset) -> Int[Tensor, ...]:
    """Each token's position: (token,) in a ragged batch; (time,) or (batch, time) in a dense one."""
    if isinstance(sequences, Ragged):
        return sequences.positions + (offset[sequences.layout.rows] if isinstance(offset, Tensor) else offset)
    time = torch.arange(sequences.shape[1], device=sequences.device)
    return time + (offset[:, None] if isinstance(offset, Tensor) else offset)
