"""Steady: a decoder whose tensors never move, so that a GPU repeats its step without being told what to do.

Slots hold a source each, with as many beams beside each other; each slot stands at a position of its own. What was said
and what was read lie in rooms of a fixed size. No sum depends on how large the rooms are or on who else is there, so
with as many slots a source is answered by the same numbers in any company.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.backends import triton
from regard.inference.fast_transformer import Block, Swift
from regard.inference.static_encoder import Reader, applied, fed, norms, placed
from regard.kernels.decoding.buffers import Clock, Turns
from regard.positions import Learned, Shaw

WIDEST, MOST = 128, 64  # dims of a head, and queries that read the same keys together
READ = 16_384  # source tokens read together, padding included


def cannot(model: Swift, *, beams: int, room: int = 1, memory: int = 1) -> str | None:
    """Why this model's decoder cannot be steady with such beams and rooms, for answers and for sources."""
    block, original = model.decoder[0], model.original
    if isinstance(block.attention.bias, Shaw):
        return "Shaw's positions look at the query, and no line by distance says what they add"
    if model.dim > WIDEST:
        return f"its heads have {model.dim} dims, more than {WIDEST}"
    if beams * block.heads > MOST * model.kv_heads:
        return (
            f"{beams} beams of {block.heads} heads in {model.kv_heads} kv_heads ask more than {MOST} questions at once"
        )
    for side, size in ((original.source.position, memory), (original.target.position, room)):
        if isinstance(side, Learned) and size > side.longest:
            return f"it has learned {side.longest} positions, fewer than the {size} of a room"
    return None


class Steady:
    """The decoder of a swift model for so many slots and beams, with room for so many positions said and read.

    `kernels` are the operations of a step: those in regard.kernels.decoding unless others are given."""

    def __init__(
        self, model: Swift, slots: int, beams: int, *, room: int, memory: int, kernels: ModuleType | Any = None
    ) -> None:
        if kernels is None:
            from regard.kernels.decoding import operations as decoding

            kernels = decoding
        self.model, self.kernels, self.slots, self.beams = model, kernels, slots, beams
        self.room, self.memory_room = room, memory
        table, depth, rows = model.tables[1], len(model.decoder), slots * beams
        self.device = table.device
        self.counts = torch.zeros(5, slots, dtype=torch.int32, device=self.device)
        self.clock = Clock(*self.counts)
        self.past = table.new_zeros(depth, rows, 2, model.kv_heads, room, model.dim)
        self.memory = table.new_zeros(depth, slots, 2, model.kv_heads, memory, model.dim)
        position, block = model.original.target.position, model.decoder[0]
        self.places = None if position is None else placed(position, room, self.device)
        self.turns = None if block.turn is None else Turns.of(block.turn, model.dim, room, self.device)
        self.line = None if block.attention.bias is None else _line(block, room, self.device)
        layers = [(layer.residual1, layer.residual2, layer.residual3) for layer in model.original.decoder]
        self.norms = norms(layers, model.original.decoder_norm)
        self.readers: dict[int, Reader] = {}

    def step(self, tokens: Int[Tensor, " row"], ancestors: Tensor | None) -> Float[Tensor, "row vocabulary"]:
        """Logits for what follows one more token in each row that is going, in float32."""
        model, kernels, clock, norms = self.model, self.kernels, self.clock, iter(self.norms)
        x, y = kernels.embed(tokens, model.tables[1], self.places, clock.time, next(norms))
        for block, (ask, out), past, memory in zip(model.decoder, model.crossing, self.past, self.memory, strict=True):
            said = kernels.recall(applied(kernels, block.asked, y), past, clock, ancestors, self.turns, self.line)
            y = kernels.add(x, said, block.out.turned, block.out.bias, next(norms))
            read = kernels.ask(applied(kernels, ask, y), memory, clock)
            y = kernels.add(x, read, out.turned, out.bias, next(norms))
            y = kernels.add(x, fed(kernels, block, y), block.outer.turned, block.outer.bias, next(norms))
        return kernels.logits(y, model.logits.turned)

    def read(self, sources: Sequence[Sequence[int]], room: int) -> Float[Tensor, "layer source 2 group time dim"]:
        """Keys and values of at most `batch(room)` sources (ends included) of such a room, for all layers. The next
        call may write over it."""
        if room not in self.readers:
            self.readers[room] = Reader(self.model, self.batch(room), room, self.kernels)
        return self.readers[room](sources)

    def batch(self, room: int) -> int:
        """How many sources of such a room are read together."""
        return max(1, min(self.slots, READ // room))

    def seat(self, slots: Int[Tensor, " some"], read: Tensor, counts: Int[Tensor, "5 some"]) -> None:
        """New sources for some slots: what was read of them, and their clocks."""
        self.memory.narrow(4, 0, read.shape[4]).index_copy_(1, slots, read)
        self.counts.index_copy_(1, slots, counts)


def _line(block: Block, room: int, device: torch.device) -> Float[Tensor, "head distance"]:
    """What a bias adds to the score of a key so many positions before the query."""
    heads = torch.empty(0, block.heads, device=device)
    with torch.no_grad():
        line = triton.line(block.attention.bias, room - 1, heads)
    return line[:, :room].flip(1).float().contiguous()
