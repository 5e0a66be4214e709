"""The layers of a Transformer: attention and feed-forward, each with a residual and a norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Cache, Mask, MultiHead
from regard.config import TransformerSettings, head_dim
from regard.kernels import can_fuse, compute_dtype
from regard.kernels.fused_linear import linear
from regard.models.parts import Dropout, make_normaliser, make_score, self_attention_mask
from regard.positions import BiasPosition, Position, RotaryPosition
from regard.ragged import Ragged

Vectors = Float[Tensor, "token width"]


class ResidualStream(NamedTuple):
    """x, and the latest sublayer output, which is still to be added."""

    x: Ragged
    latest: Vectors | None = None

    def normed(
        self, norm: nn.Module, dropout: Dropout, dtype: torch.dtype | None = None
    ) -> tuple[Ragged, Ragged]:
        """x + dropout(latest), and the norm of that (in `dtype`, where a GPU can choose)."""
        total, found = _joined(self.x.values, self.latest, norm, dropout, dtype)
        return self.x.like(total), self.x.like(found)

    def closed(self, norm: nn.Module, dropout: Dropout) -> Ragged:
        """What leaves the stack: normed, unless each sublayer ended with a norm."""
        if isinstance(norm, nn.Identity):
            return self.x
        return self.normed(norm, dropout, compute_dtype(self.x.values))[1]


def _joined(
    x: Vectors, latest: Vectors | None, norm: nn.Module, dropout: Dropout, dtype: torch.dtype | None
) -> tuple[Vectors, Vectors]:
    if can_fuse(x) and len(x) and isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        from regard.kernels.add_norm import add_norm

        share = dropout.share if dropout.training else 0.0
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
        centre, eps = isinstance(norm, nn.LayerNorm), norm.eps or 0.0
        return add_norm(
            x,
            latest,
            norm.weight,
            bias,
            eps=eps,
            dropout=share,
            centre=centre,
            dtype=dtype or x.dtype,
        )
    if latest is not None:
        x = x + dropout(latest)
    return x, norm(x)


def norm(settings: TransformerSettings) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019)."""
    if settings.norm == "layer":
        return nn.LayerNorm(settings.width, eps=settings.norm_eps or 1e-5)
    return nn.RMSNorm(settings.width, eps=settings.norm_eps or 1e-6)


class FeedForward(nn.Module):
    """W₂ · act(W₁ x) per token; gated, W₂ · (act(W₁ x) ⊙ W₃ x) (Shazeer 2020)."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.activation: str = settings.activation
        inner = settings.ffn_width * (2 if self.activation in GATED else 1)
        self.inner = nn.Linear(settings.width, inner, settings.biases)
        self.outer = nn.Linear(settings.ffn_width, settings.width, settings.biases)

    def forward(self, x: Tensor) -> Tensor:
        return linear(activate(linear(x, self.inner), self.activation), self.outer)


def _gelu_tanh(x: Tensor) -> Tensor:
    """½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) (Hendrycks & Gimpel 2016, §2)."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": _gelu_tanh,
    "silu": F.silu,
}
GATED = {"swiglu": "silu", "geglu": "gelu-tanh"}  # by the function of the gate


def activate(inner: Tensor, activation: str) -> Tensor:
    """act(a), or act(a) ⊙ b for the two halves [a, b] of each row."""
    if activation not in GATED:
        return ACTIVATIONS[activation](inner)
    if activation == "swiglu" and can_fuse(inner) and inner.ndim == 2:
        from regard.kernels.swiglu import swiglu

        return swiglu(inner)
    a, b = inner.chunk(2, -1)
    return ACTIVATIONS[GATED[activation]](a) * b


