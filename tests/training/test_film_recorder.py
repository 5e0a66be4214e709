"""The recorder of the training film: its schedule, its files, resuming and kills."""

import json
import math
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import bundle
from regard.bundle.film_files import (
    FilmError,
    find_film,
    list_snapshots,
    read_weights,
    snapshot_steps,
)
from regard.errors import RegardError
from regard.ragged import Ragged
from regard.training.checkpoint import read
from regard.training.film_recorder import film_bytes, next_step, schedule, snapshot_count
from regard.training.run import run
from tests.commands.small import Quiet, arguments, job, start, strange_files, tensors


class Crash(Exception):
    """What a run does not expect."""


def film_of(out) -> dict[str, dict[str, bytes]]:
    """Every snapshot of a run as bytes."""
    return {path.name: tensors(path) for path in sorted((out / "film").iterdir())}


def test_schedules_by_hand():
    assert schedule(8, 40) == [0, 1, 2, 3, 4, 5, 6, 7, 8]  # no more snapshots than steps
    # 1 and 1000 with two between them at equal ratios: 10 and 100
    assert schedule(1000, 5) == [0, 1, 10, 100, 1000]
    # 1, 2, 4 … 64: six ratios of 2
    assert schedule(64, 8) == [0, 1, 2, 4, 8, 16, 32, 64]
    assert schedule(1000, 1) == [0, 1000]
    assert schedule(1000, 0) == []


@pytest.mark.parametrize("total", [100, 1_000, 30_000, 1_000_000])
def test_forty_steps_with_growing_gaps(total):
    steps = schedule(total, 40)
    assert len(steps) == 40
    assert steps[0] == 0
    assert steps[-1] == total
    gaps = [b - a for a, b in pairwise(steps)]
    assert min(gaps) == 1
    assert all(b >= a - 1 for a, b in pairwise(gaps))  # they grow, except for rounding


def test_a_longer_run_divides_the_steps_left():
    # At step 100, the third of five snapshots; 10,000 steps instead of 1,000: √(100 · 10,000)
    assert next_step(3, 100, 1_000, 5) == round(math.sqrt(100 * 1_000))
    assert next_step(3, 100, 10_000, 5) == 1_000
    assert next_step(5, 1_000, 10_000, 5) == 10_000  # an extended run: only its end
    assert next_step(5, 10_000, 10_000, 5) == 10_001


def test_small_models_have_a_film_by_default():
    assert snapshot_count(None, 1_400_000) == 40
    assert snapshot_count(None, 4_000_001) == 0
    assert snapshot_count(12, 60_000_000) == 12
    assert snapshot_count(0, 10) == 0
    assert film_bytes(40, 1_000_000) == 41 * 2_100_000


def test_a_run_records_weights_and_losses(tmp_path, data):
    display = Quiet()
    run(job(data, tmp_path / "run", weight_average="none"), display)
    film = list_snapshots(tmp_path / "run/film")
    assert [one.step for one in film] == [*range(9)]
    assert strange_files(tmp_path / "run") == []
    used = sum(one.path.stat().st_size for one in film)
    parameters = sum(p.numel() for p in bundle.load(tmp_path / "run/bundle").model.parameters())
    assert used <= film_bytes(40, parameters)
    assert f"training film: 40 snapshots, up to {film_bytes(40, parameters) / 1e6:,.0f} MB" in (
        display.lines
    )
    last = read(tmp_path / "run/checkpoints").state["model"]
    stored = load_file(film[-1].path)
    assert set(stored) == set(last)
    for name, weight in stored.items():
        assert torch.equal(weight, last[name].half()), name
    assert find_film(tmp_path / "run/bundle") == tmp_path / "run/film"


def test_the_loss_is_that_of_held_out_targets(tmp_path, data):
    run(job(data, tmp_path / "run", weight_average="none"), Quiet())
    with torch.no_grad():
        assert_losses(tmp_path)


