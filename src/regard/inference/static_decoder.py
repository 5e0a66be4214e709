"""StaticDecoder: a decoder with static shapes, so that its step can be captured as a CUDA graph.

Each slot holds one source with its beams and its own position. Prefixes and memories lie in buffers
of fixed capacity. No sum depends on the capacity or on other slots, so with the same number of
slots a source gets the same numbers in any company.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.backends import triton
from regard.inference.fast_transformer import FastTransformer
from regard.inference.packed_layer import PackedLayer
from regard.inference.static_encoder import (
    StaticEncoder,
    embed,
    embedding_norm,
    feed_forward,
    linear,
    norms,
    position_table,
)
from regard.kernels.decoding.buffers import DecodingKernels, RotaryTable, SlotState
from regard.positions import T5, Alibi, Distance, Learned, Rotary

MAX_DIM = 128  # dims of a head
MAX_QUERIES = 64  # queries that read the same keys together
ENCODER_TOKENS = 16_384  # source tokens encoded together, padding included
DISTANCE_BIASES = (Alibi, Distance, T5)  # biases that depend on the distance alone


def cannot(model: FastTransformer, *, beams: int, capacity: int = 1, memory: int = 1) -> str | None:
    """Why this model cannot decode with static shapes, such beams and such capacities."""
    original, heads = model.original, model.decoder[0].heads
    for side, blocks in (("encoder", model.encoder), ("decoder", model.decoder)):
        for layer, block in enumerate(blocks):
            if reason := _unsupported(block):
                return f"{side} layer {layer}: {reason}"
    if model.dim > MAX_DIM:
        return f"its heads have {model.dim} dims, more than {MAX_DIM}"
    if beams * heads > MAX_QUERIES * model.kv_heads:
        queries = f"{beams} beams of {heads} heads on {model.kv_heads} kv_heads"
        return f"{queries} are more than {MAX_QUERIES} queries per key head"
    for table, size in ((original.source.position, memory), (original.target.position, capacity)):
        if isinstance(table, Learned) and size > table.max_length:
            return f"it has learned {table.max_length} positions, fewer than the {size} needed"
    return None


def _unsupported(block: PackedLayer) -> str | None:
    """The first part of a layer that the kernels do not implement."""
    attention, cross = block.self_attention, block.cross
    bias, rotation = attention.parts.bias, block.rotation
    for each in (attention, *([cross] if cross is not None else [])):
        if not each.is_scaled_dot_softmax:
            names = type(each.parts.score).__name__, type(each.parts.normaliser).__name__
            return f"its kernels compute scaled-dot and softmax, not {names[0]} and {names[1]}"
    if cross is not None and not cross.is_plain:
        return "its kernels support no bias in cross-attention"
    if bias is None and not attention.is_plain:
        return f"its kernels do not support the mask {attention.mask}"
    if bias is not None and (type(bias) not in DISTANCE_BIASES or "window" in repr(attention.mask)):
        return f"its kernels do not support {type(bias).__name__} with the mask {attention.mask}"
    if rotation is not None and type(rotation) is not Rotary:
        return f"its kernels do not support the rotation {type(rotation).__name__}"
    return None


class StaticDecoder:
    """The decoder of a FastTransformer for fixed numbers of slots and beams, with buffers for
    `capacity` target and `memory` source positions.

    `kernels` implements the operations of a step: regard.kernels.decoding unless given.
    """

    def __init__(
        self,
        model: FastTransformer,
        slots: int,
        beams: int,
        *,
        capacity: int,
        memory: int,
        kernels: DecodingKernels | None = None,
    ) -> None:
        if kernels is None:
            from regard.kernels.decoding import operations

            kernels = operations
        self.model, self.kernels, self.slots, self.beams = model, kernels, slots, beams
        self.capacity, self.memory_capacity = capacity, memory
        table, depth, rows = model.tables[1], len(model.decoder), slots * beams
        self.device = table.device
        self.counts = torch.zeros(5, slots, dtype=torch.int32, device=self.device)
        self.clock = SlotState(*self.counts)
        self.past = table.new_zeros(depth, rows, 2, model.kv_heads, capacity, model.dim)
        self.memory = table.new_zeros(depth, slots, 2, model.kv_heads, memory, model.dim)
        position, block = model.original.target.position, model.decoder[0]
        self.positions = (
            None if position is None else position_table(position, capacity, self.device)
        )
        rotation, bias = block.rotation, block.self_attention.parts.bias
        self.rotations = None
        if rotation is not None:
            self.rotations = RotaryTable.of(rotation, model.dim, capacity, self.device)
        self.bias = None if bias is None else _bias_by_distance(block, capacity, self.device)
        layers = [
            (layer.residual1, layer.residual2, layer.residual3) for layer in model.original.decoder
        ]
        self.norms = norms(layers, model.original.decoder_norm)
        self.embedding_norm = embedding_norm(model.original.target)
        self.encoders: dict[int, StaticEncoder] = {}

    def step(
        self, tokens: Int[Tensor, " row"], ancestors: Tensor | None
    ) -> Float[Tensor, "row vocabulary"]:
        """Logits after one more token in each active row, in float32."""
        model, kernels, clock, norms = self.model, self.kernels, self.clock, iter(self.norms)
        x, y = embed(
            kernels,
            tokens,
            model.tables[1],
            self.positions,
            clock.time,
            (self.embedding_norm, next(norms)),
        )
        for block, past, memory in zip(model.decoder, self.past, self.memory, strict=True):
            qkv = linear(kernels, block.qkv, y)
            context = kernels.cached_attention(
                qkv, past, clock, ancestors, self.rotations, self.bias
            )
            y = kernels.linear_add_norm(x, context, block.out.batched, block.out.bias, next(norms))
            context = kernels.cross_attention(
                linear(kernels, block.cross_queries, y), memory, clock
            )
            y = kernels.linear_add_norm(
                x, context, block.cross_out.batched, block.cross_out.bias, next(norms)
            )
            inner = feed_forward(kernels, block, y)
            y = kernels.linear_add_norm(
                x, inner, block.outer.batched, block.outer.bias, next(norms)
            )
        logits, bias = kernels.logits(y, model.logits.batched), model.logits.bias
        return logits if bias is None else logits + bias

    def encode(
        self, sources: Sequence[Sequence[int]], capacity: int
    ) -> Float[Tensor, "layer source 2 kv_head time dim"]:
        """Keys and values of at most `encoder_batch(capacity)` sources (END included), for all
        layers. The next call may overwrite them."""
        if capacity not in self.encoders:
            batch = self.encoder_batch(capacity)
            self.encoders[capacity] = StaticEncoder(self.model, batch, capacity, self.kernels)
        return self.encoders[capacity](sources)

    def encoder_batch(self, capacity: int) -> int:
        """How many sources of such a capacity are encoded together."""
        return max(1, min(self.slots, ENCODER_TOKENS // capacity))

    def fill(
        self, slots: Int[Tensor, " some"], memory: Tensor, counts: Int[Tensor, "5 some"]
    ) -> None:
        """Start new sources in some slots: their keys and values, and their counters."""
        self.memory.narrow(4, 0, memory.shape[4]).index_copy_(1, slots, memory)
        self.counts.index_copy_(1, slots, counts)


def _bias_by_distance(
    block: PackedLayer, capacity: int, device: torch.device
) -> Float[Tensor, "head distance"]:
    """What a bias adds to the score of a key at each distance before the query."""
    heads = torch.empty(0, block.heads, device=device)
    with torch.no_grad():
        line = triton.bias_by_distance(block.self_attention.parts.bias, capacity - 1, heads)
    return line[:, :capacity].flip(1).float().contiguous()
