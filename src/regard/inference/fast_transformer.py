"""Swift: a Transformer for search. The same numbers from few operations: a step of a small model costs what calling its
operations costs.

Weights are laid out once for products of few rows, those that read the same vectors lie side by side, what is added is
added by the product that makes it, all caches are one tensor, and one source alone is folded into the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import MultiHead, causal, everything
from regard.attention.backends import sdpa
from regard.attention.padded import Padded
from regard.inference.folded_cross_attention import Folding
from regard.inference.inference_model import StandIn
from regard.inference.kv_cache import HeldState, Room
from regard.inference.packed_linear import Linear, Vectors
from regard.inference.uncached import Whole
from regard.kernels.fused_linear import listeners, plain
from regard.models.contract import Model
from regard.models.ensemble import Ensemble
from regard.models.layers import FeedForward, Sublayer
from regard.models.transformer import Transformer
from regard.positions import Added, Learned
from regard.ragged import Layout, Ragged

SOME = 64  # positions that are laid out at first


def swift(model: Model) -> Model:
    """The model as fast as it can be searched: a Transformer's twin with its weights of now, or each member's. One that
    somebody listens to is searched by whole passes, one with layers of other kinds as it is."""
    if isinstance(model, Ensemble):
        return Ensemble([swift(member) for member in model])
    if any(map(listeners, model.modules())):
        return Whole(model)
    own = all(plain(part) for part in model.modules() if isinstance(part, nn.Linear))
    if isinstance(model, Transformer) and model.settings.attention_backend in ("auto", "sdpa") and own:
        return Swift(model)
    return model


class Block:
    """A layer: the projections of its attentions, its feed-forward, and the norm of each residual."""

    def __init__(self, attention: MultiHead, feed: FeedForward, *residuals: Sublayer) -> None:
        self.attention, self.heads, self.turn = attention.attention, attention.heads, attention.turn
        self.asked = Linear.of(attention.queries, attention.keys, attention.values)
        self.out = Linear.of(attention.out)
        self.inner, self.outer, self.activation = Linear.of(feed.inner), Linear.of(feed.outer), feed.activation
        self.norms, self.before = [_norm(residual.norm) for residual in residuals], residuals[0].before

    def residual(self, place: int, x: Vectors, act: Callable[[Vectors], Vectors], out: Linear) -> Vectors:
        """x + out(f(norm(x))), or norm(x + out(f(x))). The x that is given is written over."""
        norm = self.norms[place]
        return out.onto(x, act(norm(x))) if self.before else norm(out.onto(x, act(x)))

    def feed(self, x: Vectors) -> Float[Tensor, "row hidden"]:
        """The feed-forward up to its last product."""
        inner = self.inner(x)
        if self.activation == "swiglu":
            gate, inner = inner.chunk(2, -1)
            return F.silu(gate).mul_(inner)
        return inner.relu_() if self.activation == "relu" else F.gelu(inner)


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoder's vectors, whose they are, and what padding them hides: 0, or −∞ where nothing is (None: nothing)."""

    vectors: Vectors
    layout: Layout
    seen: Float[Tensor, "source 1 1 time"] | None