def assert_losses(tmp_path):
    lines = (tmp_path / "run/held_out.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for snapshot in list_snapshots(tmp_path / "run/film")[::4]:
        loaded = bundle.load(tmp_path / "run/bundle")
        for name, weight in read_weights(snapshot).items():
            dict(loaded.model.named_parameters())[name].copy_(weight)
        total, count = 0.0, 0
        for row in rows:  # one pair at a time, from the logits
            source = [*loaded.source.encode(row["source"]), *loaded.template.source_suffix]
            target = loaded.target.encode(row["references"][0])
            prefix = Ragged.of([torch.tensor([*loaded.template.start, *target])])
            logits = loaded.model(Ragged.of([torch.tensor(source)]), prefix).values
            labels = torch.tensor([*target, loaded.template.end])
            total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
            count += len(labels)
        assert snapshot.loss == pytest.approx(total / count, rel=1e-2)  # weights in float16


def test_recording_changes_no_weight(tmp_path, data):
    run(job(data, tmp_path / "with"), Quiet())
    run(job(data, tmp_path / "without", film=0), Quiet())
    assert not (tmp_path / "without/film").exists()
    one, other = (
        tensors(tmp_path / name / "bundle/weights.safetensors") for name in ("with", "without")
    )
    assert one == other
    assert find_film(tmp_path / "without/bundle") is None


def test_a_resumed_run_has_the_same_film(tmp_path, data):
    run(job(data, tmp_path / "whole", steps=24, film=20), Quiet())

    def crash(step):
        if step == 13:
            raise Crash

    parts = job(data, tmp_path / "parts", steps=24, film=20)
    with pytest.raises(Crash):
        run(parts, Quiet(crash))
    assert snapshot_steps(tmp_path / "parts/film")[-1] > 12  # beyond the last checkpoint
    run(parts, Quiet())
    assert film_of(tmp_path / "parts") == film_of(tmp_path / "whole")


def test_a_resumed_run_removes_half_a_snapshot(tmp_path, data):
    wanted = job(data, tmp_path / "run", steps=24, film=20)

    def crash(step):
        if step == 13:
            raise Crash

    with pytest.raises(Crash):
        run(wanted, Quiet(crash))
    (tmp_path / "run/film/.step-000000014.safetensors.partial").write_bytes(b"half")
    run(wanted, Quiet())
    assert strange_files(tmp_path / "run") == []


def test_a_killed_run_leaves_whole_snapshots(tmp_path, data):
    out = tmp_path / "run"
    process = start(arguments(data, out, "--steps", "100000", "--set", "train.film=500"))
    try:
        while len(snapshot_steps(out / "film")) < 5 and process.poll() is None:
            time.sleep(0.01)
    finally:
        process.kill()
        process.communicate()
    film = list_snapshots(out / "film")  # reads every header
    assert len(film) >= 5
    assert len({frozenset(load_file(one.path)) for one in film}) == 1


def test_an_extended_run_extends_its_film(tmp_path, data):
    run(job(data, tmp_path / "run", steps=6, film=4), Quiet())
    assert snapshot_steps(tmp_path / "run/film") == [0, 1, 2, 6]
    run(replace(job(data, tmp_path / "run", steps=12, film=4), extend=True), Quiet())
    assert snapshot_steps(tmp_path / "run/film") == [0, 1, 2, 6, 12]


def test_a_full_disk_is_one_line_with_the_fix(tmp_path, data, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(RegardError, match=r"No space left on device.*train\.film=0") as raised:
        run(job(data, tmp_path / "run"), Quiet())
    assert "\n" not in str(raised.value)


def test_a_strange_file_is_named(tmp_path):
    film = tmp_path / "film"
    film.mkdir()
    save_file({"a": torch.zeros(1)}, film / "step-000000001.safetensors")
    with pytest.raises(FilmError, match="step-000000001"):
        list_snapshots(film)
