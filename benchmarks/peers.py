"""The same Transformer in torch.nn and in HF Marian, on their best case: sorted batches.

Both are the paper's post-norm model with ReLU, sinusoidal positions, target embeddings tied to the
output, and dropout after embeddings and sublayers. Dropout on attention weights and inside
feed-forward layers is off, as in Regard.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import TransformerSettings
from regard.positions import Sinusoidal
from regard.text import BEGIN, END, UNKNOWN, Batches, TokenizedPairs
from regard.training.optimizers import build_optimizers

LONGEST = 512  # length of the peers' position tables
IGNORED = -100  # label of padding


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """A padded batch. `padding` marks source padding; None if all sources have equal length."""

    source: Tensor
    padding: Tensor | None
    prefix: Tensor
    right: Tensor
    tokens: int

    @property
    def wasted(self) -> float:
        """The share of padding."""
        return 1 - self.tokens / (self.source.numel() + self.prefix.numel())


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings, positions and output around it."""

    def __init__(self, settings: TransformerSettings, source: int, target: int) -> None:
        super().__init__()
        sizes = (settings.width, settings.heads, settings.ffn_width, settings.dropout)
        encoder_layer = nn.TransformerEncoderLayer(*sizes, activation="relu", batch_first=True)
        decoder_layer = nn.TransformerDecoderLayer(*sizes, activation="relu", batch_first=True)
        _only_residual_dropout(encoder_layer, decoder_layer)
        self.transformer = nn.Transformer(
            settings.width,
            settings.heads,
            custom_encoder=nn.TransformerEncoder(
                encoder_layer, settings.encoder_layers, enable_nested_tensor=False
            ),
            custom_decoder=nn.TransformerDecoder(decoder_layer, settings.decoder_layers),
            batch_first=True,
        )
        self.source, self.target = (
            nn.Embedding(source, settings.width),
            nn.Embedding(target, settings.width),
        )
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=settings.width**-0.5)
        self.dropout = nn.Dropout(settings.dropout)
        self.scale = math.sqrt(settings.width)
        self.register_buffer("positions", Sinusoidal(settings.width)(torch.arange(LONGEST)))
        self.register_buffer("triangle", nn.Transformer.generate_square_subsequent_mask(LONGEST))

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Logits, padded."""
        time = batch.prefix.shape[1]
        states = self.transformer(
            self._embed(batch.source, self.source),
            self._embed(batch.prefix, self.target),
            src_key_padding_mask=batch.padding,
            memory_key_padding_mask=batch.padding,
            tgt_mask=self.triangle[:time, :time],
            tgt_is_causal=True,  # target padding comes last, so causality masks it
        )
        return F.linear(states, self.target.weight)

    def _embed(self, ids: Tensor, table: nn.Embedding) -> Tensor:
        return self.dropout(table(ids) * self.scale + self.positions[: ids.shape[1]])


def _only_residual_dropout(*layers: nn.Module) -> None:
    """Switch off dropout on attention weights and inside feed-forward layers."""
    for layer in layers:
        layer.dropout.p = 0.0
        for part in layer.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0


class Marian(nn.Module):
    """HF's MarianMTModel from a small configuration."""

    def __init__(self, settings: TransformerSettings, source: int, target: int) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        config = MarianConfig(
            vocab_size=source,
            decoder_vocab_size=target,
            share_encoder_decoder_embeddings=False,
            max_position_embeddings=LONGEST,
            d_model=settings.width,
            encoder_layers=settings.encoder_layers,
            decoder_layers=settings.decoder_layers,
            encoder_attention_heads=settings.heads,
            decoder_attention_heads=settings.heads,
            encoder_ffn_dim=settings.ffn_width,
            decoder_ffn_dim=settings.ffn_width,
            activation_function="relu",
            dropout=settings.dropout,
            scale_embedding=True,
            use_cache=False,
            pad_token_id=UNKNOWN,
            decoder_start_token_id=BEGIN,
            eos_token_id=END,
            forced_eos_token_id=END,
            attn_implementation="sdpa",
        )
        self.marian = MarianMTModel(config)
        self.marian.lm_head.weight = self.marian.model.decoder.embed_tokens.weight

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Logits, padded."""
        seen = None if batch.padding is None else ~batch.padding
        return self.marian(
            input_ids=batch.source, attention_mask=seen, decoder_input_ids=batch.prefix
        ).logits


PEERS: dict[str, type[nn.Module]] = {"nn.Transformer": TorchTransformer, "HF Marian": Marian}


def training_step(
    model: nn.Module,
    batches: Iterator[PaddedBatch],
    *,
    label_smoothing: float,
    clip: float,
    half: bool = False,
) -> Callable[[], int]:
    """A typical training step on the next batch, which returns its tokens; `half`: autocast to
    bfloat16."""
    made = build_optimizers(model.train(), "adamw", rate=1e-3, decay=0.01)
    weights = [weight for weight in model.parameters() if weight.requires_grad]

    def step() -> int:
        batch = next(batches)
        with torch.autocast(batch.source.device.type, torch.bfloat16, enabled=half):
            logits = model(batch)
            loss = F.cross_entropy(
                logits.flatten(0, 1),
                batch.right.flatten(),
                label_smoothing=label_smoothing,
                ignore_index=IGNORED,
            )
        for optimizer in made:
            optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, clip)
        for optimizer in made:
            optimizer.step()
        return batch.tokens

    return step


def padded_batches(
    pairs: TokenizedPairs, batch_tokens: int, *, count: int, order: str = "sorted", seed: int = 1
) -> list[PaddedBatch]:
    """`count` batches of a token budget: "sorted" by length and drawn at random (the best case),
    those of Regard ("regard"), or "random" pairs, as in many scripts."""
    if order == "regard":
        plan = Batches(pairs, batch_tokens=batch_tokens, seed=seed).plan(0)
        return [_padded_batch(pairs, plan.batch(step)) for step in range(min(count, len(plan)))]
    sources, targets = pairs.source_lengths, pairs.target_lengths
    random = np.random.default_rng(seed)
    row = np.lexsort((targets, sources)) if order == "sorted" else random.permutation(len(pairs))
    ends = (
        np.flatnonzero(
            np.diff(np.cumsum(sources[row] + targets[row], dtype=np.int64) // batch_tokens)
        )
        + 1
    )
    groups = np.split(row, ends)
    chosen = random.permutation(len(groups))[:count]
    return [_padded_batch(pairs, groups[place]) for place in chosen]


def _padded_batch(pairs: TokenizedPairs, indices: np.ndarray) -> PaddedBatch:
    (sources, source_ends), (targets, target_ends) = pairs.gather(indices)
    source_ids = [torch.from_numpy(ids) for ids in np.split(sources, source_ends[1:-1])]
    target_ids = [torch.from_numpy(ids) for ids in np.split(targets, target_ends[1:-1])]
    source = _padded([torch.cat([ids, torch.tensor([END])]) for ids in source_ids], UNKNOWN)
    lengths = torch.tensor([len(ids) + 1 for ids in source_ids])
    padding = torch.arange(source.shape[1])[None] >= lengths[:, None]
    prefix = _padded([torch.cat([torch.tensor([BEGIN]), ids]) for ids in target_ids], UNKNOWN)
    right = _padded([torch.cat([ids, torch.tensor([END])]) for ids in target_ids], IGNORED)
    tokens = len(sources) + len(targets) + 2 * len(indices)
    return PaddedBatch(source, padding if padding.any() else None, prefix, right, tokens)


def _padded(rows: list[Tensor], fill: int) -> Tensor:
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)
