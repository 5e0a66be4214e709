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
from regard.attention.reference import Bias, Intermediates, Rotation
from regard.attention.scores import SCORES, Score
from regard.axes import Offset
from regard.errors import ShapeError
from regard.kernels.fused_linear import linear
from regard.ragged import Ragged

S = TypeVar("S", Ragged, Tensor)


class MultiHead(nn.Module):
    """concat(head₁ … headₕ) W_O, headᵢ = attention(x W_Qᵢ, z W_Kᵢ, z W_Vᵢ) (Vaswani et al. 2017).

    Widths are free: queries x of `width` (d_X), context z of width `context` (d_Z), attention space
    `attention` (d_attn, over all heads), values of width `values` over all heads, output `out`
    (d_out). Each defaults to `width`, and `values` to `attention`. With `kv_heads` below `heads`,
    several heads share keys and values (grouped-query attention, Ainslie et al. 2023).

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
        rotation: Rotation | None = None,
        normaliser: str | Normaliser = "softmax",
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if heads < 1 or (kv_heads is not None and kv_heads < 1):
            raise ShapeError(
                f"heads and kv_heads must be at least 1; got heads={heads}, kv_heads={kv_heads}"
            )
        attention, kv_heads = attention or width, kv_heads or heads
        values = values or attention
        for name, size, parts in (
            ("attention", attention, heads),
            ("values", values, heads),
            ("heads", heads, kv_heads),
        ):
            if size % parts:
                raise ShapeError(f"{name} = {size} cannot be split into {parts} equal parts")
        self.heads, self.kv_heads = heads, kv_heads
        self.dim = attention // heads
        self.queries = nn.Linear(width, attention, biases)
        self.keys = nn.Linear(context or width, kv_heads * self.dim, biases)
        self.values = nn.Linear(context or width, kv_heads * (values // heads), biases)
        self.out = nn.Linear(values, out or width, biases)
        if isinstance(score, str):
            score = SCORES.choose(score)(heads, self.dim)
        self.attention = Attention(
            score, bias=bias, normaliser=normaliser, dropout=dropout, backend=backend
        )
        self.rotation = rotation

    def forward(self, queries: S, context: S | None = None, *, mask: Mask = everything) -> S:
        """All positions at once: self-attention, or attention to a `context`."""
        # GPU kernels rotate what they read; a CPU rotates queries and keys together, in one pass.
        late = self.rotation if _vectors(queries).is_cuda else None
        projected = self._queries_keys_values(queries, context, rotate=late is None)
        return self._merge(queries, self.attention(*projected, mask=mask, rotation=late))

    def intermediates(
        self, queries: S, context: S | None = None, *, mask: Mask = everything
    ) -> Intermediates:
        """All intermediate results, for inspection: weights are (batch, head, query, key)."""
        projected = self._queries_keys_values(queries, context)
        return self.attention.intermediates(*projected, mask=mask)

    def extend_cache(self, context: Ragged | Tensor, cache: Cache | None = None) -> Cache:
        """A cache with the keys and values of `context` appended."""
        cache = cache or Cache()
        return cache.append(*self._project(context, "keys", "values", offset=cache.offset))

    def attend_cached(
        self, queries: S, cache: Cache, *, mask: Mask = everything, offset: Offset = 0
    ) -> S:
        """Attend to the cached keys and values; each row's first query is at `offset`."""
        (projected,) = self._project(queries, "queries", offset=offset)
        context = self.attention(projected, cache.keys, cache.values, mask=mask, offset=offset)
        return self._merge(queries, context)

    def step(self, queries: S, cache: Cache, *, mask: Mask = everything) -> tuple[S, Cache]:
        """Self-attention of the next positions: append them to the cache, then attend to it."""
        roles = "queries", "keys", "values"
        projected, *keys_values = self._project(queries, *roles, offset=cache.offset)
        grown = cache.append(*keys_values)
        context = self.attention(
            projected, grown.keys, grown.values, mask=mask, offset=cache.offset
        )
        return self._merge(queries, context), grown

    def _queries_keys_values(
        self, queries: Ragged | Tensor, context: Ragged | Tensor | None, *, rotate: bool = True
    ) -> list[Any]:
        if context is None:
            return self._project(queries, "queries", "keys", "values", rotate=rotate)
        keys_values = self._project(context, "keys", "values", rotate=rotate)
        return [*self._project(queries, "queries", rotate=rotate), *keys_values]

    def _project(
        self, sequences: Ragged | Tensor, *roles: str, offset: Offset = 0, rotate: bool = True
    ) -> list[Any]:
        """Project to queries, keys or values, split into heads; queries and keys are rotated."""
        layers: list[nn.Linear] = [getattr(self, role) for role in roles]
        vectors = _vectors(sequences, *{layer.in_features for layer in layers})
        compared = [
            layer.out_features
            for layer, role in zip(layers, roles, strict=True)
            if role != "values"
        ]
        flat = linear(vectors, *layers)
        queries_keys, values = flat.split([sum(compared), flat.shape[-1] - sum(compared)], -1)
        projected: list[Tensor] = []
        if compared:
            heads = queries_keys.unflatten(-1, (-1, self.dim))
            if self.rotation is not None and rotate:
                heads = self.rotation.rotate(heads, _positions(sequences, offset)[..., None])
            projected += heads.split([size // self.dim for size in compared], -2)
        if "values" in roles:
            projected.append(values.unflatten(-1, (self.kv_heads, -1)))
        if isinstance(sequences, Ragged):
            return [sequences.like(x) for x in projected]
        return [x.transpose(1, 2) for x in projected]

    def _merge(self, like: S, contexts: S) -> S:
        """Concatenate the heads and apply the output projection."""
        if isinstance(like, Ragged) and isinstance(contexts, Ragged):
            return like.like(linear(contexts.values.flatten(-2), self.out))
        return self.out(contexts.transpose(1, 2).flatten(-2))


def _vectors(sequences: Ragged | Tensor, *widths: int) -> Tensor:
    """The vectors of the sequences, after checking their width against that of each layer."""
    if isinstance(sequences, Tensor) and sequences.ndim != 3:
        raise ShapeError(
            f"dense sequences must be (batch, time, width); got shape {tuple(sequences.shape)}"
        )
    vectors = sequences.values if isinstance(sequences, Ragged) else sequences
    for width in widths:
        if vectors.shape[-1] != width:
            raise ShapeError(
                f"this attention takes vectors of width {width}; got width {vectors.shape[-1]}"
            )
    return vectors


def _positions(sequences: Ragged | Tensor, offset: Offset) -> Int[Tensor, ...]:
    """Each token's position: (token,) if ragged, else (time,) or (batch, time)."""
    if isinstance(sequences, Ragged):
        start = offset[sequences.layout.rows] if isinstance(offset, Tensor) else offset
        return sequences.positions + start
    time = torch.arange(sequences.shape[1], device=sequences.device)
    return time + (offset[:, None] if isinstance(offset, Tensor) else offset)
