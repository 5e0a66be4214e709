"""Teacher forcing: what a model computes for given targets, from token ids, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models import Model, eval_mode
from regard.ragged import Ragged
from regard.search.attention_weights import record_attention
from regard.text import with_begin, with_end

Ids = Sequence[int]


@torch.no_grad()
def target_logps(model: Model, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
    """The log-probability of each target token and of the end, for each pair."""
    labels = _encoder_batch(model, targets)
    with eval_mode(model):
        logits = model(_encoder_batch(model, sources), _decoder_batch(model, targets))
    logps = logits.values.float().log_softmax(-1)
    return [row.tolist() for row in labels.like(logps.gather(1, labels.values[:, None])[:, 0])]


@torch.no_grad()
def next_logps(model: Model, source: Ids, prefix: Ids) -> Float[Tensor, " vocabulary"]:
    """The log-probabilities of the token that follows a prefix."""
    with eval_mode(model):
        logits = model(_encoder_batch(model, [source]), _decoder_batch(model, [prefix]))
    return logits.values[-1].float().log_softmax(-1)


def attention_maps(model: Model, source: Ids, target: Ids) -> dict[str, Tensor]:
    """The weights (head, query, key) of every attention, by the name of its module."""
    with eval_mode(model):
        return record_attention(
            model, _encoder_batch(model, [source]), _decoder_batch(model, [target])
        )


def _encoder_batch(model: Model, sequences: Sequence[Ids]) -> Ragged:
    """Sequences with the end token appended: what an encoder reads and a decoder predicts."""
    return with_end(_ragged(sequences)).to(next(model.parameters()).device)


def _decoder_batch(model: Model, sequences: Sequence[Ids]) -> Ragged:
    """Sequences after the begin token: what a decoder reads."""
    return with_begin(_ragged(sequences)).to(next(model.parameters()).device)


def _ragged(sequences: Sequence[Ids]) -> Ragged:
    return Ragged.of([torch.tensor(ids, dtype=torch.long) for ids in sequences])
