"""Distributed: two processes over gloo reach the weights of one at the same global batch."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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


def torchrun(*words: str) -> subprocess.CompletedProcess[str]:
    """A program in two processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [*launch, "--nproc-per-node", "2", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=150,
    )


def words_printed(folder: Path, program: str) -> list[str]:
    """The words that a program prints in two processes."""
    script = folder / "program.py"
    script.write_text(program)
    done = torchrun(str(script))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def two(data, out, *more: str, program: Sequence[str] = ("-m", "regard")) -> str:
    """The same run in two processes, by torchrun."""
    words = arguments(
        data, out, "--steps", "8", "--set", "model.dropout=0.0", "--set", "train.evaluations=2"
    )
    sets = [word for name, value in OPTIONS.items() for word in ("--set", f"train.{name}={value}")]
    done = torchrun(*program, *words, *sets, *more)
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
    done = torchrun(str(script), *arguments(place / "pairs.tsv", tmp_path / "out", "--steps", "4"))
    assert done.returncode != 0  # and it does end
    assert (
        "out of memory in process 1 of 2 at step 1; raise train.gradient_accumulation to 2"
        in done.stderr
    )


def test_fsdp_from_the_start_reaches_the_weights_of_one(place):
    out = place / "sharded"
    two(place / "pairs.tsv", out, "--set", "train.parallel=fsdp")
    assert_near(out, place)
    assert_same_answers(out, place)
    assert strange_files(out) == []


def test_two_processes_resume_where_they_stopped(place):
    """The first two stop at a signal in the middle; the next two finish the same run."""
    out = place / "stopped"
    script = place / "stop.py"
    script.write_text(
        "import os, signal, sys\n"
        "from regard.cli import main\n"
        "from regard.training.trainer import Trainer\n"
        "advance = Trainer.advance\n"
        "def stop(self):\n"
        "    if self.step == 2:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return advance(self)\n"
        "Trainer.advance = stop\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit:\n"
        "    sys.exit(0)\n"
    )
    two(place / "pairs.tsv", out, program=[str(script)])
    assert read(out / "checkpoints").progress["step"] == 3
    printed = two(place / "pairs.tsv", out)
    assert printed.count("resumed: from step 3") == 1
    assert_near(out, place)


def test_processes_wait_for_a_long_preparation(tmp_path):
    """Longer than the limit of other exchanges, which is ten minutes on GPUs."""
    words = words_printed(
        tmp_path,
        "import time\n"
        "from datetime import timedelta\n"
        "from torch import distributed\n"
        "start = distributed.init_process_group\n"
        "def short(backend): start(backend, timeout=timedelta(seconds=2))\n"
        "distributed.init_process_group = short\n"
        "from regard.training.distributed import world\n"
        "with world('cpu') as processes, processes.first_process_first():\n"
        "    time.sleep(4 if processes.first else 0)\n"
        "    print('prepared', processes.rank, flush=True)\n",
    )
    assert words == ["prepared", "0", "prepared", "1"]


def test_no_process_continues_before_all_have_prepared(tmp_path):
    """Rank 1 would remove the snapshot that rank 0 is writing."""
    words = words_printed(
        tmp_path,
        "import time\n"
        "from regard.training.distributed import world\n"
        "with world('cpu') as processes:\n"
        "    with processes.first_process_first():\n"
        "        time.sleep(0 if processes.first else 1)\n"
        "        print('prepared', flush=True)\n"
        "    print('continues', flush=True)\n",
    )
    assert words == ["prepared", "prepared", "continues", "continues"]
