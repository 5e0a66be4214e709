"""The loop: gradient accumulation, out of memory, patience, and losses that are not finite."""

import io
import os
import signal

import pytest
import torch

from regard import kernels
from regard.errors import RegardError
from regard.training import checkpoint, dataset, loop, metrics
from regard.training.checkpoint import read
from regard.training.display import LineDisplay
from regard.training.loop import interruptible
from regard.training.objective import Objective
from regard.training.run import run
from regard.training.run_log import read_log as events
from regard.training.step_speed import measure_step_seconds
from tests.commands.small import Quiet, checkpoints, job, left_by, strange_files

PLAIN = {"dropout": 0.0}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    """Four steps without dropout, each computed at once."""
    out = tmp_path_factory.mktemp("whole")
    run(job(data, out, model=PLAIN, steps=4, evaluations=1), Quiet())
    return out


def assert_near(out, other):
    ours, theirs = (read(folder / "checkpoints").state["model"] for folder in (out, other))
    for name, weight in theirs.items():
        if not name.endswith(
            "cross_attention.keys.bias"
        ):  # its gradient is rounding and nothing else
            torch.testing.assert_close(ours[name], weight, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("parts", [2, 4])
def test_gradient_accumulation_equals_one_large_batch(tmp_path, data, whole, parts, monkeypatch):
    sizes, forward = [], Objective.forward
    monkeypatch.setattr(
        Objective, "forward", lambda self, batch: sizes.append(len(batch)) or forward(self, batch)
    )
    run(
        job(data, tmp_path, model=PLAIN, steps=4, evaluations=1, gradient_accumulation=parts),
        Quiet(),
    )
    assert len(sizes) == 4 * parts
    assert_near(tmp_path, whole)


def test_out_of_memory_repeats_the_step_in_halves(tmp_path, data, whole, monkeypatch):
    sizes, forward = [], Objective.forward

    def small_memory(self, batch):
        sizes.append(len(batch))
        if len(batch) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch)

    monkeypatch.setattr(Objective, "forward", small_memory)
    printed = io.StringIO()
    run(job(data, tmp_path, model=PLAIN, steps=4, evaluations=1), LineDisplay(printed))
    failed = [size for size in sizes if size > 8]
    parts = 2 ** len(failed)
    assert "out of memory at step 1: repeated it; steps are now computed in " in printed.getvalue()
    assert f"steps are now computed in {parts} parts" in printed.getvalue()
    assert 2 <= len(failed) <= 4  # halved until it fits, and then kept
    assert read(tmp_path / "checkpoints").progress["halvings"] == len(failed)
    assert_near(tmp_path, whole)


def test_a_pair_too_large_for_memory_is_an_error(tmp_path, data, monkeypatch):
    def no_memory(self, batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Objective, "forward", no_memory)
    with pytest.raises(
        RegardError,
        match=r"tokens does not fit in memory; lower text\.max_tokens or the model size$",
    ):
        run(job(data, tmp_path), Quiet())


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run(tmp_path, data, monkeypatch, what):
    forward, calls = Objective.forward, []

    def spoilt(self, batch):
        calls.append(batch.indices.tolist())
        loss = forward(self, batch)
        if len(calls) < 6:
            return loss
        if what == "gradient":
            loss.register_hook(lambda gradient: gradient * float("nan"))
            return loss
        return loss * float("inf")

    monkeypatch.setattr(Objective, "forward", spoilt)
    with pytest.raises(RegardError) as stopped:
        run(job(data, tmp_path), Quiet())
    number = "nan" if what == "gradient" else "inf"
    assert str(stopped.value).startswith(
        f"the loss became {number} at step 6 (epoch 1, pairs {calls[-1][:8]} …); "
    )
    assert len(calls) == 6
    saved = read(tmp_path / "checkpoints")
    assert saved.progress["step"] == 4
    assert all(weight.isfinite().all() for weight in saved.state["model"].values())
    *_, last = events(tmp_path / "log.jsonl")
    assert (last["event"], last["step"], last["loss"], last["pairs"]) == (
        "not finite",
        6,
        number,
        calls[-1][:8],
    )


