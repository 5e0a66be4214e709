"""Resume: an interrupted run ends with bit-identical weights, whatever stopped it."""

import json
import math
import os
import re
import signal
from dataclasses import replace

import pytest
import torch

from regard.config import TextSettings
from regard.errors import RegardError
from regard.threads import FixedThreads, ThreadTuner
from regard.training import loop, schedule
from regard.training.checkpoint import read
from regard.training.loop import Interrupted
from regard.training.run import run
from regard.training.run_log import read_log as events
from regard.training.trainer import Trainer
from tests.commands.small import (
    Quiet,
    checkpoints,
    job,
    left_by,
    pairs,
    strange_files,
    tensors,
    written,
)


class Crash(Exception):
    """What a run does not expect."""


def crash_at(step):
    def act(number):
        if number == step:
            raise Crash

    return act


def signal_at(step, name=signal.SIGTERM):
    return lambda number: os.kill(os.getpid(), name) if number == step else None


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    """A finished run of eight steps, measured after four and eight, that nobody stopped."""
    out = tmp_path_factory.mktemp("whole")
    run(job(data, out), Quiet())
    return out


@pytest.mark.parametrize(
    ("family", "optimizer", "average", "model"),
    [
        ("transformer", "adamw", "none", {}),
        ("transformer", "muon", "ema", {"position": "learned"}),
        ("transformer", "muon", "last", {"tie_embeddings": "none"}),
        ("recurrent", "muon", "none", {}),
        ("recurrent", "adamw", "last", {"cell": "lstm", "attention": "luong", "score": "dot"}),
    ],
)
def test_an_interrupted_run_ends_bit_identically(tmp_path, data, family, optimizer, average, model):
    options = {
        "optimizer": optimizer,
        "weight_average": average,
        "average_count": 2,
        "gradient_accumulation": 2,
    }
    whole = run(job(data, tmp_path / "whole", family, model, **options), Quiet())
    parts = job(data, tmp_path / "parts", family, model, **options)
    for step in (1, 6):  # before the first evaluation, and on from it
        with pytest.raises(Crash):
            run(parts, Quiet(crash_at(step)))
        step += 1
        with pytest.raises(
            Interrupted,
            match=rf"^SIGTERM: saved at step {step}; run the same command again to resume$",
        ):
            run(parts, Quiet(signal_at(step)))
    card = run(parts, Quiet())
    assert left_by(tmp_path / "parts") == left_by(tmp_path / "whole")
    assert [card[name] for name in ("metrics", "steps", "tokens")] == [
        whole[name] for name in ("metrics", "steps", "tokens")
    ]
    ours, theirs = (read(tmp_path / name / "checkpoints").progress for name in ("parts", "whole"))
    clocks = {"seconds": 0, "evaluation_seconds": 0}
    assert {**ours, **clocks} == {**theirs, **clocks}
    assert strange_files(tmp_path / "parts") == []


def test_steps_change_every_weight(whole):
    after, before = map(tensors, checkpoints(whole))
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] == before[name]] == []


def test_the_log_has_every_evaluation_and_interruption(tmp_path, data):
    again = job(data, tmp_path / "run")
    for act in (crash_at(5), signal_at(6, signal.SIGINT), crash_at(8)):
        with pytest.raises((Crash, Interrupted)):
            run(again, Quiet(act))
    run(again, Quiet())
    told = [(event["event"], event.get("step")) for event in events(tmp_path / "run/log.jsonl")]
    assert [step for name, step in told if name == "evaluated"] == [4, 8]
    others = ("evaluated", "continued", "snapshot", "calibrated")
    assert [event for event in told if event[0] not in others] == [
        ("started", 0),
        ("resumed", 4),
        ("interrupted", 6),
        ("resumed", 6),
        ("resumed", 6),
        ("finished", 8),
    ]


def test_a_finished_run_only_reports_its_result(data, whole):
    before, view = left_by(whole), Quiet()
    card = run(job(data, whole), view)
    assert left_by(whole) == before
    assert view.losses == []
    assert "steps: 8, complete; nothing is left to train" in view.lines
    assert not any(line.startswith("resumed") for line in view.lines)
    assert view.ended["bundle"] == str(whole / "bundle")
    rate = f"{card['metrics']['character_error_rate']:.2f} ("
    assert view.ended["character error rate"].startswith(rate)


