"""FastTransformer: an inference copy of a Transformer that computes the same numbers with fewer
operations.

Weights are packed once for products of few rows; projections that read the same vectors are one
matrix; residuals are added by the product that makes them; all KV caches are one tensor; and the
cross-attention to a single source is folded into the weights. In small models the number of
operator calls decides the speed of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Mask
from regard.attention.backends import sdpa
from regard.attention.cache import Padded
from regard.attention.masks import PaddingMask
from regard.attention.reference import intermediates
from regard.inference.inference_model import InferenceModel
from regard.inference.kv_cache import CachedState, KVCache
from regard.inference.packed_layer import (
    FoldedCrossAttention,
    PackedLayer,
    PackedLinear,
    Vectors,
    norm_function,
)
from regard.kernels.fused_linear import is_plain_linear
from regard.models.contract import Model
from regard.models.families import AttentionDescription, describe, unknown_part
from regard.models.transformer import Transformer
from regard.positions import AdditivePosition, Learned, Rotary
from regard.ragged import Layout, Ragged

INITIAL_POSITIONS = 64  # rows of a position table that are computed at first


def cannot(model: Model) -> str | None:
    """Why this model cannot run on the fast engine."""
    if reason := unknown_part(model):
        return reason
    assert isinstance(model, Transformer)
    if (backend := model.settings.attention_backend) not in ("auto", "sdpa"):
        return f"model.attention_backend = {backend!r} requests another backend"
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and not is_plain_linear(layer):
            return f"{name} is a linear layer with an adapter or a hook"
    return None


@dataclass(frozen=True, eq=False)
class EncodedSources:
    """The encoder's vectors, their layout, and the additive padding mask (None: no padding)."""

    vectors: Vectors
    layout: Layout
    lengths: Int[Tensor, " source"] | None
    padding: Float[Tensor, "source 1 1 time"] | None


