"""Progress of preparation: a large corpus reports what is done and what is left, a small none."""

from pathlib import Path

import pytest

from regard.training import preparation_progress
from regard.training.preparation_progress import EVERY_SECONDS, PreparationProgress
from regard.training.run import run
from tests.commands.small import Quiet, job, written


class Clock:
    """A clock that advances by some seconds at each look."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_messages_come_every_few_seconds():
    told: list[str] = []
    clock = Clock(1.0)
    progress = PreparationProgress(told.append, clock=clock)
    for count in range(1, 21):
        progress.update("read", 10 * count)
    assert len(told) == 20 // int(EVERY_SECONDS)
    assert told[0] == "read 50 pairs (10 pairs/s)"


def test_the_time_left_is_that_of_the_stage():
    told: list[str] = []
    clock = Clock(0.0)
    progress = PreparationProgress(told.append, clock=clock)
    clock.now = 100.0
    progress.stage("tokenizing the pairs")
    clock.now = 110.0
    progress.update("tokenized", 1_000, 19_000)
    clock.now = 290.0
    progress.update("tokenized", 19_000, 19_000)
    assert told == [
        "tokenizing the pairs",
        "tokenized 1,000 of 19,000 pairs, 3 min 00 s left (100 pairs/s)",
        "tokenized 19,000 pairs (100 pairs/s)",
    ]


def test_a_small_corpus_reports_no_progress():
    told: list[str] = []
    progress = PreparationProgress(told.append)
    progress.stage("reading the pairs")
    assert list(progress.watch(range(10_000), "read")) == list(range(10_000))
    assert told == []


def test_pairs_pass_and_are_counted(monkeypatch):
    monkeypatch.setattr(preparation_progress, "CHECK_EVERY", 4)
    told: list[str] = []
    progress = PreparationProgress(told.append, clock=Clock(10.0))
    assert list(progress.watch("abcdefghij", "read")) == list("abcdefghij")
    assert [line.split(" pairs")[0] for line in told] == ["read 4", "read 8"]


@pytest.mark.parametrize("every", [0.0, 1e9])
def test_a_run_reports_all_stages(every, tmp_path: Path, monkeypatch):
    """All if each takes long, none but the result if all are fast."""
    monkeypatch.setattr(preparation_progress, "EVERY_SECONDS", every)
    monkeypatch.setattr(preparation_progress, "CHECK_EVERY", 30)
    shown = Quiet()
    run(job(written(tmp_path / "pairs.tsv"), tmp_path / "run", steps=1, evaluations=1), shown)
    told = [line for line in shown.lines if line.startswith(("read", "choos", "token"))]
    stages = [
        "reading the pairs",
        "read 30 pairs",
        "read 60 pairs",
        "read 90 pairs",
        "choosing and training the tokenizers",
        "tokenizing the pairs",
        "tokenized 95 of 100 pairs",
    ]
    begin = [line.split(" (")[0].split(",")[0] for line in told]
    assert begin == [*(stages if not every else ()), "tokenized 95 pairs"]
