"""The Transformer encoder–decoder (Vaswani et al. 2017), on ragged batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Cache
from regard.config import TransformerSettings, head_dim
from regard.errors import RegardError
from regard.models.contract import Model, State
from regard.models.layers import DecoderLayer, EncoderLayer, ResidualStream, initialise, norm
from regard.models.parts import Embedding, Output, ids_of, make_position
from regard.positions import Position
from regard.ragged import Ragged

L = TypeVar("L", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class TransformerState(State):
    """The KV cache of each layer: past positions, and the memory, which `share` rows share."""

    past: tuple[Cache, ...]
    memory: tuple[Cache, ...]
    share: int = 1

    def select(self, rows: Int[Tensor, " chosen"]) -> TransformerState:
        """The chosen rows of every cache."""
        return TransformerState(_chosen(self.past, rows), _chosen(self.memory, rows // self.share))

    def branch(
        self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None
    ) -> TransformerState:
        """The chosen rows of the past; the memory is copied only where sources leave."""
        memory = self.memory if sources is None else _chosen(self.memory, sources)
        return TransformerState(
            _chosen(self.past, rows), memory, len(rows) // max(1, memory[0].rows)
        )


def _chosen(caches: tuple[Cache, ...], rows: Int[Tensor, " chosen"]) -> tuple[Cache, ...]:
    return tuple(cache.select(rows) for cache in caches)


class Stack(nn.ModuleList, Generic[L]):
    """Layers of one kind."""

    def __iter__(self) -> Iterator[L]:
        return cast(Iterator[L], super().__iter__())


def _embedding(settings: TransformerSettings, vocabulary: int, position: Position) -> Embedding:
    return Embedding(
        vocabulary,
        settings.width,
        position=position,
        scale=settings.embedding_scale,
        norm=norm(settings) if settings.embedding_norm else None,
        dropout=settings.dropout,
    )


class Transformer(Model):
    """Encoder, decoder, and an embedding table at each end."""

    static_shapes = True

    @property
    def attention_backend(self) -> str:
        """The backend that the settings request for the attentions."""
        return self.settings.attention_backend

    def __init__(self, settings: TransformerSettings, source: int, target: int) -> None:
        super().__init__()
        self.settings = settings
        sizes = {
            "width": settings.width,
            "heads": settings.heads,
            "dim": head_dim(settings),
        }
        if settings.dim is None and settings.width % settings.heads:
            raise RegardError(
                f"model.width = {settings.width} cannot be split into model.heads = "
                f"{settings.heads}; set model.dim, the size of a head"
            )
        if (tie := settings.tie_embeddings) in ("all", "inputs") and source != target:
            raise RegardError(
                f"model.tie_embeddings = {tie!r} needs one vocabulary for both sides; got "
                f"{source} and {target}"
            )
        # All layers of a stack share one encoding, and so its relative tables, as in T5.
        encoder_position = make_position(settings.position, causal=False, **sizes)
        decoder_position = make_position(settings.position, causal=True, **sizes)
        self.source = _embedding(settings, source, encoder_position)
        self.target = _embedding(settings, target, decoder_position)
        if tie in ("all", "inputs"):
            self.target.table = self.source.table
        self.encoder: Stack[EncoderLayer] = Stack(
            EncoderLayer(settings, encoder_position) for _ in range(settings.encoder_layers)
        )
        self.decoder: Stack[DecoderLayer] = Stack(
            DecoderLayer(settings, decoder_position) for _ in range(settings.decoder_layers)
        )
        pre_norm = settings.norm_order == "pre"  # leaves the last residual sum without a norm
        self.encoder_norm = norm(settings) if pre_norm else nn.Identity()
        self.decoder_norm = norm(settings) if pre_norm else nn.Identity()
        self.output = Output(
            target,
            settings.width,
            tied=self.target.table if tie in ("target", "all") else None,
            bias=settings.output_bias,
        )
        initialise(self.encoder, settings.encoder_layers)
        initialise(self.decoder, settings.decoder_layers)

    def encode(self, source: Ragged) -> Ragged:
        """A contextual vector for each source token."""
        stream = ResidualStream(self.source(source))
        for layer in self.encoder:
            stream = layer(stream)
        return stream.closed(self.encoder_norm, self.source.dropout)

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The decoder's last vectors for all positions at once."""
        memory, stream = self.encode(source), ResidualStream(self.target(prefix))
        for layer in self.decoder:
            stream = layer(stream, memory)
        return stream.closed(self.decoder_norm, self.target.dropout)

    @property
    def output_table(self) -> nn.Parameter | None:
        """E, unless a bias is added or another module replaced the output layer."""
        output = self.output
        return output.table if isinstance(output, Output) and output.bias is None else None

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """h · Eᵀ + b."""
        return self.output(vectors)

    def cross_attentions(self) -> list[Attention]:
        """The cross-attention of each layer."""
        return [layer.cross_attention.attention for layer in self.decoder]

    def start(self, memory: Ragged) -> TransformerState:
        """The state before the first token; computes the memory's keys and values once."""
        cross = tuple(layer.cross_attention.extend_cache(memory) for layer in self.decoder)
        return TransformerState(tuple(Cache() for _ in self.decoder), cross)

    def step(
        self, tokens: Int[Tensor, " row"], state: TransformerState
    ) -> tuple[Float[Tensor, "row vocabulary"], TransformerState]:
        """One position in each row."""
        stream, past = ResidualStream(self.target(ids_of(tokens), state.past[0].offset)), []
        for layer, before, memory in zip(self.decoder, state.past, state.memory, strict=True):
            stream, after = layer.step(stream, before, memory)
            past.append(after)
        last = stream.closed(self.decoder_norm, self.target.dropout)
        return self.project(last.values), TransformerState(tuple(past), state.memory, state.share)
