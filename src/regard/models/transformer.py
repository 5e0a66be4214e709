"""The Transformer encoder–decoder (Vaswani et al. 2017), on ragged batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Cache
from regard.config import TransformerSettings
from regard.errors import RegardError
from regard.models.contract import Model, State
from regard.models.embedding import Embedding, Output, ids_of
from regard.models.layers import DecoderLayer, EncoderLayer, initialise, norm
from regard.models.residual_stream import Stream
from regard.positions import position
from regard.ragged import Ragged

L = TypeVar("L", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class TransformerState(State):
    """For each layer, the keys and values so far and those of the memory, which `share` rows look at together."""

    past: tuple[Cache, ...]
    memory: tuple[Cache, ...]
    share: int = 1

    def select(self, rows: Int[Tensor, " chosen"]) -> TransformerState:
        """The chosen rows of every cache."""
        return TransformerState(_chosen(self.past, rows), _chosen(self.memory, rows // self.share))

    def branch(self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None) -> TransformerState:
        """The chosen rows of the past; of the memory only what leaves is touched."""
        memory = self.memory if sources is None else _chosen(self.memory, sources)
        return TransformerState(_chosen(self.past, rows), memory, len(rows) // max(1, memory[0].rows))


def _chosen(caches: tuple[Cache, ...], rows: Int[Tensor, " chosen"]) -> tuple[Cache, ...]:
    return tuple(cache.select(rows) for cache in caches)


class Stack(nn.ModuleList, Generic[L]):
    """Layers of one kind."""

    def __iter__(self) -> Iterator[L]:
        return cast(Iterator[L], super().__iter__())


class Transformer(Model):
    """Encoder, decoder, and a table at each end."""

    def __init__(self, settings: TransformerSettings, source: int, target: int) -> None:
        super().__init__()
        self.settings = settings
        sizes = {"width": settings.width, "heads": settings.heads, "dim": settings.width // settings.heads}
        if settings.width % settings.heads:
            raise RegardError(f"model.width = {settings.width} cannot be split into model.heads = {settings.heads}")
        if settings.tie_embeddings == "all" and source != target:
            raise RegardError(
                f"model.tie_embeddings = 'all' needs one vocabulary for both sides; got {source} and {target}"
            )
        # One encoding serves all layers of a stack: relative tables are shared, as T5 does.
        asking, answering = (position(settings.position, causal=causal, **sizes) for causal in (False, True))
        options = {"dropout": settings.dropout}
        self.source = Embedding(source, settings.width, position=asking, **options)
        self.target = Embedding(target, settings.width, position=answering, **options)
        if settings.tie_embeddings == "all":
            self.target.table = self.source.table
        self.encoder: Stack[EncoderLayer] = Stack(
            EncoderLayer(settings, asking) for _ in range(settings.encoder_layers)
        )
        self.decoder: Stack[DecoderLayer] = Stack(
            DecoderLayer(settings, answering) for _ in range(settings.decoder_layers)
        )
        before = settings.norm_order == "pre"  # pre-norm leaves the last residual sum without a norm
        self.encoder_norm = norm(settings) if before else nn.Identity()
        self.decoder_norm = norm(settings) if before else nn.Identity()
        self.output = Output(
            target, settings.width, tied=None if settings.tie_embeddings == "none" else self.target.table
        )
        initialise(self.encoder, settings.encoder_layers)
        initialise(self.decoder, settings.decoder_layers)

    def encode(self, source: Ragged) -> Ragged:
        """A vector for each source token, in the light of all others."""
        stream = Stream(self.source(source))
        for layer in self.encoder:
            stream = layer(stream)
        return stream.closed(self.encoder_norm, self.source.dropout)

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The decoder's last vectors for all positions at once."""
        memory, stream = self.encode(source), Stream(self.target(prefix))
        for layer in self.decoder:
            stream = layer(stream, memory)
        return stream.closed(self.decoder_norm, self.target.dropout)

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """h · Eᵀ."""
        return self.output(vectors)

    def looks(self) -> list[Attention]:
        """The cross-attention of each layer."""
        return [layer.cross_attention.attention for layer in self.decoder]

    def start(self, memory: Ragged) -> TransformerState:
        """Nothing said yet; the memory's keys and values computed once for all steps."""
        held = tuple(layer.cross_attention.remember(memory) for layer in self.decoder)
        return TransformerState(tuple(Cache() for _ in self.decoder), held)

    def step(
        self, tokens: Int[Tensor, " row"], state: TransformerState
    ) -> tuple[Float[Tensor, "row vocabulary"], TransformerState]:
        """One position in each row."""
        stream, past = Stream(self.target(ids_of(tokens), state.past[0].offset)), []
        for layer, before, memory in zip(self.decoder, state.past, state.memory, strict=True):
            stream, after = layer.step(stream, before, memory)
            past.append(after)
        last = stream.closed(self.decoder_norm, self.target.dropout)
        return self.project(last.values), TransformerState(tuple(past), state.memory, state.share)
