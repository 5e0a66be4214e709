"""Reader: a swift model's encoder for dense tables of one shape, repeated by a GPU.

Always the same shape, so always the same sums: what is read of a source does not depend on who is read with it.
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
from regard.inference.cuda_graph import Repeated
from regard.inference.fast_transformer import Block, Swift
from regard.inference.packed_linear import Linear
from regard.kernels.decoding.buffers import Norm, Turns
from regard.models.layers import Sublayer


class Reader:
    """Reads `batch` sources of at most `room` tokens at once, and gives the keys and values that a decoder asks for."""

    def __init__(self, model: Swift, batch: int, room: int, kernels: Any) -> None:
        self.model, self.batch, self.room, self.kernels = model, batch, room, kernels
        table, block = model.tables[0], model.encoder[0]
        self.device = table.device
        self.told = torch.ones(batch, room + 1, dtype=torch.int32, device=self.device)  # ids, and at last how many
        self.where = torch.arange(room, dtype=torch.int32, device=self.device).repeat(batch)
        position = model.original.source.position
        self.places = None if position is None else placed(position, room, self.device)
        self.turns = None if block.turn is None else Turns.of(block.turn, model.dim, room, self.device)
        self.bias = None if block.attention.bias is None else self._written(block)
        self.norms = norms(
            [(layer.residual1, layer.residual2) for layer in model.original.encoder], model.original.encoder_norm
        )
        self.repeated = Repeated(self._read, self.device)

    def __call__(self, sources: Sequence[Sequence[int]]) -> Float[Tensor, "layer source 2 group time dim"]:
        """Of sources with their ends, for all layers of the decoder. The next call writes over it."""
        told = np.ones((self.batch, self.room + 1), np.int32)
        for row, ids in zip(told, sources, strict=False):
            row[: len(ids)], row[-1] = ids, len(ids)
        self.told.copy_(torch.from_numpy(told))
        return self.repeated()[:, : len(sources)]

    def _read(self) -> Float[Tensor, "layer source 2 group time dim"]:
        model, kernels, norms = self.model, self.kernels, iter(self.norms)
        ids, lengths = self.told[:, :-1].flatten(), self.told[:, -1:]
        seen = torch.zeros(self.batch, self.room, dtype=model.tables[0].dtype, device=self.device)
        seen = seen.masked_fill_(self.where.view_as(seen) >= lengths, float("-inf"))[:, None, None]
        mask = seen if self.bias is None else self.bias + seen
        x, y = kernels.embed(ids, model.tables[0], self.places, self.where, next(norms))
        for block in model.encoder:
            y = kernels.add(x, self._attend(block, y, mask), block.out.turned, block.out.bias, next(norms))
            y = kernels.add(x, fed(kernels, block, y), block.outer.turned, block.outer.bias, next(norms))
        held = applied(kernels, model.remembered, y).view(
            self.batch, self.room, len(model.decoder), 2, model.kv_heads, model.dim
        )
        return held.permute(2, 0, 3, 4, 1, 5)

    def _attend(self, block: Block, y: Tensor, mask: Tensor) -> Tensor:
        kv_heads, dim = self.model.kv_heads, self.model.dim
        parts = applied(self.kernels, block.asked, y).view(self.batch, self.room, -1, dim)
        compared, values = parts.split((block.heads + kv_heads, kv_heads), 2)
        if self.turns is not None:
            cos, sin, partner = self.turns
            mates = compared.index_select(3, partner)
            compared = (compared * cos[:, None]).addcmul_(mates, sin[:, None]).to(y.dtype)
        q, k = compared.transpose(1, 2).split((block.heads, kv_heads), 1)
        options: dict[str, Any] = {"attn_mask": mask, "enable_gqa": kv_heads != block.heads}
        found = F.scaled_dot_product_attention(q, k, values.transpose(1, 2), **options)
        return found.transpose(1, 2).reshape(len(y), -1)

    def _written(self, block: Block) -> Float[Tensor, "1 head time time"]:
        """What a bias adds to each score."""
        room, like = self.room, self.model.tables[0]
        site = Site.grid(like.new_empty(1, block.heads, room, 1), like.new_empty(1, block.heads, room, 1), 0)
        bias: Any = block.attention.bias
        with torch.no_grad():
            written: Tensor = bias(like.new_zeros(()), site)
        return written.expand(1, block.heads, room, room).contiguous()


def placed(position: Any, room: int, device: torch.device) -> Float[Tensor, "time width"]:
    """What the first positions add to embeddings."""
    return position(torch.arange(room, device=device)).detach().float().contiguous()


def applied(kernels: Any, linear: Linear, y: Tensor, *, relu: bool = False) -> Tensor:
    """y W + b."""
    found: Tensor = kernels.linear(y, linear.turned, linear.bias, relu=relu)
    return found


def fed(kernels: Any, block: Block, y: Tensor) -> Tensor:
    """The feed-forward up to its last product."""
    inner = applied(kernels, block.inner, y, relu=block.activation == "relu")
    if block.activation == "swiglu":
        inner = kernels.gate(inner)
    return F.gelu(inner) if block.activation == "gelu" else inner


def norms(layers: Sequence[Sequence[Sublayer]], last: nn.Module) -> list[Norm | None]:
    """The norm after the embedding and after each sublayer's sum. With norms before sublayers, that is the next one's,
    and at last the stack's own."""
    own = [_norm(part.norm, part.before) for layer in layers for part in layer]
    return [*own, _norm(last, before=True)] if layers[0][0].before else [None, *own]


def _norm(norm: nn.Module, before: bool) -> Norm | None:
    if isinstance(norm, nn.Identity):
        return None
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    bias = norm.bias.detach() if isinstance(norm, nn.LayerNorm) else None
    return Norm(norm.weight.detach(), bias, norm.eps or 1e-6, before)
