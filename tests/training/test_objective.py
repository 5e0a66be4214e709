"""The objective, against torch's cross-entropy per sequence and against explicit sums."""

import pytest
import torch
from torch.nn import functional as F

from regard.config import TransformerSettings
from regard.models import build
from regard.ragged import Ragged
from regard.text import BEGIN, END, Batch, split_batch
from regard.training.objective import Objective

VOCABULARY = 9
SOURCES, TARGETS = [[3, 4, 5], [6], [7, 8]], [[5, 4], [3, 3, 8, 7], [6]]


@pytest.fixture
def model():
    return build(
        TransformerSettings(
            width=8, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=8, dropout=0
        ),
        VOCABULARY,
        VOCABULARY,
    )


def ragged(rows):
    return Ragged.of([torch.tensor(row) for row in rows])


def batch(sources=SOURCES, targets=TARGETS):
    tokens = [sum(map(len, side)) for side in (targets, sources)]
    return Batch(
        ragged(sources), ragged(targets), torch.arange(len(sources)), len(sources), *tokens
    )


def nothing():
    none = Ragged(torch.zeros(0, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    return Batch(none, none, torch.arange(0), 3, 7, 7)


def gradients(model, *losses):
    return torch.autograd.grad(sum(losses), list(model.parameters()))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_the_mean_over_all_target_tokens(model, label_smoothing):
    sums = []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        logits = model(ragged([[*source, END]]), ragged([[BEGIN, *target]])).values
        right = torch.tensor([*target, END])
        sums.append(
            F.cross_entropy(logits, right, label_smoothing=label_smoothing, reduction="sum")
        )
    loss = Objective(model, label_smoothing=label_smoothing)(batch())
    torch.testing.assert_close(loss, sum(sums) / (7 + 3))  # seven target tokens, three ends


def test_label_smoothing_is_uniform_over_the_vocabulary(model):
    label_smoothing = 0.3
    log = model(ragged([[3, END]]), ragged([[BEGIN, 4]])).values.log_softmax(-1)
    by_hand = torch.tensor(0.0)
    for place, right in enumerate([4, END]):
        wanted = torch.full((VOCABULARY,), label_smoothing / VOCABULARY)
        wanted[right] += 1 - label_smoothing
        by_hand = by_hand - (wanted * log[place]).sum() / 2
    torch.testing.assert_close(
        Objective(model, label_smoothing=label_smoothing)(batch([[3]], [[4]])), by_hand
    )


def test_parts_of_a_step_add_up_to_the_whole(model):
    objective, whole = Objective(model, label_smoothing=0.1), batch()
    first, second = split_batch(whole)
    torch.testing.assert_close(objective(first) + objective(second), objective(whole))
    for ours, theirs in zip(
        gradients(model, objective(first), objective(second)),
        gradients(model, objective(whole)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_an_empty_batch_has_zero_loss_and_gradients(model):
    loss = Objective(model)(nothing())
    assert loss.item() == 0
    for gradient in gradients(model, loss):
        assert torch.equal(gradient, torch.zeros_like(gradient))


def test_rdrop_without_dropout_changes_nothing(model):
    model.train()  # but with no dropout, so both are the same
    once, twice = (
        Objective(model, label_smoothing=0.1),
        Objective(model, label_smoothing=0.1, rdrop=5.0),
    )
    torch.testing.assert_close(twice(batch()), once(batch()))


def test_rdrop_adds_both_divergences():
    torch.manual_seed(3)
    settings = TransformerSettings(
        width=8, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=8, dropout=0.4
    )
    model = build(settings, VOCABULARY, VOCABULARY).train()
    torch.manual_seed(4)
    loss = Objective(model, rdrop=3.0)(batch())
    torch.manual_seed(4)
    read = model.read(*(side.twice() for side in lesson_sides())).values.chunk(2)
    p, q = (torch.distributions.Categorical(logits=model.project(vectors)) for vectors in read)
    right = torch.tensor([5, 4, END, 3, 3, 8, 7, END, 6, END])
    divergence = torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)
    assert divergence.min() > 0
    by_hand = -(p.log_prob(right) + q.log_prob(right)) / 2 + 3.0 / 4 * divergence
    torch.testing.assert_close(loss, by_hand.mean())
    model.eval()
    torch.testing.assert_close(Objective(model, rdrop=3.0)(batch()), Objective(model)(batch()))


def lesson_sides():
    return ragged([[*row, END] for row in SOURCES]), ragged([[BEGIN, *row] for row in TARGETS])
