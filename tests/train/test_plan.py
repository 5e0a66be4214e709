"""Plans: what is decided from the data and the machine, and that a person's word goes before it."""

from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch

from regard.config import TextSettings, TrainSettings
from regard.errors import RegardError
from regard.text import Corpus
from regard.train import loop
from regard.train.auto_settings import plan
from regard.train.distributed import World
from regard.train.prepare import Prepared
from regard.train.run import Job, run
from regard.train.run_settings import decided
from regard.train.view import Plain

CPU, GPU = (World(1, 0, torch.device(name)) for name in ("cpu", "cuda"))


def sized(tokens: int, kind: str = "characters") -> Mock:
    """Prepared data of so many tokens, half of them on each side."""
    lengths = np.full(100, tokens // 200)
    source, target = (MagicMock(kind=kind, __len__=Mock(return_value=size)) for size in (30, 40))
    return Mock(spec=Prepared, lengths=(lengths, lengths), exam=SimpleNamespace(source=source, target=target))


def planned(tokens: int, world: World, kind: str = "characters", **train):
    return plan("transformer", "auto", {}, TrainSettings(**train), sized(tokens, kind), world)


@pytest.mark.parametrize(
    ("tokens", "kind", "world", "given", "read_twice", "respelt"),
    [
        (1_000_000, "characters", GPU, {}, 1.0, 0.0),
        (1_000_000, "bpe", GPU, {}, 3.0, 0.1),
        (3_000_000, "bpe", GPU, {}, 1.0, 0.0),
        (1_000_000, "bpe", CPU, {}, 0.0, 0.0),  # steps are dear
        (10_000_000, "bpe", GPU, {}, 0.0, 0.0),  # a run reads it twenty times
        (1_000_000, "bpe", GPU, {"minutes": 3}, 0.0, 0.0),  # time is
        (1_000_000, "bpe", GPU, {"rdrop": 0}, 0.0, 0.1),
        (1_000_000, "bpe", GPU, {"bpe_dropout": 0}, 3.0, 0.0),
        (100_000_000, "bpe", CPU, {"rdrop": 2.5, "bpe_dropout": 0.3}, 2.5, 0.3),
    ],
)
def test_little_data_is_read_twice_and_respelt_on_a_gpu(tokens, kind, world, given, read_twice, respelt):
    decided = planned(tokens, world, kind, **given)
    assert (decided.train.rdrop, decided.train.bpe_dropout) == (read_twice, respelt)
    said = " ".join(decided.decisions)
    assert ("train.rdrop" in said) == (read_twice > 0 and "rdrop" not in given)
    assert ("train.bpe_dropout" in said) == (respelt > 0 and "bpe_dropout" not in given)


@pytest.mark.parametrize(
    ("tokens", "kind", "world", "epochs"),
    [
        (1_000_000, "characters", GPU, 40),
        (1_000_000, "bpe", GPU, 60),
        (1_000_000, "bpe", CPU, 40),
        (10_000_000, "bpe", GPU, 24),
        (1_000_000_000, "bpe", GPU, 3),
        (3_000_000, "characters", CPU, 20),
    ],
)
def test_epochs_by_the_tokens_and_the_machine(tokens, kind, world, epochs):
    assert planned(tokens, world, kind).train.epochs == epochs
    assert planned(tokens, world, kind, epochs=7.5).train.epochs == 7.5
    assert planned(tokens, world, kind, steps=10).train.epochs is None


@pytest.mark.parametrize(("tokens", "world", "dropout"), [(4e6, GPU, 0.3), (6e6, GPU, 0.1), (4e6, CPU, 0.1)])
def test_dropout_is_for_what_could_be_learned_by_heart(tokens, world, dropout):
    assert planned(int(tokens), world).model.dropout == dropout


def test_a_run_goes_on_with_what_it_began_with_on_another_machine(tmp_path):
    path, data = tmp_path / "settings.json", sized(1_000_000)

    def decide(world: World, size: str = "auto", model: dict | None = None, **train):
        return decided(
            path,
            ("transformer", size, model or {}, TrainSettings(batch_tokens=5_000, **train)),
            TextSettings(),
            data,
            world,
        )

    elsewhere = plan("transformer", "auto", {}, TrainSettings(), data, CPU)
    began = decide(GPU)
    again = decide(CPU)
    assert (again.name, again.model, again.train) == ("transformer small", began.model, began.train)
    assert again.decisions == began.decisions
    assert again.model.width > elsewhere.model.width
    assert again.train.rdrop != elsewhere.train.rdrop
    assert decide(CPU, size="small") == again
    assert decide(CPU, checkpoint_seconds=1.0).train.checkpoint_seconds == 1.0  # may change on the way
    for asked, named in (
        ({"size": "base"}, r"model\.width was 256 and is 512"),
        ({"model": {"dropout": 0.2}}, r"model\.dropout was 0\.3 and is 0\.2"),
        ({"rdrop": 0.0}, r"train\.rdrop was 1\.0 and is 0\.0"),
        ({"steps": 10}, r"train\.steps was None and is 10"),
    ):
        with pytest.raises(RegardError, match=named):
            decide(CPU, **asked)


def test_what_was_decided_over_a_size_stays_decided(tmp_path):
    """tiny says that nothing is tied, and one vocabulary for both sides that all is."""
    data = sized(1_000_000)
    data.exam.target = data.exam.source
    first, second = (
        decided(tmp_path / "settings.json", ("transformer", "tiny", {}, TrainSettings()), TextSettings(), data, CPU)
        for _ in range(2)
    )
    assert first == second
    assert first.model.tie_embeddings == "all"


def test_settings_of_others_are_refused_with_a_line(tmp_path):
    path = tmp_path / "settings.json"
    for held in ('{"model": {"kind": "transformer"}, "train": {}, "text": {}}', "{", "[]", ""):
        path.write_text(held)
        with pytest.raises(RegardError, match="was not written by this version of Regard, or is damaged"):
            decided(path, ("transformer", "tiny", {}, TrainSettings()), TextSettings(), sized(1_000_000), CPU)


def test_two_vocabularies_as_large_as_each_other_are_not_tied():
    data = sized(1_000_000)
    data.exam.target.__len__ = data.exam.source.__len__
    with pytest.raises(RegardError, match=r"model\.tie_embeddings = 'all' needs one vocabulary for both sides"):
        plan("transformer", "tiny", {"tie_embeddings": "all"}, TrainSettings(), data, CPU)


@pytest.mark.parametrize(("given", "told"), [({}, 0.0), ({"rdrop": 2.0}, 2.0)])
def test_training_is_told_of_it(given, told, data, tmp_path, monkeypatch):
    heard = []
    objective = loop.Objective
    monkeypatch.setattr(loop, "Objective", lambda *a, **k: heard.append(k["rdrop"]) or objective(*a, **k))
    with open(tmp_path / "log", "w") as log:
        run(Job(Corpus(data), tmp_path / "out", model={"width": 16}, train=TrainSettings(steps=2, **given)), Plain(log))
    assert set(heard) == {told}
