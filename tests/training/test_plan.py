"""Plan: settings resolved from data and machine, kept on resume, and fitted to GPU memory."""

from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch

from regard.config import TextSettings, TrainSettings
from regard.errors import RegardError
from regard.text import Batches, Corpus
from regard.training import plan as plan_module
from regard.training import trainer
from regard.training.augmentation import Augmentation
from regard.training.auto_settings import RequestedSettings, resolve_settings
from regard.training.dataset import Dataset, tokenize
from regard.training.display import LineDisplay
from regard.training.distributed import World
from regard.training.plan import (
    MEMORY_SHARE,
    MIN_BATCH_TOKENS,
    largest_batches,
    largest_fitting,
    plan,
)
from regard.training.raw_data import read
from regard.training.run import Job, run
from regard.training.tokenizer_pair import choose
from tests.commands.small import written

CPU, GPU = (World(1, 0, torch.device(name)) for name in ("cpu", "cuda"))


def sized(tokens: int, kind: str = "characters") -> Mock:
    """Prepared data of so many tokens, half of them on each side."""
    lengths = np.full(100, tokens // 200)
    source, target = (MagicMock(kind=kind, __len__=Mock(return_value=size)) for size in (30, 40))
    return Mock(
        spec=Dataset,
        lengths=(lengths, lengths),
        held_out=SimpleNamespace(source=source, target=target),
        augmentation=None,
    )


def planned(tokens: int, world: World, kind: str = "characters", **train):
    requested = RequestedSettings(train=TrainSettings(**train))
    return resolve_settings(requested, sized(tokens, kind), world)


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
def test_small_data_gets_rdrop_and_bpe_dropout_on_a_gpu(
    tokens, kind, world, given, read_twice, respelt
):
    decided = planned(tokens, world, kind, **given)
    assert (decided.train.rdrop, decided.train.bpe_dropout) == (read_twice, respelt)
    printed = " ".join(decided.decisions)
    assert ("train.rdrop" in printed) == (read_twice > 0 and "rdrop" not in given)
    assert ("train.bpe_dropout" in printed) == (respelt > 0 and "bpe_dropout" not in given)


@pytest.mark.parametrize(
    ("tokens", "kind", "world", "given", "size"),
    [
        (20_000, "characters", GPU, {}, "tiny"),  # docs/log.md, "Small data"
        (60_000, "characters", GPU, {}, "mini"),
        (200_000, "characters", GPU, {}, "mini"),
        (500_000, "characters", GPU, {}, "small"),
        (500_000, "bpe", GPU, {}, "small"),
        (25_000_000, "bpe", GPU, {}, "base"),
        (2_000_000, "characters", CPU, {}, "mini"),
        (2_000_000, "characters", CPU, {"minutes": 3}, "tiny"),
        (2_000_000, "characters", CPU, {"minutes": 30}, "mini"),
        (2_000_000, "characters", CPU, {"minutes": 10}, "tiny"),  # 5.4 M tokens
        (2_000_000, "bpe", CPU, {"minutes": 10}, "mini"),
        (2_000_000, "bpe", CPU, {"minutes": 5}, "tiny"),
        (100_000, "characters", CPU, {"minutes": 10}, "mini"),  # 54 epochs
        (100_000, "characters", CPU, {"minutes": 3}, "tiny"),
        (100_000_000, "bpe", CPU, {}, "tiny"),
    ],
)
def test_size_by_the_data_the_machine_and_the_time(tokens, kind, world, given, size):
    assert planned(tokens, world, kind, **given).name == f"transformer {size}"


@pytest.mark.parametrize(("speed", "size"), [(2_000, "tiny"), (5_000, "mini"), (90_000, "mini")])
def test_size_by_the_measured_speed_of_a_cpu(speed, size):
    requested = RequestedSettings(train=TrainSettings(minutes=30))
    settings = resolve_settings(requested, sized(2_000_000), CPU, speed)  # 8 M tokens are enough
    assert settings.name == f"transformer {size}"
    assert settings.decisions[0].endswith(f"on cpu, {speed:,} tokens/s with mini")


def test_the_speed_of_a_cpu_is_measured_if_it_decides_the_size(tmp_path, monkeypatch):
    measured = []

    def measure(requested, dataset):
        measured.append(dataset)
        return 90_000.0

    monkeypatch.setattr(plan_module, "measure_training_speed", measure)
    for name, given in (("a", {}), ("b", {"steps": 9}), ("c", {"minutes": 3})):
        requested = RequestedSettings(train=TrainSettings(**given))
        plan(sized(2_000_000), requested, CPU, tmp_path / name)
    small = RequestedSettings(train=TrainSettings(minutes=3))
    plan(sized(20_000), small, CPU, tmp_path / "d")
    assert len(measured) == 1
    assert '"width": 128' in (tmp_path / "c").read_text()  # mini, because the machine is fast


def test_augmented_data_need_no_more_epochs_than_others():
    data = sized(100_000)
    data.augmentation = Augmentation(4_000, 2)
    assert resolve_settings(RequestedSettings(), data, GPU).train.epochs == 60


@pytest.mark.parametrize(
    ("given", "dropout"), [({"minutes": 10}, 0.3), ({"minutes": 0.1}, 0.0), ({"steps": 20}, 0.1)]
)
def test_many_epochs_on_a_cpu_are_regularised(given, dropout):
    assert planned(60_000, CPU, **given).model.dropout == dropout


@pytest.mark.parametrize(
    ("tokens", "kind", "world", "epochs"),
    [
        (1_000_000, "characters", GPU, 40),
        (1_000_000, "bpe", GPU, 60),
        (1_000_000, "bpe", CPU, 30),
        (100_000, "characters", GPU, 40 * 2.5**1.2),
        (1_000, "characters", GPU, 300),
        (10_000_000, "bpe", GPU, 24),
        (1_000_000_000, "bpe", GPU, 3),
        (3_000_000, "characters", CPU, 10),
    ],
)
def test_epochs_by_the_tokens_and_the_machine(tokens, kind, world, epochs):
    assert planned(tokens, world, kind).train.epochs == epochs
    assert planned(tokens, world, kind, epochs=7.5).train.epochs == 7.5
    assert planned(tokens, world, kind, steps=10).train.epochs is None


@pytest.mark.parametrize(
    ("tokens", "world", "dropout"), [(4e6, GPU, 0.3), (6e6, GPU, 0.1), (4e6, CPU, 0.1)]
)
def test_dropout_depends_on_the_amount_of_data(tokens, world, dropout):
    assert planned(int(tokens), world).model.dropout == dropout


@pytest.mark.parametrize(
    ("given", "patience"),
    [
        ({}, 3),
        ({"minutes": 10}, 3),
        ({"evaluations": 40}, 15),
        ({"evaluations": 4}, 3),
        ({"steps": 100}, 0),
        ({"epochs": 9}, 0),
        ({"steps": 100, "patience": 2}, 2),
        ({"patience": 0}, 0),
    ],
)
def test_runs_end_on_a_plateau_unless_a_length_is_given(given, patience):
    assert planned(1_000_000, GPU, **given).train.patience == patience


def test_settings_are_kept_on_another_machine(tmp_path):
    path, data = tmp_path / "settings.json", sized(1_000_000)

    def decide(world: World, size: str = "auto", model: dict | None = None, **train):
        settings = TrainSettings(batch_tokens=5_000, **train)
        requested = RequestedSettings(size=size, model=model or {}, train=settings)
        return plan(data, requested, world, path)

    elsewhere = resolve_settings(RequestedSettings(), data, CPU)
    began = decide(GPU)
    again = decide(CPU)
    assert (again.name, again.model, again.train) == ("transformer small", began.model, began.train)
    assert again.decisions == began.decisions
    assert again.model.width > elsewhere.model.width
    assert again.train.rdrop != elsewhere.train.rdrop
    assert decide(CPU, size="small") == again
    assert (
        decide(CPU, checkpoint_seconds=1.0).train.checkpoint_seconds == 1.0
    )  # may change on the way
    for asked, named in (
        ({"size": "base"}, r"model\.width was 256 and is 512"),
        ({"model": {"dropout": 0.2}}, r"model\.dropout was 0\.3 and is 0\.2"),
        ({"rdrop": 0.0}, r"train\.rdrop was 1\.0 and is 0\.0"),
        ({"steps": 10}, r"train\.steps was None and is 10"),
    ):
        with pytest.raises(RegardError, match=named):
            decide(CPU, **asked)


def test_resolved_settings_override_presets_on_resume(tmp_path):
    """tiny says that nothing is tied, and one vocabulary for both sides that all is."""
    data = sized(1_000_000)
    data.held_out.target = data.held_out.source
    first, second = (
        plan(data, RequestedSettings(size="tiny"), CPU, tmp_path / "settings.json")
        for _ in range(2)
    )
    assert first == second
    assert first.model.tie_embeddings == "all"


def test_a_damaged_settings_file_is_an_error(tmp_path):
    path = tmp_path / "settings.json"
    for held in ('{"model": {"kind": "transformer"}, "train": {}, "text": {}}', "{", "[]", ""):
        path.write_text(held)
        with pytest.raises(
            RegardError, match="is damaged or was written by another version of Regard"
        ):
            plan(sized(1_000_000), RequestedSettings(size="tiny"), CPU, path)


@pytest.mark.parametrize("tie", ["all", "inputs"])
def test_separate_vocabularies_cannot_be_tied(tie):
    data = sized(1_000_000)
    data.held_out.target.__len__ = data.held_out.source.__len__
    with pytest.raises(
        RegardError, match=rf"model\.tie_embeddings = '{tie}' needs one vocabulary for both sides"
    ):
        resolve_settings(RequestedSettings(size="tiny", model={"tie_embeddings": tie}), data, CPU)


@pytest.mark.parametrize(("given", "told"), [({}, 0.0), ({"rdrop": 2.0}, 2.0)])
def test_training_uses_the_resolved_rdrop(given, told, data, tmp_path, monkeypatch):
    heard = []
    objective = trainer.Objective
    monkeypatch.setattr(
        trainer, "Objective", lambda *a, **k: heard.append(k["rdrop"]) or objective(*a, **k)
    )
    with open(tmp_path / "log", "w") as log:
        run(
            Job(
                Corpus(data),
                tmp_path / "out",
                model={"width": 16},
                train=TrainSettings(steps=2, **given),
            ),
            LineDisplay(log),
        )
    assert set(heard) == {told}


def test_batches_are_halved_until_they_fit_in_memory():
    tried = []

    def peak_memory(batch_tokens: int) -> int:
        tried.append(batch_tokens)
        return batch_tokens * 10

    assert largest_fitting(40_000, peak_memory, memory=round(120_000 / MEMORY_SHARE)) == 10_000
    assert tried == [40_000, 20_000, 10_000]


def test_out_of_memory_counts_as_too_large():
    def peak_memory(batch_tokens: int) -> int:
        if batch_tokens > 8_000:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 0

    assert largest_fitting(30_000, peak_memory, memory=1) == 7_500


@pytest.mark.parametrize("batch_tokens", [MIN_BATCH_TOKENS + 1, 3 * MIN_BATCH_TOKENS, 100])
def test_batches_are_never_below_the_minimum(batch_tokens):
    assert largest_fitting(batch_tokens, lambda batch_tokens: 10**9, memory=1) == min(
        batch_tokens, MIN_BATCH_TOKENS
    )


def test_largest_batches_have_most_and_longest_pairs(tmp_path):
    lines = [("ab" * (1 + i % 40), "c" * (1 + i % 40)) for i in range(400)]
    corpus = Corpus(written(tmp_path / "pairs.tsv", lines))
    raw = read(corpus, None, TextSettings(), folder=tmp_path / "data")
    data = tokenize(choose(raw), lambda _: None)
    batches = Batches(data.pairs, batch_tokens=600, seed=1, max_tokens=data.max_tokens)
    tried = largest_batches(batches)
    every = list(batches.epoch(0))
    assert max(len(batch) for batch in tried) == max(len(batch) for batch in every)
    assert max(batch.source.longest for batch in tried) == max(
        batch.source.longest for batch in every
    )