class Swift(StandIn[Transformer]):
    """The twin of a Transformer. Passes over whole prefixes are the original's."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self.encoder = [
            Block(layer.self_attention, layer.feed_forward, layer.residual1, layer.residual2) for layer in model.encoder
        ]
        self.decoder = [
            Block(layer.self_attention, layer.feed_forward, layer.residual1, layer.residual2, layer.residual3)
            for layer in model.decoder
        ]
        looks = [layer.cross_attention for layer in model.decoder]
        self.kv_heads, self.dim = looks[0].kv_heads, looks[0].dim
        self.crossing = [(Linear.of(look.queries), Linear.of(look.out)) for look in looks]
        self.remembered = Linear.of(*(role for look in looks for role in (look.keys, look.values)))
        self.encoder_norm, self.decoder_norm = _norm(model.encoder_norm), _norm(model.decoder_norm)
        self.folding = Folding(looks)
        self.logits = Linear.laid(model.output.table)
        self.tables = [side.table.detach() * side.scale for side in (model.source, model.target)]
        self.adding = model.source.position, model.target.position
        self.turns: dict[int, Tensor] = {}  # by position, made when first needed
        self.places: dict[int, Tensor] = {}  # by encoding: the first positions, as many as were needed yet or more

    def encode(self, source: Ragged) -> Memory:
        """A vector for each source token."""
        layout = source.layout
        lengths = None if layout.even else layout.lengths
        return Memory(self._encode(source.values, layout, lengths), layout, self._seen(layout, lengths))

    def start(self, memory: Memory) -> HeldState:
        """Nothing said yet; keys and values of the sources, for all layers in one product."""
        rows = _spread(self.remembered(memory.vectors), memory.layout)
        held = rows.unflatten(2, (-1, self.kv_heads, self.dim)).permute(0, 2, 3, 1, 4).contiguous()
        fold = rows.size(0) == 1 and held.device.type == "cpu" and self.folding.pays(memory.layout.longest)
        folded = self.folding(held) if fold else None
        return HeldState(Room(held.narrow(3, 0, 0), 0), 0, Room(held, 0), memory.seen, folded)

    def step(self, tokens: Int[Tensor, " row"], state: HeldState) -> tuple[Float[Tensor, "row vocabulary"], HeldState]:
        """One position in each row."""
        after = state.grown()
        time, turned = after.time, self._turned(state.time)
        held, depth = after.room.held, len(self.decoder)
        slots = held.select(3, state.time).view(held.size(0), depth, 2 * self.kv_heads, self.dim).unbind(1)
        past = held.narrow(3, 0, time).unbind(1)
        x = self.tables[1].index_select(0, tokens)
        if self.adding[1] is not None:
            x.add_(self._added(self.adding[1], state.time, 1))
        for layer, block in enumerate(self.decoder):
            known = past[2 * layer : 2 * layer + 2]
            x = block.residual(0, x, lambda y: self._recall(block, y, slots[layer], known, turned), block.out)  # noqa: B023
            if after.folded is None:
                x = block.residual(1, x, lambda y: self._cross(layer, y, after), self.crossing[layer][1])  # noqa: B023
            else:
                x = block.residual(1, x, after.folded[layer].weights, after.folded[layer].out)
            x = block.residual(2, x, block.feed, block.outer)
        return self.logits(self.decoder_norm(x)), after

    def _encode(self, ids: Int[Tensor, " token"], layout: Layout, lengths: Int[Tensor, " source"] | None) -> Vectors:
        """All encoder layers; `lengths` where some of the table that the layout makes is padding."""
        seen = self._seen(layout, lengths)
        x = self.tables[0].index_select(0, ids)
        if self.adding[0] is not None and layout.even:
            x.view(len(layout), layout.longest, -1).add_(self._added(self.adding[0], 0, layout.longest))
        elif self.adding[0] is not None:
            x.add_(self._added(self.adding[0], 0, layout.longest).index_select(0, layout.positions))
        for block in self.encoder:
            x = block.residual(0, x, lambda y: self._read(block, y, layout, lengths, seen), block.out)  # noqa: B023
            x = block.residual(1, x, block.feed, block.outer)
        return self.encoder_norm(x)

    def _seen(self, layout: Layout, lengths: Int[Tensor, " source"] | None) -> Float[Tensor, "source 1 1 time"] | None:
        """What padding hides."""
        if lengths is None:
            return None
        hidden = torch.arange(layout.longest, device=lengths.device) >= lengths[:, None]
        return self.tables[0].new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))[:, None, None]

    def _read(
        self, block: Block, x: Vectors, layout: Layout, lengths: Int[Tensor, " source"] | None, seen: Tensor | None
    ) -> Vectors:
        """Self-attention among the tokens of each source; only here they are padded."""
        compared = block.heads + self.kv_heads
        parts = block.asked(x).view(x.shape[0], compared + self.kv_heads, self.dim)
        if block.turn is not None:
            turned = block.turn.turn(parts[:, :compared], layout.positions[:, None])
            parts = torch.cat([turned, parts[:, compared:]], 1)
        rows = _spread(parts, layout).transpose(1, 2)
        q, k, v = rows.split((block.heads, self.kv_heads, self.kv_heads), 1)
        if block.attention.bias is None:
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=self.kv_heads != block.heads)
        else:
            padded = Padded(q, lengths), Padded(k, lengths), Padded(v, lengths)
            found = sdpa.run(block.attention, *padded, everything, 0)
        flat = found.transpose(1, 2).reshape(len(layout) * layout.longest, -1)
        return flat if layout.even else flat.index_select(0, layout.slots)

    def _recall(
        self, block: Block, x: Vectors, slot: Tensor, known: Sequence[Tensor], turned: Tensor | None
    ) -> Vectors:
        """Self-attention to what was said, this position included: its keys and values go into their slot first."""
        rows = x.size(0)
        parts = block.asked(x).view(rows, -1, self.dim)
        if turned is not None:
            compared = parts.narrow(1, 0, block.heads + self.kv_heads)
            compared.copy_((compared.reshape(-1, self.dim) @ turned).view(compared.shape))
        q, new = parts.split_with_sizes((block.heads, 2 * self.kv_heads), 1)
        slot.copy_(new)
        q, (k, v) = q.unsqueeze(2), known
        if block.attention.bias is None:
            found = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.kv_heads != block.heads)
        else:
            found = sdpa.run(block.attention, Padded(q), Padded(k), Padded(v), causal, k.size(2) - 1)
        return found.reshape(rows, -1)

    def _cross(self, layer: int, x: Vectors, state: HeldState) -> Vectors:
        """Attention to the source; rows that share one ask it together, as if they were positions of one sequence."""
        heads = self.decoder[layer].heads
        q = self.crossing[layer][0](x).view(-1, state.share, heads, self.dim).transpose(1, 2)
        k, v = state.memory.roles[2 * layer : 2 * layer + 2]
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=state.seen, enable_gqa=self.kv_heads != heads)
        return found.transpose(1, 2).reshape(x.size(0), -1)

    def _added(self, position: Added, start: int, count: int) -> Float[Tensor, "time width"]:
        """What so many positions from `start` on add to embeddings: part of one table, which doubles when it must."""
        table, end = self.places.get(id(position)), start + count
        if table is None or len(table) < end:
            room = max(SOME, 1 << (end - 1).bit_length())
            if isinstance(position, Learned):
                room = max(end, min(room, position.longest))  # one past those that were learned: it says so itself
            table = position(torch.arange(room, device=self.tables[0].device)).detach().to(self.tables[0].dtype)
            self.places[id(position)] = table
        return table.narrow(0, start, count)

    def _turned(self, time: int) -> Float[Tensor, "dim dim"] | None:
        """Turning is linear: one matrix, the same for all heads and layers, turns what stands at a position."""
        turn = self.decoder[0].turn
        if turn is not None and time not in self.turns:
            unit = torch.eye(self.dim, device=self.tables[1].device, dtype=self.tables[1].dtype)
            self.turns[time] = turn.turn(unit, torch.tensor([time], device=unit.device))
        return self.turns.get(time)


def _spread(tokens: Float[Tensor, "token ..."], layout: Layout) -> Float[Tensor, "source time ..."]:
    """Tokens as rows of one length. Behind a shorter row stands what follows it in the batch, for whoever hides it:
    reading something everywhere is faster than writing to some places of many zeros."""
    if not layout.even:
        times = torch.arange(layout.longest, device=tokens.device)
        tokens = tokens.index_select(0, (layout.offsets[:-1, None] + times).clamp_(max=layout.tokens - 1).flatten())
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
