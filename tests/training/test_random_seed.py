"""Seeding at every step: the same numbers as torch.manual_seed."""

import torch

from regard.training.random_seed import seed_generators


def test_seeding_equals_that_of_torch():
    torch.manual_seed(7)
    expected = torch.rand(5)
    seed_generators(7, torch.device("cpu"))
    assert torch.equal(torch.rand(5), expected)
