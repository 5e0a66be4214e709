"""Swift: a Transformer for search. The same numbers from few operations: a step of a small model costs what calling its
operations costs.

Weights are laid out once for products of few rows, those that read the same vectors lie side by side, and all caches
are one tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention, MultiHead, causal, everything
from regard.attention.backends import sdpa
from regard.attention.padded import Padded
from regard.models.contract import Model
from regard.models.held import HeldState, Room
from regard.models.layers import FeedForward, Sublayer
from regard.models.transformer import Transformer
from regard.positions import Added
from regard.ragged import Layout, Ragged

Vectors = Float[Tensor, "row width"]


def swift(model: Model) -> Model:
    """The model as fast as it can be searched: a Transformer's twin, with its weights of now."""
    if isinstance(model, Transformer) and model.settings.backend in ("auto", "sdpa"):
        return Swift(model)
    return model


class Linear:
    """x Wᵀ + b for layers that read the same x. On a CPU several rows go faster through W laid out the other way."""

    def __init__(self, *weights: Tensor, biases: list[Tensor | None]) -> None:
        self.weight = torch.cat(weights).detach()
        self.bias = None if biases[0] is None else torch.cat([bias for bias in biases if bias is not None]).detach()
        self.turned = self.weight.t().contiguous() if self.weight.device.type == "cpu" else self.weight.t()

    @classmethod
    def of(cls, *layers: nn.Linear) -> Linear:
        """Those of some modules, side by side."""
        return cls(*(layer.weight for layer in layers), biases=[layer.bias for layer in layers])

    def __call__(self, x: Vectors) -> Float[Tensor, "row out"]:
        if x.size(0) == 1:
            return F.linear(x, self.weight, self.bias)
        return x @ self.turned if self.bias is None else torch.addmm(self.bias, x, self.turned)


class Block:
    """A layer: the projections of its attentions, its feed-forward, and the norm of each residual."""

    def __init__(self, attention: MultiHead, feed: FeedForward, *residuals: Sublayer) -> None:
        self.attention, self.heads, self.turn = attention.attention, attention.heads, attention.turn
        self.asked = Linear.of(attention.queries, attention.keys, attention.values)
        self.out = Linear.of(attention.out)
        self.inner, self.outer, self.activation = Linear.of(feed.inner), Linear.of(feed.outer), feed.activation
        self.norms, self.before = [_norm(residual.norm) for residual in residuals], residuals[0].before

    def residual(self, place: int, x: Vectors, act: Callable[[Vectors], Vectors]) -> Vectors:
        """x + f(norm(x)), or norm(x + f(x))."""
        norm = self.norms[place]
        return x + act(norm(x)) if self.before else norm(x + act(x))

    def feed(self, x: Vectors) -> Vectors:
        """The feed-forward."""
        inner = self.inner(x)
        if self.activation == "swiglu":
            gate, inner = inner.chunk(2, -1)
            return self.outer(F.silu(gate).mul_(inner))
        return self.outer(inner.relu_() if self.activation == "relu" else F.gelu(inner))


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoder's vectors, whose they are, and what padding them hides: 0, or −∞ where nothing is (None: nothing)."""

    vectors: Vectors
    layout: Layout
    seen: Float[Tensor, "source 1 1 time"] | None