def test_patience_stops_a_run_for_good(tmp_path, data, monkeypatch):
    rates = iter(
        [50.0, 40.0, 45.0, 41.0, 40.0, 1.0]
    )  # the fifth is as good as the second, and no better
    monkeypatch.setattr(dataset, "score_baselines", lambda *_, **__: {})
    monkeypatch.setattr(metrics, "measure", lambda *_: {"character_error_rate": next(rates)})
    view = Quiet()
    stubborn = job(data, tmp_path, evaluations=8, patience=3)
    card = run(stubborn, view)
    assert (card["steps"], card["metrics"]["character_error_rate"]) == (
        5,
        40.0,
    )  # the best; of two as good, the later
    assert len(view.losses) == 5
    assert view.ended["stopped"] == "no improvement in 3 evaluations"
    again = Quiet()
    run(stubborn, again)
    assert again.losses == []


def test_patience_begins_when_the_baselines_are_beaten(tmp_path, data, monkeypatch):
    rates = iter([90.0, 90.0, 90.0, 90.0, 90.0, 50.0, 50.0, 50.0])
    baselines = {"copy_source": {"character_error_rate": 60.0}}
    monkeypatch.setattr(dataset, "score_baselines", lambda *_, **__: baselines)
    monkeypatch.setattr(metrics, "measure", lambda *_: {"character_error_rate": next(rates)})
    view = Quiet()
    run(job(data, tmp_path, steps=10, evaluations=10, patience=2), view)
    assert len(view.losses) == 8
    assert view.ended["stopped"] == "no improvement in 2 evaluations"


def test_every_pair_is_used_once_per_epoch(tmp_path, data, monkeypatch):
    seen, forward = [], Objective.forward
    monkeypatch.setattr(
        Objective,
        "forward",
        lambda self, batch: seen.extend(batch.indices.tolist()) or forward(self, batch),
    )
    card = run(job(data, tmp_path, epochs=2.0, evaluations=1, batch_tokens=96), Quiet())
    assert sorted(seen) == sorted([*range(card["pairs"])] * 2)


def test_the_seed_determines_the_model(tmp_path, data):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(job(data, tmp_path / name, seed=seed, steps=2, evaluations=1), Quiet())
    assert left_by(tmp_path / "a") == left_by(tmp_path / "b")
    assert left_by(tmp_path / "a") != left_by(tmp_path / "c")


@pytest.mark.parametrize(("backend", "plain"), [("reference", True), ("auto", False)])
def test_the_reference_backend_disables_fused_kernels(tmp_path, data, monkeypatch, backend, plain):
    allowed, forward = [], Objective.forward
    monkeypatch.setattr(
        Objective,
        "forward",
        lambda self, batch: allowed.append(kernels._allowed) or forward(self, batch),
    )
    run(
        job(data, tmp_path, model=PLAIN | {"attention_backend": backend}, steps=2, evaluations=1),
        Quiet(),
    )
    assert allowed[-2:] == [not plain] * 2
    assert kernels._allowed


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # torch, on a CPU without bfloat16
def test_bfloat16_is_close_and_keeps_float32_weights(tmp_path, data, whole, monkeypatch):
    monkeypatch.setattr("regard.device.supports_bfloat16", lambda device: True)
    run(job(data, tmp_path, model=PLAIN, steps=4, evaluations=1, precision="bfloat16"), Quiet())
    ours, theirs = (read(folder / "checkpoints").state["model"] for folder in (tmp_path, whole))
    assert {weight.dtype for weight in ours.values()} == {torch.float32}
    assert any(not torch.equal(ours[name], theirs[name]) for name in ours)
    near = torch.cat([(ours[name] - theirs[name]).flatten() for name in ours]).norm()
    assert near < 0.1 * torch.cat([weight.flatten() for weight in theirs.values()]).norm()


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, data, monkeypatch):
    save = checkpoint.save_file

    def full(tensors, path, **options):
        if "step-8" in str(path):
            raise OSError(28, "No space left on device")
        save(tensors, path, **options)

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(RegardError, match="No space left on device; the last good one is kept"):
        run(job(data, tmp_path), Quiet())
    assert [path.name.split(".")[1] for path in checkpoints(tmp_path)] == ["step-4", "step-0"]
    assert strange_files(tmp_path) == []


def test_step_time_is_measured_after_warm_up(monkeypatch):
    now = [0.0]

    class Slow:
        steps = 0
        graph_step = None

        def tune(self):
            pass

        def advance(self):
            self.steps += 1
            now[0] += 100.0 if self.steps <= 4 else 0.5
            return torch.tensor(1.0), 1

    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    made = Slow()
    assert measure_step_seconds(lambda: made, 6) == 0.5
    assert made.steps == 10


def test_signals_are_recorded_inside_the_context_only():
    before = signal.getsignal(signal.SIGTERM)
    with interruptible() as stopped:
        assert stopped() is None
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped() == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before
