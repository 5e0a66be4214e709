"""The layers of a Transformer: attention and feed-forward, each with a residual and a norm."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Cache, MultiHead, causal
from regard.config import TransformerSettings
from regard.kernels import computing, fusible
from regard.kernels.fused_linear import linear
from regard.models.dropout import Dropout
from regard.models.residual_stream import Stream
from regard.positions import Biasing, Position, Turning
from regard.ragged import Ragged


def norm(settings: TransformerSettings) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019)."""
    return nn.LayerNorm(settings.width) if settings.norm == "layer" else nn.RMSNorm(settings.width, eps=1e-6)


class FeedForward(nn.Module):
    """W₂ · act(W₁ x): each token by itself. With swiglu, W₂ · (silu(W₁ x) ⊙ W₃ x) (Shazeer 2020)."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.activation = settings.activation
        gated = settings.activation == "swiglu"
        self.inner = nn.Linear(settings.width, settings.ffn_width * (2 if gated else 1))
        self.outer = nn.Linear(settings.ffn_width, settings.width)

    def forward(self, x: Tensor) -> Tensor:
        inner = linear(x, self.inner)
        if self.activation == "swiglu":
            return linear(_gated(inner), self.outer)
        return linear(F.relu(inner) if self.activation == "relu" else F.gelu(inner), self.outer)


def _gated(both: Tensor) -> Tensor:
    """silu(a) ⊙ b, where a and b lie side by side."""
    if fusible(both) and both.ndim == 2:
        from regard.kernels.swiglu import gate

        return gate(both)
    a, b = both.chunk(2, -1)
    return F.silu(a) * b


class Sublayer(nn.Module):
    """x + f(norm(x)), or norm(x + f(x)) as in the paper. Before a norm the sum is left open: the next one closes it."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.norm = norm(settings)
        self.before = settings.norm_order == "pre"
        self.dropout = Dropout(settings.dropout)

    def forward(self, stream: Stream, act: Callable[[Ragged], Ragged]) -> Stream:
        if self.before:
            x, normed = stream.normed(self.norm, self.dropout, computing(stream.x.values))
            return Stream(x, act(normed).values)
        kind = computing(stream.x.values)
        return Stream(Stream(stream.x, act(stream.x).values).normed(self.norm, self.dropout, kind)[1])


def heads(settings: TransformerSettings, position: Position | None = None) -> MultiHead:
    """The attention of a layer, with a position encoding that turns or biases, if there is one."""
    return MultiHead(
        settings.width,
        settings.heads,
        kv_heads=settings.kv_heads,
        bias=position if isinstance(position, Biasing) else None,
        turn=position if isinstance(position, Turning) else None,
        backend=settings.attention_backend,
    )


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, settings: TransformerSettings, position: Position) -> None:
        super().__init__()
        self.self_attention, self.feed_forward = heads(settings, position), FeedForward(settings)
        self.residual1, self.residual2 = Sublayer(settings), Sublayer(settings)

    def forward(self, stream: Stream) -> Stream:
        stream = self.residual1(stream, self.self_attention)
        return self.residual2(stream, lambda y: y.like(self.feed_forward(y.values)))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory, then feed-forward."""

    def __init__(self, settings: TransformerSettings, position: Position) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = heads(settings, position), heads(settings)
        self.feed_forward = FeedForward(settings)
        self.residual1, self.residual2, self.residual3 = (Sublayer(settings) for _ in range(3))

    def forward(self, stream: Stream, memory: Ragged) -> Stream:
        stream = self.residual1(stream, lambda y: self.self_attention(y, mask=causal))
        stream = self.residual2(stream, lambda y: self.cross_attention(y, memory))
        return self.residual3(stream, lambda y: y.like(self.feed_forward(y.values)))

    def step(self, stream: Stream, past: Cache, memory: Cache) -> tuple[Stream, Cache]:
        """The next positions, given what came before and the memory's keys and values.

        Rows that share a source ask it together, as if they were positions of one sequence."""
        grown = past

        def attend(y: Ragged) -> Ragged:
            nonlocal grown
            y, grown = self.self_attention.step(y, past, mask=causal)
            return y

        stream = self.residual1(stream, attend)
        stream = self.residual2(stream, lambda y: y.like(self._asked(y, memory).values))
        return self.residual3(stream, lambda y: y.like(self.feed_forward(y.values))), grown

    def _asked(self, queries: Ragged, memory: Cache) -> Ragged:
        return self.cross_attention.recall(Ragged.even(queries.values, memory.rows), memory)


def initialise(module: nn.Module, depth: int) -> None:
    """Xavier everywhere, and what is added to a residual smaller by √(2 · depth), so that its sum keeps its size
    however deep the stack is (Radford et al. 2019, §2.3)."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            ends = name.endswith((".out", ".outer"))
            nn.init.xavier_uniform_(part.weight, gain=1 / math.sqrt(2 * depth) if ends else 1.0)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
