"""Plans: what is decided from the data and the machine, and that a person's word goes before it."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from regard.config import Train
from regard.text import Corpus
from regard.train import loop
from regard.train.distributed import World
from regard.train.plan import plan
from regard.train.prepare import Prepared
from regard.train.run import Job, run
from regard.train.view import Plain

CPU, GPU = (World(1, 0, torch.device(name)) for name in ("cpu", "cuda"))


def planned(tokens: int, world: World, **train):
    """The plan for so many tokens, half of them on each side."""
    lengths = np.full(100, tokens // 200)
    pairs = SimpleNamespace(source_lengths=lengths, target_lengths=lengths)
    data = Mock(spec=Prepared, pairs=pairs, exam=SimpleNamespace(source=range(30), target=range(40)))
    return plan("transformer", "auto", {}, Train(**train), data, world)


@pytest.mark.parametrize(
    ("tokens", "world", "given", "read_twice"),
    [
        (2_000_000, GPU, {}, 1.0),
        (2_000_000, CPU, {}, 0.0),  # steps are dear
        (100_000_000, GPU, {}, 0.0),  # enough to learn from
        (2_000_000, GPU, {"minutes": 3}, 0.0),  # time is
        (2_000_000, GPU, {"consistency": 0}, 0.0),
        (100_000_000, CPU, {"consistency": 2.5}, 2.5),
    ],
)
def test_little_data_is_read_twice_on_a_gpu(tokens, world, given, read_twice):
    decided = planned(tokens, world, **given)
    assert decided.consistency == read_twice
    said = any("read twice" in decision for decision in decided.decisions)
    assert said == (read_twice == 1.0)


@pytest.mark.parametrize(
    ("tokens", "world", "epochs"),
    [(1_000_000, GPU, 40), (10_000_000, GPU, 12), (1_000_000_000, GPU, 3), (1_000_000, CPU, 40), (3_000_000, CPU, 20)],
)
def test_epochs_by_the_tokens_and_the_machine(tokens, world, epochs):
    assert planned(tokens, world).epochs == epochs
    assert planned(tokens, world, epochs=7.5).epochs == 7.5


@pytest.mark.parametrize(("given", "told"), [({}, 0.0), ({"consistency": 2.0}, 2.0)])
def test_training_is_told_of_it(given, told, data, tmp_path, monkeypatch):
    heard = []
    objective = loop.Objective
    monkeypatch.setattr(loop, "Objective", lambda *a, **k: heard.append(k["consistency"]) or objective(*a, **k))
    with open(tmp_path / "log", "w") as log:
        run(Job(Corpus(data), tmp_path / "out", model={"width": 16}, train=Train(steps=2, **given)), Plain(log))
    assert set(heard) == {told}
