"""Distributed: two processes over gloo reach the weights of one at the same global batch."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from regard import bundle
from regard.ragged import Ragged
from regard.training.checkpoint import read
from regard.training.loop import Interrupted
from regard.training.run import run
from regard.training.run_log import read_log as events
from tests.commands.small import Quiet, arguments, job, strange_files, written

PLAIN = {"dropout": 0.0}
OPTIONS = {
    "batch_tokens": 8,
    "gradient_accumulation": 2,
    "weight_average": "ema",
    "clip_norm": 1000.0,
}  # some steps have a single pair, so a process gets none


def two(data, out, *more: str) -> str:
    """The same run in two processes, by torchrun."""
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "regard",
    ]
    words = arguments(
        data, out, "--steps", "8", "--set", "model.dropout=0.0", "--set", "train.evaluations=2"
    )
    sets = [word for name, value in OPTIONS.items() for word in ("--set", f"train.{name}={value}")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [*launch, *words, *sets, *more], env=env, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with pairs, and what one process makes of them."""
    home = tmp_path_factory.mktemp("world")
    run(job(written(home / "pairs.tsv"), home / "one", model=PLAIN, **OPTIONS), Quiet())
    return home


def assert_near(out, place):
    """The weights, what the optimisers remember and the average, within rounding."""
    ours, theirs = (read(folder / "checkpoints") for folder in (out, place / "one"))
    clocks = {"seconds": 0, "evaluation_seconds": 0}
    assert {**ours.progress, **clocks} == {**theirs.progress, **clocks}
    for group in ("model", "average"):
        assert ours.state[group].keys() == theirs.state[group].keys()
        for name, weight in theirs.state[group].items():
            if name.endswith("cross_attention.keys.bias"):
                continue  # its exact gradient is zero, and Adam amplifies the rounding errors
            torch.testing.assert_close(
                ours.state[group][name], weight, atol=1e-5, rtol=0, msg=f"{group} {name}"
            )
    for mine, other in zip(ours.state["optimizers"], theirs.state["optimizers"], strict=True):
        torch.testing.assert_close(
            mine, other, atol=1e-5, rtol=0
        )  # steps forget the size of gradients, these do not


def assert_same_answers(out, place):
    ours, theirs = (bundle.load(folder / "bundle") for folder in (out, place / "one"))
    assert ours.card["metrics"] == theirs.card["metrics"]
    source, prefix = (
        Ragged.of([torch.tensor([5, 3, 4, 2]), torch.tensor([4, 2])]) for _ in range(2)
    )
    torch.testing.assert_close(
        *(made.model(source, prefix).values for made in (ours, theirs)), atol=1e-5, rtol=0
    )


def test_two_processes_reach_the_weights_of_one(place):
    """Saved by the clock all the time: whose clock it is must not matter."""
    out = place / "ddp"
    printed = two(place / "pairs.tsv", out, "--set", "train.checkpoint_seconds=0.02")
    assert_near(out, place)
    assert_same_answers(out, place)
    assert strange_files(out) == []
    told = [event["event"] for event in events(out / "log.jsonl")]
    assert [event for event in told if event != "snapshot"] == [
        "started",
        "evaluated",
        "evaluated",
        "calibrated",
        "finished",
    ]  # the first process alone tells
    assert printed.count("held out") == 1


def test_fsdp_resumes_a_run_of_one_process(place):
    out = place / "fsdp"
    alone = job(place / "pairs.tsv", out, model=PLAIN, **OPTIONS, parallel="fsdp")
    with pytest.raises(Interrupted):
        run(alone, Quiet(lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 3 else None))
    printed = two(place / "pairs.tsv", out, "--set", "train.parallel=fsdp")
    assert printed.count("resumed: from step 3") == 1
    assert_near(out, place)
    assert_same_answers(out, place)
    assert strange_files(out) == []


def test_out_of_memory_in_one_process_stops_all(place, tmp_path):
    script = tmp_path / "short.py"
    script.write_text(
        "import os, sys, torch\n"
        "from regard.cli import main\n"
        "from regard.training.objective import Objective\n"
        "if os.environ['RANK'] == '1':\n"
        "    def forward(self, batch): raise torch.OutOfMemoryError('CUDA out of memory')\n"
        "    Objective.forward = forward\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
    ]
    words = arguments(place / "pairs.tsv", tmp_path / "out", "--steps", "4")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*launch, *words], env=env, capture_output=True, text=True, timeout=150)
    assert done.returncode != 0  # and it does end
    assert (
        "out of memory in process 1 of 2 at step 1; raise train.gradient_accumulation to 2"
        in done.stderr
    )