class FastTransformer(InferenceModel[Transformer]):
    """An inference copy of a Transformer. Teacher-forced passes are the original's."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self.encoder = [PackedLayer(describe(layer)) for layer in model.encoder]
        self.decoder = [PackedLayer(describe(layer)) for layer in model.decoder]
        cross = [layer.cross_attention for layer in model.decoder]
        self.kv_heads, self.dim = cross[0].kv_heads, cross[0].dim
        self.memory_kv = PackedLinear.of(
            *(part for each in cross for part in (each.keys, each.values))
        )
        self.encoder_norm, self.decoder_norm = (
            norm_function(model.encoder_norm),
            norm_function(model.decoder_norm),
        )
        foldable = all(block.cross is not None and block.cross.is_plain for block in self.decoder)
        self.folding = FoldedCrossAttention(cross) if foldable else None
        bias = model.output.bias
        self.logits = PackedLinear.packed(
            model.output.table, None if bias is None else bias.detach()
        )
        self.tables = [side.table.detach() * side.scale for side in (model.source, model.target)]
        self.embedding_norms = [norm_function(side.norm) for side in (model.source, model.target)]
        self.added_positions = model.source.position, model.target.position
        self.rotations: dict[tuple[int, int], Tensor] = {}  # by encoding and position
        self.position_tables: dict[int, Tensor] = {}  # by encoding; grown on demand

    def encode(self, source: Ragged) -> EncodedSources:
        """A contextual vector for each source token."""
        layout = source.layout
        lengths = None if layout.is_uniform else layout.lengths
        padding = self._padding(layout, lengths)
        vectors = self._encode(source.values, layout, lengths, padding)
        return EncodedSources(vectors, layout, lengths, padding)

    def start(self, memory: EncodedSources) -> CachedState:
        """The state before the first token; projects the sources for all layers in one product."""
        rows = _pad_tokens(self.memory_kv(memory.vectors), memory.layout)
        cache = rows.unflatten(2, (-1, self.kv_heads, self.dim)).permute(0, 2, 3, 1, 4).contiguous()
        folded = None
        if self.folding is not None and rows.size(0) == 1 and cache.device.type == "cpu":
            folded = self.folding(cache) if self.folding.pays(memory.layout.longest) else None
        past = KVCache(cache.narrow(3, 0, 0), 0)
        return CachedState(past, 0, KVCache(cache, 0), memory.padding, memory.lengths, folded)

    def step(
        self, tokens: Int[Tensor, " row"], state: CachedState
    ) -> tuple[Float[Tensor, "row vocabulary"], CachedState]:
        """One position in each row."""
        after = state.grown()
        cache, depth = after.past.tensor, len(self.decoder)
        shape = (cache.size(0), depth, 2 * self.kv_heads, self.dim)
        slots = cache.select(3, state.time).view(shape).unbind(1)
        past = cache.narrow(3, 0, after.time).unbind(1)
        x = self.tables[1].index_select(0, tokens)
        if self.added_positions[1] is not None:
            x.add_(self._added(self.added_positions[1], state.time, 1))
        x = self.embedding_norms[1](x)
        for layer, block in enumerate(self.decoder):
            keys_values = past[2 * layer : 2 * layer + 2]
            slot = slots[layer]
            x = block.residual(
                0,
                x,
                lambda y: self._attend_past(block, y, slot, keys_values, state.time),  # noqa: B023
                block.out,
            )
            if after.folded is None:
                x = block.residual(
                    1,
                    x,
                    lambda y: self._attend_memory(layer, block, y, after),  # noqa: B023
                    block.cross_out,
                )
            else:
                x = block.residual(1, x, after.folded[layer].weights, after.folded[layer].out)
            x = block.residual(2, x, block.feed, block.outer)
        return self.logits(self.decoder_norm(x)), after

    def _encode(
        self,
        ids: Int[Tensor, " token"],
        layout: Layout,
        lengths: Int[Tensor, " source"] | None,
        padding: Tensor | None,
    ) -> Vectors:
        """All encoder layers; `lengths` where the rows of the layout differ in length."""
        x = self.tables[0].index_select(0, ids)
        if (added := self.added_positions[0]) is not None and layout.is_uniform:
            x.view(len(layout), layout.longest, -1).add_(self._added(added, 0, layout.longest))
        elif added is not None:
            x.add_(self._added(added, 0, layout.longest).index_select(0, layout.positions))
        x = self.embedding_norms[0](x)
        for block in self.encoder:
            x = block.residual(
                0,
                x,
                lambda y: self._attend_source(block, y, layout, lengths, padding),  # noqa: B023
                block.out,
            )
            x = block.residual(1, x, block.feed, block.outer)
        return self.encoder_norm(x)

    def _padding(
        self, layout: Layout, lengths: Int[Tensor, " source"] | None
    ) -> Float[Tensor, "source 1 1 time"] | None:
        """0 for real tokens and −∞ for padding."""
        if lengths is None:
            return None
        hidden = torch.arange(layout.longest, device=lengths.device) >= lengths[:, None]
        zeros = self.tables[0].new_zeros(hidden.shape)
        return zeros.masked_fill_(hidden, float("-inf"))[:, None, None]

    def _attend_source(
        self,
        block: PackedLayer,
        x: Vectors,
        layout: Layout,
        lengths: Int[Tensor, " source"] | None,
        padding: Tensor | None,
    ) -> Vectors:
        """Encoder self-attention. Tokens are padded to rows only here."""
        compared = block.heads + self.kv_heads
        parts = block.qkv(x).view(x.shape[0], compared + self.kv_heads, self.dim)
        if block.rotation is not None:
            rotated = block.rotation.rotate(parts[:, :compared], layout.positions[:, None])
            parts = torch.cat([rotated, parts[:, compared:]], 1)
        rows = _pad_tokens(parts, layout).transpose(1, 2)
        q, k, v = rows.split((block.heads, self.kv_heads, self.kv_heads), 1)
        if block.is_plain:
            grouped = self.kv_heads != block.heads
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=padding, enable_gqa=grouped)
        else:
            padded = Padded(q, lengths), Padded(k, lengths), Padded(v, lengths)
            context = _attend(block.self_attention, *padded, block.self_attention.mask, 0)
        flat = context.transpose(1, 2).reshape(len(layout) * layout.longest, -1)
        return flat if layout.is_uniform else flat.index_select(0, layout.padded_index)

    def _attend_past(
        self, block: PackedLayer, x: Vectors, slot: Tensor, keys_values: Sequence[Tensor], time: int
    ) -> Vectors:
        """Decoder self-attention: writes the new key and value to the cache, then attends."""
        rows = x.size(0)
        parts = block.qkv(x).view(rows, -1, self.dim)
        if block.rotation is not None:
            compared = parts.narrow(1, 0, block.heads + self.kv_heads)
            compared.copy_(self._rotated(block, compared, time))
        q, new = parts.split_with_sizes((block.heads, 2 * self.kv_heads), 1)
        slot.copy_(new)
        q, (k, v) = q.unsqueeze(2), keys_values
        if block.is_plain:
            grouped = self.kv_heads != block.heads
            context = F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)
        else:
            mask = block.self_attention.mask
            context = _attend(block.self_attention, Padded(q), Padded(k), Padded(v), mask, time)
        return context.reshape(rows, -1)

    def _attend_memory(
        self, layer: int, block: PackedLayer, x: Vectors, state: CachedState
    ) -> Vectors:
        """Cross-attention. Rows that share a source query it as positions of one sequence."""
        heads, cross = block.heads, block.cross
        assert cross is not None
        q = block.cross_queries(x).view(-1, state.share, heads, self.dim).transpose(1, 2)
        k, v = state.memory.layers[2 * layer : 2 * layer + 2]
        if cross.is_plain:
            grouped = self.kv_heads != heads
            context = F.scaled_dot_product_attention(
                q, k, v, attn_mask=state.padding, enable_gqa=grouped
            )
        else:
            known = Padded(k, state.lengths), Padded(v, state.lengths)
            context = _attend(cross, Padded(q), *known, cross.mask, 0)
        return context.transpose(1, 2).reshape(x.size(0), -1)

    def _added(
        self, position: AdditivePosition, start: int, count: int
    ) -> Float[Tensor, "time width"]:
        """The vectors of `count` positions from `start`, from a table that doubles on demand."""
        table, end = self.position_tables.get(id(position)), start + count
        if table is None or len(table) < end:
            size = max(INITIAL_POSITIONS, 1 << (end - 1).bit_length())
            if isinstance(
                position, Learned
            ):  # past its table, the encoding itself raises the error
                size = max(end, min(size, position.max_length))
            places = torch.arange(size, device=self.tables[0].device)
            table = position(places).detach().to(self.tables[0].dtype)
            self.position_tables[id(position)] = table
        return table.narrow(0, start, count)

    def _rotated(self, block: PackedLayer, vectors: Tensor, time: int) -> Tensor:
        """Queries and keys at position `time`, rotated. RoPE is one matrix for all heads."""
        rotation = block.rotation
        if type(rotation) is not Rotary:
            return rotation.rotate(vectors, torch.tensor([time], device=vectors.device))
        matrix = self.rotations.get((id(rotation), time))
        if matrix is None:
            unit = torch.eye(self.dim, device=vectors.device, dtype=vectors.dtype)
            matrix = rotation.rotate(unit, torch.tensor([time], device=unit.device))
            self.rotations[id(rotation), time] = matrix
        return (vectors.reshape(-1, self.dim) @ matrix).view(vectors.shape)


def _attend(
    attention: AttentionDescription,
    queries: Padded,
    keys: Padded,
    values: Padded,
    mask: Mask,
    offset: int,
) -> Tensor:
    """Attention with any parts: fused where torch's kernel can represent them."""
    if sdpa.cannot(attention.parts) is None:
        return sdpa.run(attention.parts, queries, keys, values, mask, offset)
    visible = mask if keys.lengths is None else mask & PaddingMask(keys.lengths)
    dense = queries.tensor, keys.tensor, values.tensor
    return intermediates(attention.parts, *dense, visible, offset).context


def _pad_tokens(
    tokens: Float[Tensor, "token ..."], layout: Layout
) -> Float[Tensor, "source time ..."]:
    """Tokens as rows of one length. Shorter rows continue with the next row's tokens, which the
    padding mask hides: gathering everywhere is faster than writing into zeros."""
    if not layout.is_uniform:
        times = torch.arange(layout.longest, device=tokens.device)
        places = (layout.offsets[:-1, None] + times).clamp_(max=layout.tokens - 1)
        tokens = tokens.index_select(0, places.flatten())
    return tokens.view(len(layout), layout.longest, *tokens.shape[1:])
