"""StaticEncoder: a FastTransformer's encoder with static shapes, captured as a CUDA graph.

The shape is always the same, so the order of every sum is too: the encoding of a source does not
depend on the other sources of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.axes import Site
from regard.inference.cuda_graph import GraphedFunction
from regard.inference.fast_transformer import FastTransformer
from regard.inference.packed_layer import PackedLayer, PackedLinear
from regard.kernels.decoding.buffers import DecodingKernels, NormWeights, RotaryTable
from regard.models.layers import Sublayer, activate
from regard.models.parts import Embedding


class StaticEncoder:
    """Encodes `batch` sources of at most `capacity` tokens into the decoder's cross-attention keys
    and values."""

    def __init__(
        self, model: FastTransformer, batch: int, capacity: int, kernels: DecodingKernels
    ) -> None:
        self.model, self.batch, self.capacity, self.kernels = model, batch, capacity, kernels
        block = model.encoder[0]
        self.device = model.tables[0].device
        # The ids of each source, and its length in the last column.
        self.inputs = torch.ones(batch, capacity + 1, dtype=torch.int32, device=self.device)
        self.times = torch.arange(capacity, dtype=torch.int32, device=self.device).repeat(batch)
        position = model.original.source.position
        self.positions = (
            None if position is None else position_table(position, capacity, self.device)
        )
        self.rotations = None
        if block.rotation is not None:
            self.rotations = RotaryTable.of(block.rotation, model.dim, capacity, self.device)
        biased = block.self_attention.parts.bias is not None
        self.bias = self._dense_bias(block) if biased else None
        layers = [(layer.residual1, layer.residual2) for layer in model.original.encoder]
        self.norms = norms(layers, model.original.encoder_norm)
        self.embedding_norm = embedding_norm(model.original.source)
        self.graph = GraphedFunction(self._encode, self.device)

    def __call__(
        self, sources: Sequence[Sequence[int]]
    ) -> Float[Tensor, "layer source 2 kv_head time dim"]:
        """Keys and values of sources (END included) for all decoder layers, overwritten by the next
        call."""
        inputs = np.ones((self.batch, self.capacity + 1), np.int32)
        for row, ids in zip(inputs, sources, strict=False):
            row[: len(ids)], row[-1] = ids, len(ids)
        self.inputs.copy_(torch.from_numpy(inputs))
        return self.graph()[:, : len(sources)]

    def _encode(self) -> Float[Tensor, "layer source 2 kv_head time dim"]:
        model, kernels, norms = self.model, self.kernels, iter(self.norms)
        ids, lengths = self.inputs[:, :-1].flatten(), self.inputs[:, -1:]
        shape = (self.batch, self.capacity)
        padding = torch.zeros(shape, dtype=model.tables[0].dtype, device=self.device)
        hidden = self.times.view_as(padding) >= lengths
        padding = padding.masked_fill_(hidden, float("-inf"))[:, None, None]
        mask = padding if self.bias is None else self.bias + padding
        x, y = embed(
            kernels,
            ids,
            model.tables[0],
            self.positions,
            self.times,
            (self.embedding_norm, next(norms)),
        )
        for block in model.encoder:
            context = self._attend(block, y, mask)
            y = kernels.linear_add_norm(x, context, block.out.batched, block.out.bias, next(norms))
            inner = feed_forward(kernels, block, y)
            y = kernels.linear_add_norm(
                x, inner, block.outer.batched, block.outer.bias, next(norms)
            )
        depth, heads, dim = len(model.decoder), model.kv_heads, model.dim
        memory = linear(kernels, model.memory_kv, y).view(*shape, depth, 2, heads, dim)
        return memory.permute(2, 0, 3, 4, 1, 5)

    def _attend(self, block: PackedLayer, y: Tensor, mask: Tensor) -> Tensor:
        kv_heads, dim = self.model.kv_heads, self.model.dim
        parts = linear(self.kernels, block.qkv, y).view(self.batch, self.capacity, -1, dim)
        compared, values = parts.split((block.heads + kv_heads, kv_heads), 2)
        if self.rotations is not None:
            cos, sin, partner = self.rotations
            mates = compared.index_select(3, partner)
            compared = (compared * cos[:, None]).addcmul_(mates, sin[:, None]).to(y.dtype)
        q, k = compared.transpose(1, 2).split((block.heads, kv_heads), 1)
        grouped = kv_heads != block.heads
        context = F.scaled_dot_product_attention(
            q, k, values.transpose(1, 2), attn_mask=mask, enable_gqa=grouped
        )
        return context.transpose(1, 2).reshape(len(y), -1)

    def _dense_bias(self, block: PackedLayer) -> Float[Tensor, "1 head time time"]:
        """What the bias adds to each score."""
        table, time = self.model.tables[0], self.capacity
        grid = table.new_empty(1, block.heads, time, 1)
        bias: Any = block.self_attention.parts.bias
        with torch.no_grad():
            dense: Tensor = bias(table.new_zeros(()), Site.grid(grid, grid, 0))
        return dense.expand(1, block.heads, time, time).contiguous()


def position_table(position: Any, count: int, device: torch.device) -> Float[Tensor, "time width"]:
    """What the first `count` positions add to embeddings."""
    return position(torch.arange(count, device=device)).detach().float().contiguous()


def linear(
    kernels: DecodingKernels, weights: PackedLinear, y: Tensor, *, relu: bool = False
) -> Tensor:
    """y W + b."""
    return kernels.linear(y, weights.batched, weights.bias, relu=relu)


def feed_forward(kernels: DecodingKernels, block: PackedLayer, y: Tensor) -> Tensor:
    """The feed-forward up to its last product."""
    inner = linear(kernels, block.inner, y, relu=block.activation == "relu")
    if block.activation == "relu":
        return inner
    if block.activation == "swiglu":
        return kernels.swiglu(inner)
    return activate(inner, block.activation)


def embed(
    kernels: DecodingKernels,
    tokens: Tensor,
    table: Tensor,
    positions: Tensor | None,
    time: Tensor,
    norms: tuple[NormWeights | None, NormWeights | None],
) -> tuple[Tensor, Tensor]:
    """The residual stream x after the embedding's own norm, and the first layer's norm of x."""
    own, first = norms
    if own is None:
        return kernels.embed(tokens, table, positions, time, first)
    x, _ = kernels.embed(tokens, table, positions, time, None)
    x = _normalised(x, own)
    return x, (x if first is None else _normalised(x, first)).to(table.dtype)


def _normalised(x: Tensor, norm: NormWeights) -> Tensor:
    """A norm of float32 rows by torch."""
    weight, shape = norm.weight.float(), (x.shape[1],)
    if norm.bias is None:
        return torch.rms_norm(x, shape, weight, norm.eps)
    return torch.layer_norm(x, shape, weight, norm.bias.float(), norm.eps)


def embedding_norm(embedding: Embedding) -> NormWeights | None:
    """The norm after an embedding and its position, if there is one."""
    return None if embedding.norm is None else _norm(embedding.norm, pre_norm=False)


def norms(layers: Sequence[Sequence[Sublayer]], last: nn.Module) -> list[NormWeights | None]:
    """The norm after the embedding and after each residual sum. With pre-norm, that is the norm of
    the next sublayer, and finally the stack's own."""
    own = [_norm(sublayer.norm, sublayer.pre_norm) for layer in layers for sublayer in layer]
    return [*own, _norm(last, pre_norm=True)] if layers[0][0].pre_norm else [None, *own]


def _norm(norm: nn.Module, pre_norm: bool) -> NormWeights | None:
    if isinstance(norm, nn.Identity):
        return None
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    bias = norm.bias.detach() if isinstance(norm, nn.LayerNorm) else None
    return NormWeights(norm.weight.detach(), bias, norm.eps or 1e-6, pre_norm)
