"""A Transformer on padded batches, for tracing: encoder and cached decoder step.

They compute what the model defines (`regard.attention.reference`), from the same modules. Dense
tensors replace ragged batches, and lengths hide the padding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.masks import Mask, PaddingMask, everything
from regard.attention.reference import expand_kv_heads
from regard.axes import Site
from regard.models.families import AttentionDescription, describe
from regard.positions import BiasPosition


class DistanceTableBias(BiasPosition):
    """A bias by distance, tabulated: its own arithmetic may round differently elsewhere.

    T5's logarithmic buckets, for example, have edges on which the last bit of a logarithm decides.
    """

    is_additive = True

    def __init__(self, bias: Any, heads: int) -> None:
        super().__init__()
        self.limit: int = bias.constant_beyond
        head, ahead = torch.arange(heads).view(1, -1, 1, 1), torch.arange(2 * self.limit + 1)
        zero = torch.zeros(1, 1, 1, 1, dtype=torch.long)
        query, key = zero + self.limit, ahead.view(1, 1, 1, -1)
        scores = torch.zeros(1, heads, 1, len(ahead))
        table = bias(scores, Site(zero, head, query, key, zero)).detach()
        self.register_buffer("table", table[0, :, 0])

    table: Tensor

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        index = (site.key - site.query).clamp(-self.limit, self.limit) + self.limit
        return scores + self.table[site.head, index]


class AttentionView:
    """What the attentions of a stack share: positions, coordinates and allowed keys."""

    def __init__(self, positions: Tensor, site: Site, padding: Mask = everything) -> None:
        self.positions, self.site, self.padding = positions, site, padding
        self._allowed: dict[Mask, Tensor] = {}

    @classmethod
    def of(cls, batch: int, heads: int, queries: Tensor, keys: int, padding: Mask) -> AttentionView:
        """The view of queries at these positions on the first `keys` keys."""
        axes = torch.arange(batch), torch.arange(heads), torch.arange(queries.shape[0])
        row, key = axes[2].view(1, 1, -1, 1), torch.arange(keys).view(1, 1, 1, -1)
        batch_axis, head = axes[0].view(-1, 1, 1, 1), axes[1].view(1, -1, 1, 1)
        return cls(queries, Site(batch_axis, head, queries.view(1, 1, -1, 1), key, row), padding)

    def allowed(self, mask: Mask) -> Tensor:
        """The keys that a mask and the padding allow."""
        if mask not in self._allowed:
            self._allowed[mask] = (mask & self.padding)(self.site)
        return self._allowed[mask]


class DenseAttention(nn.Module):
    """The projections and the attention of one sublayer."""

    def __init__(self, described: AttentionDescription) -> None:
        super().__init__()
        parts: Any = described.parts
        bias, own = parts.bias, described.projections
        if bias is not None and bias.is_additive and not bias.needs_query:
            bias = bias if bias.constant_beyond is None else DistanceTableBias(bias, own.heads)
        self.heads, self.kv_heads, self.dim = own.heads, own.kv_heads, own.dim
        self.score, self.bias, self.normaliser = parts.score, bias, parts.normaliser
        self.rotation, self.out, self.mask = own.rotation, own.out, described.mask
        self.all_projection = concatenated(own.queries, own.keys, own.values)
        self.query_projection = concatenated(own.queries)
        self.memory_projection = concatenated(own.keys, own.values)

    def project(self, x: Tensor, view: AttentionView) -> list[Tensor]:
        """Queries, keys and values (batch, head, time, dim), rotated if the positions rotate."""
        compared = self.heads + self.kv_heads
        heads = self._split(self.all_projection(x))
        if self.rotation is None:
            return list(heads.split([self.heads, self.kv_heads, self.kv_heads], 1))
        both, values = heads.split([compared, self.kv_heads], 1)
        rotated = self.rotation.rotate(both, view.positions)
        return [*rotated.split([self.heads, self.kv_heads], 1), values]

    def memory(self, x: Tensor) -> list[Tensor]:
        """Keys and values of cross-attention."""
        return list(self._split(self.memory_projection(x)).split([self.kv_heads] * 2, 1))

    def queries(self, x: Tensor) -> Tensor:
        """Queries of cross-attention."""
        return self._split(self.query_projection(x))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, view: AttentionView) -> Tensor:
        """The sublayer's output."""
        keys, values = (expand_kv_heads(part, self.heads) for part in (keys, values))
        scores = self.score(queries, keys)
        if self.bias is not None:
            scores = self.bias.bind(queries)(scores, view.site)
        weights = self.normaliser(scores, view.allowed(self.mask))
        output: Tensor = self.out((weights @ values).transpose(1, 2).flatten(2))
        return output

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.dim)).transpose(1, 2)