class Swift(Model):
    """The twin of a Transformer. Passes over whole prefixes are the original's."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.original = model
        self.encoder = [
            Block(layer.self_attention, layer.feed_forward, layer.residual1, layer.residual2) for layer in model.encoder
        ]
        self.decoder = [
            Block(layer.self_attention, layer.feed_forward, layer.residual1, layer.residual2, layer.residual3)
            for layer in model.decoder
        ]
        looks = [layer.cross_attention for layer in model.decoder]
        self.groups, self.dim = looks[0].groups, looks[0].dim
        self.crossing = [(Linear.of(look.queries), Linear.of(look.out)) for look in looks]
        self.remembered = Linear.of(*(role for look in looks for role in (look.keys, look.values)))
        self.encoder_norm, self.decoder_norm = _norm(model.encoder_norm), _norm(model.decoder_norm)
        self.logits = Linear(model.output.table, biases=[None])
        self.tables = [side.table.detach() * side.scale for side in (model.source, model.target)]
        self.turns: dict[int, Tensor] = {}  # by position, made when first needed
        self.places: dict[tuple[int, int, int], Tensor] = {}

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The original's."""
        return self.original.read(source, prefix)

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """The original's."""
        return self.original.project(vectors)

    def looks(self) -> list[Attention]:
        """The original's."""
        return self.original.looks()

    def encode(self, source: Ragged) -> Memory:
        """A vector for each source token."""
        layout, seen = source.layout, None
        if not layout.even:
            hidden = torch.arange(layout.longest, device=source.values.device) >= layout.lengths[:, None]
            seen = self.tables[0].new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))[:, None, None]
        x = self.tables[0].index_select(0, source.values)
        if self.original.source.position is not None:
            x += self._added(self.original.source.position, 0, layout.longest).index_select(0, layout.positions)
        for block in self.encoder:
            x = block.residual(0, x, lambda y, block=block: self._read(block, y, layout, seen))  # type: ignore[misc]
            x = block.residual(1, x, block.feed)
        return Memory(self.encoder_norm(x), layout, seen)

    def start(self, memory: Memory) -> HeldState:
        """Nothing said yet; keys and values of the sources, for all layers in one product."""
        rows = _spread(self.remembered(memory.vectors), memory.layout)
        held = rows.unflatten(2, (len(self.decoder), 2, self.groups, self.dim)).permute(2, 0, 3, 4, 1, 5)
        return HeldState(Room(held[:, :, :, :, :0], 0), 0, Room(held.contiguous(), 0), memory.seen)

    def step(self, tokens: Int[Tensor, " row"], state: HeldState) -> tuple[Float[Tensor, "row vocabulary"], HeldState]:
        """One position in each row."""
        after = state.grown()
        x, turned = self.tables[1].index_select(0, tokens), self._turned(state.time)
        if self.original.target.position is not None:
            x += self._added(self.original.target.position, state.time, 1)
        for layer, block in enumerate(self.decoder):
            x = block.residual(0, x, lambda y: self._recall(layer, y, after, turned))  # noqa: B023
            x = block.residual(1, x, lambda y: self._cross(layer, y, after))  # noqa: B023
            x = block.residual(2, x, block.feed)
        return self.logits(self.decoder_norm(x)), after

    def _read(self, block: Block, x: Vectors, layout: Layout, seen: Tensor | None) -> Vectors:
        """Self-attention among the tokens of each source; only here they are padded."""
        compared = block.heads + self.groups
        parts = block.asked(x).view(x.shape[0], compared + self.groups, self.dim)
        if block.turn is not None:
            turned = block.turn.turn(parts[:, :compared], layout.positions[:, None])
            parts = torch.cat([turned, parts[:, compared:]], 1)
        rows = _spread(parts, layout).transpose(1, 2)
        q, k, v = rows.split((block.heads, self.groups, self.groups), 1)
        if block.attention.bias is None:
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=self.groups != block.heads)
        else:
            lengths = None if layout.even else layout.lengths
            padded = Padded(q, lengths), Padded(k, lengths), Padded(v, lengths)
            found = sdpa.run(block.attention, *padded, everything, 0)
        flat = found.transpose(1, 2).reshape(len(layout) * layout.longest, -1)
        return block.out(flat if layout.even else flat.index_select(0, layout.slots))

    def _recall(self, layer: int, x: Vectors, state: HeldState, turned: Tensor | None) -> Vectors:
        """Self-attention to what was said, this position included."""
        block, rows, time = self.decoder[layer], x.size(0), state.time
        parts = block.asked(x).view(rows, -1, self.dim)
        if turned is not None:
            compared = parts.narrow(1, 0, block.heads + self.groups)
            compared.copy_((compared.reshape(-1, self.dim) @ turned).view(compared.shape))
        held = state.room.layers[layer]
        held.select(3, time - 1).copy_(parts.narrow(1, block.heads, 2 * self.groups).view(rows, 2, self.groups, -1))
        q = parts.narrow(1, 0, block.heads).unsqueeze(2)
        k, v = held.narrow(3, 0, time).unbind(1)
        if block.attention.bias is None:
            found = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.groups != block.heads)
        else:
            found = sdpa.run(block.attention, Padded(q), Padded(k), Padded(v), causal, time - 1)
        return block.out(found.reshape(rows, -1))

    def _cross(self, layer: int, x: Vectors, state: HeldState) -> Vectors:
        """Attention to the source; rows that share one ask it together, as if they were positions of one sequence."""
        block, (ask, out) = self.decoder[layer], self.crossing[layer]
        q = ask(x).view(-1, state.share, block.heads, self.dim).transpose(1, 2)
        k, v = state.memory.layers[layer].unbind(1)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=state.seen, enable_gqa=self.groups != block.heads)
        return out(found.transpose(1, 2).reshape(x.shape[0], -1))

    def _added(self, position: Added, start: int, count: int) -> Float[Tensor, "time width"]:
        """What so many positions from `start` on add to embeddings; computed once."""
        key = (id(position), start, count)
        if key not in self.places:
            places = torch.arange(start, start + count, device=self.tables[0].device)
            self.places[key] = position(places).to(self.tables[0].dtype)
        return self.places[key]

    def _turned(self, time: int) -> Float[Tensor, "dim dim"] | None:
        """Turning is linear: one matrix, the same for all heads and layers, turns what stands at a position."""
        turn = self.decoder[0].turn
        if turn is not None and time not in self.turns:
            unit = torch.eye(self.dim, device=self.tables[1].device, dtype=self.tables[1].dtype)
            self.turns[time] = turn.turn(unit, torch.tensor([time], device=unit.device))
        return self.turns.get(time)


def _spread(tokens: Float[Tensor, "token ..."], layout: Layout) -> Float[Tensor, "source time ..."]:
    """Tokens as rows of one length, with zeros behind the shorter ones."""
    if not layout.even:
        tokens = tokens.new_zeros(len(layout) * layout.longest, *tokens.shape[1:]).index_copy_(0, layout.slots, tokens)
    return tokens.view(len(layout), layout.longest, *tokens.shape[1:])


def _norm(norm: nn.Module) -> Callable[[Vectors], Vectors]:
    """A norm without the cost of calling a module."""
    if isinstance(norm, nn.Identity):
        return lambda x: x
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    shape, weight = norm.normalized_shape, norm.weight
    if isinstance(norm, nn.RMSNorm):
        return lambda x, eps=norm.eps: torch.rms_norm(x, shape, weight, eps)  # type: ignore[misc]
    return lambda x, bias=norm.bias, eps=norm.eps: torch.layer_norm(x, shape, weight, bias, eps)  # type: ignore[misc]
