"""Training batches and static shapes: padding never contributes to the loss."""

import random

import pytest
import torch

from regard.config import TransformerSettings
from regard.kernels import IGNORE_INDEX as IGNORED
from regard.models import build
from regard.positions import POSITIONS
from regard.ragged import Ragged
from regard.text import BEGIN, END, Batch, StaticShape, TrainingBatch, pack_batch, unpack_batch
from regard.training.objective import Objective

RANDOM = random.Random(7)
MANY = [
    [(RANDOM.randint(0, 40), RANDOM.randint(0, 40)) for _ in range(RANDOM.randint(1, 30))]
    for _ in range(60)
]


def batch_of(sizes: list[tuple[int, int]]) -> Batch:
    sides = [
        Ragged.of([torch.arange(size) % 5 + 4 for size in side])
        for side in zip(*sizes, strict=True)
    ]
    sources, targets = (len(side.values) for side in sides)
    return Batch(sides[0], sides[1], torch.arange(len(sizes)), len(sizes), targets, sources)


def static_batch_of(batch: Batch, multiple: int = 64) -> tuple[StaticShape, TrainingBatch]:
    shape = StaticShape.from_batch(batch, multiple)
    assert shape is not None
    return shape, unpack_batch(
        pack_batch(batch, shape),
        shape,
        torch.tensor(1 / (batch.step_target_tokens + batch.step_pairs)),
    )


def test_training_batch_by_hand():
    batch = batch_of([(2, 1), (1, 3)])
    training = TrainingBatch.from_batch(batch)
    assert [row.tolist() for row in training.source] == [[4, 5, END], [4, END]]
    assert [row.tolist() for row in training.prefix] == [[BEGIN, 4], [BEGIN, 4, 5, 6]]
    assert training.labels.tolist() == [4, END, 4, 5, 6, END]
    assert training.token_weight == pytest.approx(1 / 6)


@pytest.mark.parametrize("multiple", [16, 64, 100])
@pytest.mark.parametrize("sizes", MANY[:20])
def test_static_batch_starts_with_the_original(sizes, multiple):
    batch = batch_of(sizes)
    plain, (shape, full) = TrainingBatch.from_batch(batch), static_batch_of(batch, multiple)
    pairs = len(batch)
    for ours, theirs in ((full.source, plain.source), (full.prefix, plain.prefix)):
        assert all(
            torch.equal(a, b) for a, b in zip(ours.unbind()[:pairs], theirs.unbind(), strict=True)
        )
        assert len(ours) == shape.pairs
        assert int(ours.lengths.sum()) == len(ours.values)  # every token belongs to a sequence
        assert int(ours.lengths.max()) <= ours.longest
        assert len(ours.values) % multiple == 0
        assert len(ours.values) - len(theirs.values) < multiple
    count = len(plain.labels)
    assert torch.equal(full.labels[:count], plain.labels)
    assert (full.labels[count:] == IGNORED).all()


@pytest.mark.parametrize("sizes", MANY)
def test_static_shapes_are_few(sizes):
    shape = StaticShape.from_batch(batch_of(sizes), 64)
    assert shape is not None
    assert shape.source % 64 == shape.target % 64 == 0
    assert {shape.source_longest, shape.target_longest} <= {16, 32, 64, 128}
    assert shape.pairs in {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}


def test_long_or_empty_batches_have_no_static_shape():
    assert StaticShape.from_batch(batch_of([(127, 3)]), 64) is not None
    assert StaticShape.from_batch(batch_of([(128, 3)]), 64) is None  # 129 with its end token
    none = Ragged(torch.zeros(0, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    assert StaticShape.from_batch(Batch(none, none, torch.arange(0), 3, 7, 7), 64) is None


@pytest.mark.parametrize("position", POSITIONS)
def test_padding_does_not_change_loss_and_gradients(position):
    torch.manual_seed(3)
    model = build(
        TransformerSettings(
            width=16,
            heads=2,
            encoder_layers=1,
            decoder_layers=1,
            ffn_width=8,
            dropout=0,
            position=position,
        ),
        9,
        9,
    )
    batch, objective = (
        batch_of([(3, 5), (1, 2), (12, 9), (7, 0)]),
        Objective(model, label_smoothing=0.1),
    )
    _, full = static_batch_of(batch)
    weights = list(model.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(objective(full), weights, allow_unused=True),
        torch.autograd.grad(objective(batch), weights, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(objective(full), objective(batch))