def concatenated(*layers: nn.Linear) -> nn.Linear:
    """One linear layer with the outputs of several."""
    weight = torch.cat([layer.weight for layer in layers]).detach()
    joined = nn.Linear(weight.shape[1], len(weight), bias=layers[0].bias is not None)
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if layers[0].bias is not None:
        bias = torch.cat([layer.bias for layer in layers]).detach()
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined


class DenseLayer(nn.Module):
    """One layer: its attentions, feed-forward and norms."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        described = describe(layer)
        cross = described.cross_attention
        self.self_attention = DenseAttention(described.self_attention)
        self.cross_attention: Any = None if cross is None else DenseAttention(cross)
        self.feed_forward, self.norms = described.feed_forward, nn.ModuleList(described.norms)
        self.pre_norm = described.pre_norm

    def encode(self, x: Tensor, view: AttentionView) -> Tensor:
        """Self-attention and feed-forward."""
        attention = self.self_attention
        x = self._residual(0, x, lambda y: attention(*attention.project(y, view), view))
        return self._residual(1, x, self.feed_forward)

    def step(
        self,
        x: Tensor,
        view: AttentionView,
        source: AttentionView,
        memory: list[Tensor],
        past: list[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """One position, and the past with its keys and values."""
        own, cross = self.self_attention, self.cross_attention
        present: list[Tensor] = []

        def attend(y: Tensor) -> Tensor:
            queries, *new = own.project(y, view)
            present.extend(torch.cat(pair, 2) for pair in zip(past, new, strict=True))
            output: Tensor = own(queries, *present, view)
            return output

        x = self._residual(0, x, attend)
        x = self._residual(1, x, lambda y: cross(cross.queries(y), *memory, source))
        return self._residual(2, x, self.feed_forward), present

    def _residual(self, index: int, x: Tensor, act: Any) -> Tensor:
        """x + f(norm(x)), or norm(x + f(x))."""
        norm: Any = self.norms[index]
        return x + act(norm(x)) if self.pre_norm else norm(x + act(x))


class DenseEncoder(nn.Module):
    """(ids, lengths) → keys and values of the memory for each decoder layer, as a flat tuple."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embedding, self.norm = model.source, model.encoder_norm
        self.layers: Any = nn.ModuleList(DenseLayer(layer) for layer in model.encoder)
        crossing = (describe(layer).cross_attention for layer in model.decoder)
        self.crossing: Any = nn.ModuleList(DenseAttention(cross) for cross in crossing if cross)

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        batch, time = ids.shape
        heads, positions = self.crossing[0].heads, torch.arange(time)
        view = AttentionView.of(batch, heads, positions, time, PaddingMask(lengths))
        x = embed(self.embedding, ids, positions)
        for layer in self.layers:
            x = layer.encode(x, view)
        x = self.norm(x)
        return tuple(part for cross in self.crossing for part in cross.memory(x))


class DenseDecoderStep(nn.Module):
    """(tokens, lengths, memory, past) → logits of the next token and the longer past."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embedding, self.norm, self.output = model.target, model.decoder_norm, model.output
        self.layers: Any = nn.ModuleList(DenseLayer(layer) for layer in model.decoder)

    def forward(
        self, tokens: Tensor, lengths: Tensor, memory: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        batch, offset, heads = (
            tokens.shape[0],
            past[0].shape[2],
            self.layers[0].self_attention.heads,
        )
        positions = torch.arange(1) + offset
        view = AttentionView.of(batch, heads, positions, offset + 1, everything)
        source = AttentionView.of(batch, heads, positions, memory[0].shape[2], PaddingMask(lengths))
        x = embed(self.embedding, tokens[:, None], positions)
        longer: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            own = slice(2 * index, 2 * index + 2)
            x, present = layer.step(x, view, source, memory[own], past[own])
            longer += present
        logits: Tensor = self.output(self.norm(x)[:, 0])
        return logits, *longer


def embed(embedding: Any, ids: Tensor, positions: Tensor) -> Tensor:
    """Token vectors with their positions: (batch, time, width)."""
    vectors = F.embedding(ids, embedding.table) * embedding.scale
    if embedding.position is not None:
        vectors = vectors + embedding.position(positions)
    return vectors if embedding.norm is None else embedding.norm(vectors)