class Sublayer(nn.Module):
    """x + f(norm(x)) (pre-norm), or norm(x + f(x)) (post-norm, as in the paper).

    With pre-norm, the next norm performs the addition, fused with its own pass over the data.
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.norm = norm(settings)
        self.pre_norm = settings.norm_order == "pre"
        self.dropout = Dropout(settings.dropout)

    def forward(self, stream: ResidualStream, act: Callable[[Ragged], Ragged]) -> ResidualStream:
        if self.pre_norm:
            x, normed = stream.normed(self.norm, self.dropout, compute_dtype(stream.x.values))
            return ResidualStream(x, act(normed).values)
        kind = compute_dtype(stream.x.values)
        return ResidualStream(
            ResidualStream(stream.x, act(stream.x).values).normed(self.norm, self.dropout, kind)[1]
        )


def multi_head(settings: TransformerSettings, position: Position | None = None) -> MultiHead:
    """The attention of a layer, with the position encoding if it rotates or biases."""
    dim = head_dim(settings)
    return MultiHead(
        settings.width,
        settings.heads,
        attention=settings.heads * dim,
        kv_heads=settings.kv_heads,
        biases=settings.biases,
        score=make_score(settings.score, settings.heads, dim),
        bias=position if isinstance(position, BiasPosition) else None,
        rotation=position if isinstance(position, RotaryPosition) else None,
        normaliser=make_normaliser(settings.normaliser),
        backend=settings.attention_backend,
    )


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, settings: TransformerSettings, position: Position) -> None:
        super().__init__()
        self.self_attention = multi_head(settings, position)
        self.feed_forward = FeedForward(settings)
        self.residual1, self.residual2 = Sublayer(settings), Sublayer(settings)
        self.mask: Mask = self_attention_mask(settings.window, is_causal=False)

    def forward(self, stream: ResidualStream) -> ResidualStream:
        stream = self.residual1(stream, lambda y: self.self_attention(y, mask=self.mask))
        return self.residual2(stream, lambda y: y.like(self.feed_forward(y.values)))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then feed-forward."""

    def __init__(self, settings: TransformerSettings, position: Position) -> None:
        super().__init__()
        self.self_attention = multi_head(settings, position)
        self.cross_attention = multi_head(settings)
        self.feed_forward = FeedForward(settings)
        self.residual1, self.residual2 = Sublayer(settings), Sublayer(settings)
        self.residual3 = Sublayer(settings)
        self.mask: Mask = self_attention_mask(settings.window, is_causal=True)

    def forward(self, stream: ResidualStream, memory: Ragged) -> ResidualStream:
        stream = self.residual1(stream, lambda y: self.self_attention(y, mask=self.mask))
        stream = self.residual2(stream, lambda y: self.cross_attention(y, memory))
        return self.residual3(stream, lambda y: y.like(self.feed_forward(y.values)))

    def step(
        self, stream: ResidualStream, past: Cache, memory: Cache
    ) -> tuple[ResidualStream, Cache]:
        """The next position of each row, given the KV cache and the memory's keys and values.

        Rows that share a source query it together, as if they were positions of one sequence.
        """
        grown = past

        def attend(y: Ragged) -> Ragged:
            nonlocal grown
            y, grown = self.self_attention.step(y, past, mask=self.mask)
            return y

        stream = self.residual1(stream, attend)
        stream = self.residual2(stream, lambda y: y.like(self._attend_memory(y, memory).values))
        return self.residual3(stream, lambda y: y.like(self.feed_forward(y.values))), grown

    def _attend_memory(self, queries: Ragged, memory: Cache) -> Ragged:
        return self.cross_attention.attend_cached(
            Ragged.uniform(queries.values, memory.rows), memory
        )


def initialise(module: nn.Module, depth: int) -> None:
    """Xavier-initialise all linear layers; scale residual outputs down by √(2 · depth).

    The scaling keeps the size of the residual stream independent of depth (Radford et al. 2019,
    §2.3).
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            ends = name.endswith((".out", ".outer"))
            nn.init.xavier_uniform_(part.weight, gain=1 / math.sqrt(2 * depth) if ends else 1.0)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
