"""Run length: a run of some minutes ends in time on a machine whose speed changes."""

import random
from itertools import pairwise

import pytest

from regard.training import loop
from regard.training.checkpoint import read
from regard.training.run import run
from regard.training.schedule import TIME_SHARE, RunLength, TimeLimit, rate_factor
from regard.training.trainer import Trainer
from tests.commands.small import Quiet, job, written


@pytest.mark.parametrize(
    ("total", "times"), [(20, 6), (100, 3), (7, 7), (1, 1), (5, 9), (1_937, 4), (10**7 + 1, 13)]
)
def test_without_moves_planned_steps_are_real_steps(total: int, times: int):
    length, some = RunLength(total, total), range(1, min(total, 3_000) + 1)
    assert [length.completed(step) for step in some] == list(some)
    due = [step * times // total > (step - 1) * times // total for step in some]
    assert [length.evaluation_due(step, times) for step in some] == due


@pytest.mark.parametrize("slow", [0.001, 0.1, 0.3])
def test_a_slow_start_does_not_end_a_run_early(slow):
    """The first 120 steps take `slow` seconds each, the others 4 ms; speed is read every 20."""
    length, limit, elapsed, step = RunLength(50_000, 50_000), TimeLimit(3, 0, 0.0), 0.0, 0
    while step < length.total:
        step += 1
        elapsed += slow if step <= 120 else 0.004
        if step % 20 == 0 and (total := limit.total(length, step, elapsed, 0.0)) is not None:
            length.move(step, total)
    assert 0.9 * TIME_SHARE * 180 < elapsed < 1.1 * TIME_SHARE * 180


@pytest.mark.parametrize("seed", range(20))
def test_a_moving_end_keeps_rate_and_evaluations_even(seed: int):
    draw = random.Random(seed)
    length, step, rates, due = RunLength(1_000, 1_000), 0, [], []
    while step < length.total:
        rates.append(rate_factor("linear", length.completed(step), 50, length.planned))
        step += 1
        if length.evaluation_due(step, 10):
            due.append(length.completed(step))
        if draw.random() < 0.02 and length.completed(step) < 950:
            length.move(step, step + round((1_000 - length.completed(step)) * draw.uniform(0.4, 2)))
    assert length.completed(step) == pytest.approx(1_000)
    slopes = [after - before for before, after in pairwise(rates)]
    assert all(
        -2.6 / 950 <= slope <= 2.6 / 50 for slope in slopes
    )  # what is left, in 0.4 times as many steps
    assert due == pytest.approx([100 * (1 + number) for number in range(10)], abs=2.6)


class Machine:
    """A clock that advances by `pace` seconds per step."""

    def __init__(self) -> None:
        self.now, self.pace, self.steps = 0.0, 1.0, 0

    monotonic = perf_counter = lambda self: self.now


@pytest.mark.parametrize(("later", "expected"), [(1.0, 58), (4.0, 25), (0.5, 101)])
def test_a_timed_run_ends_in_time_if_the_speed_changes(tmp_path, monkeypatch, later, expected):
    machine, advance = Machine(), Trainer.advance

    def slow(trainer):
        machine.now += machine.pace
        machine.steps += 1
        machine.pace = later if machine.steps >= 15 else 1.0
        return advance(trainer)

    monkeypatch.setattr(loop, "time", machine)
    monkeypatch.setattr(loop, "measure_step_seconds", lambda make: 1.0)
    monkeypatch.setattr(Trainer, "advance", slow)
    data = written(tmp_path / "pairs.tsv")
    timed = job(data, tmp_path / "run", minutes=1, evaluations=3, checkpoint_seconds=5.0)
    card = run(timed, view := Quiet())
    assert machine.now == pytest.approx(60 * 0.97, abs=max(2.5, 2 * later))
    assert card["steps"] <= machine.steps == pytest.approx(expected, abs=3)
    length = RunLength(**read(tmp_path / "run/checkpoints").progress["length"])
    assert length.planned == 58
    assert length.total == machine.steps
    assert len(view.losses) == machine.steps
