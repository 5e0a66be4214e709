"""The matrix that decides correctness: every model and position, at once, by steps, reordered,
mixed lengths.
"""

import pytest
import torch

from regard.config import RecurrentSettings, TransformerSettings
from regard.models import Model, build
from regard.positions import POSITIONS
from regard.ragged import Ragged

SOURCE, TARGET = 13, 17
RECURRENT_ATTENTIONS = [
    ("none", "additive"),
    ("bahdanau", "additive"),
    ("luong", "dot"),
    ("luong", "general"),
    ("luong", "additive"),
]
SETTINGS = {
    **{
        f"transformer-{name}-{norm_order}": TransformerSettings(
            width=24,
            heads=4,
            kv_heads=2,
            encoder_layers=2,
            decoder_layers=2,
            ffn_width=40,
            position=name,
            norm_order=norm_order,
        )
        for name in POSITIONS
        for norm_order in ("pre", "post")
    },
    "transformer-swiglu-rms": TransformerSettings(
        width=24,
        heads=3,
        encoder_layers=1,
        decoder_layers=2,
        ffn_width=20,
        activation="swiglu",
        norm="rms",
        tie_embeddings="none",
    ),
    **{
        f"{cell}-{attention}-{score}": RecurrentSettings(
            width=24,
            cell=cell,
            attention=attention,
            score=score,
            encoder_layers=2,
            decoder_layers=2,
        )
        for cell in ("gru", "lstm")
        for attention, score in RECURRENT_ATTENTIONS
    },
}
every = pytest.mark.parametrize("name", SETTINGS)


def made(name: str) -> Model:
    model = build(SETTINGS[name], SOURCE, TARGET).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.abs().sum() == 0:  # tables that start at zero would test nothing
                parameter.normal_()
    return model


def ids(lengths: list[int], vocabulary: int) -> Ragged:
    return Ragged.of([torch.randint(vocabulary, (length,)) for length in lengths])


def close(ours: torch.Tensor, truth: torch.Tensor) -> None:
    torch.testing.assert_close(ours, truth, rtol=1e-5, atol=1e-5)


@every
@torch.no_grad()
def test_steps_are_the_whole(name: str):
    model, source, prefix = made(name), ids([5, 1, 7, 3], SOURCE), ids([6, 6, 6, 6], TARGET)
    whole = model(source, prefix).unbind()
    state = model.start(model.encode(source))
    for t in range(6):
        logits, state = model.step(torch.stack(prefix.unbind())[:, t], state)
        close(logits, torch.stack(whole)[:, t])


@every
@torch.no_grad()
def test_mixed_lengths_are_as_alone(name: str):
    model, source, prefix = made(name), ids([5, 1, 7, 3], SOURCE), ids([2, 6, 1, 4], TARGET)
    for i, together in enumerate(model(source, prefix)):
        alone = model(Ragged.of([source.unbind()[i]]), Ragged.of([prefix.unbind()[i]]))
        close(together, alone.values)


@every
@torch.no_grad()
def test_rows_may_be_reordered_and_leave(name: str):
    model, source = made(name), ids([5, 2, 7], SOURCE)
    state, said = model.start(model.encode(source)), torch.empty(3, 0, dtype=torch.long)
    rows = torch.arange(3)
    for chosen in ([0, 1, 2], [2, 0, 2, 1], [3, 0], [1, 1, 0]):
        at = torch.tensor(chosen)
        state, said, rows = state.select(at), said[at], rows[at]
        tokens = torch.randint(TARGET, (len(chosen),))
        logits, state = model.step(tokens, state)
        said = torch.cat([said, tokens[:, None]], 1)
    sources = Ragged.of([source.unbind()[row] for row in rows])
    truth = model(sources, Ragged.of(list(said)))
    close(logits, torch.stack([row[-1] for row in truth]))


@every
def test_every_parameter_learns(name: str):
    model, source, prefix = made(name).train(), ids([5, 1, 7], SOURCE), ids([2, 6, 3], TARGET)
    model(source, prefix).values.logsumexp(-1).sum().backward()
    for label, parameter in model.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.isfinite().all(), label


@every
@torch.no_grad()
def test_the_future_is_not_seen(name: str):
    model, source = made(name), ids([4], SOURCE)
    prefix = ids([6], TARGET)
    changed = prefix.like(prefix.values.clone())
    changed.values[4:] = (changed.values[4:] + 1) % TARGET
    torch.testing.assert_close(
        model(source, prefix).values[:4], model(source, changed).values[:4], rtol=0, atol=0
    )
