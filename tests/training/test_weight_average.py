"""Weight averages against means computed by hand."""

import pytest
import torch
from torch import nn

from regard.training.weight_average import WeightAverage


class One(nn.Module):
    """A model of one number."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def become(self, value):
        with torch.no_grad():
            self.weight.fill_(value)

    @property
    def number(self):
        return self.weight.item()


def averaged(average):
    with average.applied():
        return average.model.number


def test_ema_is_the_plain_mean_until_the_window_is_full():
    model = One()
    average = WeightAverage(model, "ema", count=5, window=3)
    seen = []
    for step, value in enumerate([6.0, 0.0, 3.0, 9.0, 0.0], 1):
        model.become(value)
        average.update(step)
        seen.append(averaged(average))
        assert model.number == value  # the weights that learn are back
    assert seen == pytest.approx(
        [6, 3, 3, 5, 10 / 3]
    )  # means of 1, 2, 3; then a third of the way each time


def test_last_averages_only_recent_evaluations():
    model = One()
    average = WeightAverage(model, "last", count=2, window=1)
    seen = []
    for value in (1.0, 3.0, 8.0):
        model.become(value)
        average.update(1)
        average.add_snapshot()
        seen.append(averaged(average))
    assert seen == [1, 2, 5.5]


@pytest.mark.parametrize("kind", ["none", "ema", "last"])
def test_an_empty_average_leaves_the_weights(kind):
    model = One()
    model.become(7.0)
    assert averaged(WeightAverage(model, kind, count=2, window=2)) == 7


def test_kind_none_keeps_nothing():
    average = WeightAverage(One(), "none", count=2, window=2)
    average.update(1)
    average.add_snapshot()
    assert average.state() == {}


@pytest.mark.parametrize("kind", ["ema", "last"])
def test_a_restored_average_continues_identically(kind):
    first, second = (WeightAverage(One(), kind, count=11, window=4) for _ in range(2))

    def feed(average, step):
        average.model.become(step * step)
        average.update(step)
        average.add_snapshot()

    for step in range(
        1, 13
    ):  # more than ten snapshots: they must come back in number order, not in text order
        feed(first, step)
    second.restore({name: tensor.clone() for name, tensor in first.state().items()})
    assert second.state() == first.state()
    for step in (13, 14):
        feed(first, step)
        feed(second, step)
    assert averaged(second) == averaged(first)
    assert averaged(first) != first.model.number


def test_the_weights_are_restored_after_an_error():
    model = One()
    average = WeightAverage(model, "last", count=2, window=1)
    model.become(1.0)
    average.add_snapshot()
    model.become(2.0)
    with pytest.raises(ZeroDivisionError), average.applied():
        1 / (model.number - 1)  # the average is 1 here
    assert model.number == 2