@pytest.mark.parametrize("damage", ["bit", "half"])
def test_a_damaged_checkpoint_changes_no_bit(tmp_path, data, whole, damage):
    with pytest.raises(Interrupted):
        run(job(data, tmp_path / "run"), Quiet(signal_at(6)))
    newest = checkpoints(tmp_path / "run")[0]
    stored = bytearray(newest.read_bytes())
    stored[-1] ^= 1
    newest.write_bytes({"bit": stored, "half": stored[: len(stored) // 2]}[damage])
    view = Quiet()
    run(job(data, tmp_path / "run"), view)
    assert "resumed: from step 4" in view.lines
    assert any(line.startswith(f"damaged checkpoint {newest.name!r}") for line in view.lines)
    assert left_by(tmp_path / "run") == left_by(whole)
    assert strange_files(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("options", "model", "printed"),
    [
        ({"learning_rate": 0.5}, {}, "train.learning_rate was 0.014 and is 0.5"),
        ({"steps": 9}, {}, "train.steps was 8 and is 9"),
        ({"batch_tokens": 300}, {}, "train.batch_tokens was 192 and is 300"),
        ({}, {"width": 32}, "model.width was 16 and is 32"),
        (
            {"clip_norm": 2.0},
            {"dropout": 0.0},
            "model.dropout was 0.2 and is 0.0; train.clip_norm was 1.0 and is 2.0",
        ),
    ],
)
def test_changed_settings_are_refused_with_the_difference(data, whole, options, model, printed):
    before = left_by(whole)
    with pytest.raises(RegardError) as refused:
        run(job(data, whole, model=model, **options), Quiet())
    extend = "--extend to continue with a new length, " if "steps" in options else ""
    assert str(refused.value) == (
        f"this run began with other settings: {printed}. Use the old ones, {extend}--restart to "
        "start over, or another --out"
    )
    assert left_by(whole) == before


def test_a_run_of_an_older_version_resumes(tmp_path, data, whole):
    with pytest.raises(Interrupted):
        run(job(data, tmp_path / "run"), Quiet(signal_at(6)))
    path = tmp_path / "run/settings.json"
    stored = json.loads(path.read_text())
    del stored["model"]["biases"], stored["train"]["clip_norm"]  # settings that it did not have
    del stored["crc32"]
    path.write_text(json.dumps(stored))
    run(job(data, tmp_path / "run"), Quiet())
    assert left_by(tmp_path / "run") == left_by(whole)


def test_changed_text_settings_are_refused(data, whole):
    with pytest.raises(RegardError) as refused:
        run(replace(job(data, whole), text=TextSettings(max_tokens=9)), Quiet())
    printed = (
        "the data were prepared with other settings: text.max_tokens was 8 and is 9. Use the "
        "old ones, or another --out"
    )
    assert str(refused.value) == printed


def test_the_checkpoint_interval_may_change(tmp_path, data):
    with pytest.raises(Interrupted):
        run(job(data, tmp_path / "run"), Quiet(signal_at(6)))
    run(job(data, tmp_path / "run", checkpoint_seconds=0.0), Quiet())
    assert [path.name.split(".")[1] for path in checkpoints(tmp_path / "run")] == [
        "step-8",
        "step-7",
    ]


def test_changed_data_are_refused_with_the_name_of_the_file(tmp_path):
    own = written(tmp_path / "own.tsv")
    with pytest.raises(Interrupted):
        run(job(own, tmp_path / "run"), Quiet(signal_at(6)))
    written(own, [*pairs(), ("dddddddd", "dddddddd")])
    with pytest.raises(RegardError) as refused:
        run(job(own, tmp_path / "run"), Quiet())
    printed = "the data changed since this run began: 'own.tsv'; use the old data, or another --out"
    assert str(refused.value) == printed


def test_the_steps_of_a_timed_run_are_measured_once(tmp_path, data, monkeypatch):
    monkeypatch.setattr(loop, "measure_step_seconds", lambda make: 0.25)
    # the speed of this machine must not move the end of the run
    monkeypatch.setattr(schedule, "MEASURE_SECONDS", math.inf)
    monkeypatch.setattr(schedule, "SHORTEST_MEASUREMENT", math.inf)
    timed = job(data, tmp_path / "run", minutes=0.05, evaluations=1)
    with pytest.raises(Interrupted):
        run(timed, Quiet(signal_at(2)))
    total = read(tmp_path / "run/checkpoints").progress["length"]["total"]
    assert 3 <= total <= 11  # 0.97 · 3 s less one evaluation, at four steps a second

    def measured_again(*_):
        raise AssertionError("a resumed run must not measure anew")

    monkeypatch.setattr(loop, "measure_step_seconds", measured_again)
    run(timed, Quiet())
    assert read(tmp_path / "run/checkpoints").progress["step"] == total
    told = [event["total"] for event in events(tmp_path / "run/log.jsonl") if "total" in event]
    assert told == [total, total]


def tuner(seconds):
    """Two thread counts; work takes the given seconds with one and with two threads."""
    now = [0.0]

    def clock():
        now[0] += seconds[torch.get_num_threads()]
        return now[0]

    return ThreadTuner((1, 2), uniform=True, clock=clock)


def test_timing_thread_counts_changes_no_bit(tmp_path, data, monkeypatch):
    monkeypatch.setattr(loop, "training_threads", lambda *_: FixedThreads())
    torch.set_num_threads(2)  # what the tuner starts with, and keeps
    try:
        run(job(data, tmp_path / "fixed"), Quiet())
    finally:
        torch.set_num_threads(1)
    monkeypatch.setattr(loop, "training_threads", lambda *_: tuner({1: 3.0, 2: 3.0}))
    probed = []
    gradients = Trainer._compute_gradients
    monkeypatch.setattr(
        Trainer, "_compute_gradients", lambda *some: probed.append(1) or gradients(*some)
    )
    run(job(data, tmp_path / "run"), Quiet())
    assert len(probed) > 8
    assert left_by(tmp_path / "run") == left_by(tmp_path / "fixed")


def test_a_resumed_run_starts_with_the_threads_it_had(tmp_path, data, monkeypatch):
    view = Quiet(crash_at(2))
    monkeypatch.setattr(loop, "training_threads", lambda *_: tuner({1: 0.1, 2: 1.0}))
    with pytest.raises(Crash):
        run(job(data, tmp_path / "run"), view)
    (line,) = [line for line in view.lines if line.startswith("CPU threads")]
    assert re.fullmatch(
        r"CPU threads: 1 from step 1 on; tokens/s: [\d,]+ with 2, [\d,]+ with 1", line
    )
    assert read(tmp_path / "run/checkpoints").progress["threads"] == 1
    monkeypatch.setattr(loop, "training_threads", lambda *_: tuner({1: 1.0, 2: 1.0}))
    run(job(data, tmp_path / "run"), Quiet())
    assert read(tmp_path / "run/checkpoints").progress["threads"] == 1
    changes = [event for event in events(tmp_path / "run/log.jsonl") if event["event"] == "threads"]
    assert [(event["step"], event["count"]) for event in changes] == [(0, 1)]
