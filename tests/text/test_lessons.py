"""Lessons: as a batch is, or filled up to sizes that repeat; what fills them is never learned from."""

import random

import pytest
import torch

from regard.config import TransformerSettings
from regard.models import build
from regard.positions import POSITIONS
from regard.ragged import Ragged
from regard.text import BEGIN, END, Batch, Lesson, Shape, filled, opened
from regard.text.static_batch import IGNORED
from regard.train.objective import Objective

RANDOM = random.Random(7)
MANY = [[(RANDOM.randint(0, 40), RANDOM.randint(0, 40)) for _ in range(RANDOM.randint(1, 30))] for _ in range(60)]


def batch_of(sizes: list[tuple[int, int]]) -> Batch:
    sides = [Ragged.of([torch.arange(size) % 5 + 4 for size in side]) for side in zip(*sizes, strict=True)]
    sources, targets = (len(side.values) for side in sides)
    return Batch(sides[0], sides[1], torch.arange(len(sizes)), len(sizes), targets, sources)


def lesson_of(batch: Batch, grain: int = 64) -> tuple[Shape, Lesson]:
    shape = Shape.of(batch, grain)
    assert shape is not None
    return shape, opened(filled(batch, shape), shape, torch.tensor(1 / (batch.step_tokens + batch.step_pairs)))


def test_a_lesson_by_hand():
    batch = batch_of([(2, 1), (1, 3)])
    lesson = Lesson.of(batch)
    assert [row.tolist() for row in lesson.source] == [[4, 5, END], [4, END]]
    assert [row.tolist() for row in lesson.prefix] == [[BEGIN, 4], [BEGIN, 4, 5, 6]]
    assert lesson.right.tolist() == [4, END, 4, 5, 6, END]
    assert lesson.share == pytest.approx(1 / 6)


@pytest.mark.parametrize("grain", [16, 64, 100])
@pytest.mark.parametrize("sizes", MANY[:20])
def test_what_is_filled_up_begins_with_the_lesson_itself(sizes, grain):
    batch = batch_of(sizes)
    plain, (shape, full) = Lesson.of(batch), lesson_of(batch, grain)
    pairs = len(batch)
    for ours, theirs in ((full.source, plain.source), (full.prefix, plain.prefix)):
        assert all(torch.equal(a, b) for a, b in zip(ours.unbind()[:pairs], theirs.unbind(), strict=True))
        assert len(ours) == shape.pairs
        assert int(ours.lengths.sum()) == len(ours.values)  # every token belongs to a sequence
        assert int(ours.lengths.max()) <= ours.longest
        assert len(ours.values) % grain == 0
        assert len(ours.values) - len(theirs.values) < grain
    told = len(plain.right)
    assert torch.equal(full.right[:told], plain.right)
    assert (full.right[told:] == IGNORED).all()


@pytest.mark.parametrize("sizes", MANY)
def test_sizes_are_few(sizes):
    shape = Shape.of(batch_of(sizes), 64)
    assert shape is not None
    assert shape.source % 64 == shape.target % 64 == 0
    assert {shape.source_longest, shape.target_longest} <= {16, 32, 64, 128}
    assert shape.pairs in {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}


def test_what_is_too_long_or_nothing_is_not_filled_up():
    assert Shape.of(batch_of([(127, 3)]), 64) is not None
    assert Shape.of(batch_of([(128, 3)]), 64) is None  # with its end, 129
    none = Ragged(torch.zeros(0, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    assert Shape.of(Batch(none, none, torch.arange(0), 3, 7, 7), 64) is None


@pytest.mark.parametrize("position", POSITIONS)
def test_the_loss_and_every_gradient_are_those_of_the_batch_alone(position):
    torch.manual_seed(3)
    model = build(
        TransformerSettings(
            width=16, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=8, dropout=0, position=position
        ),
        9,
        9,
    )
    batch, objective = batch_of([(3, 5), (1, 2), (12, 9), (7, 0)]), Objective(model, label_smoothing=0.1)
    _, full = lesson_of(batch)
    weights = list(model.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(objective(full), weights, allow_unused=True),
        torch.autograd.grad(objective(batch), weights, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(objective(full), objective(batch))
