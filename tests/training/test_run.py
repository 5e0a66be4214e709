"""A run refuses unusable settings before it writes anything, and reports divergence."""

import subprocess
import sys

import pytest
import torch

from regard.config import TrainSettings, parse
from regard.errors import RegardError
from regard.training.run import run
from tests.commands.small import Quiet, arguments, job, regard, written


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", "inf"),
        ("minutes", "inf"),
        ("clip_norm", "inf"),
        ("learning_rate", "nan"),
        ("weight_decay", "inf"),
        ("seed", str(2**70)),
        ("seed", "-1"),
    ],
)
def test_infinite_or_invalid_numbers_are_refused(name: str, value: str):
    with pytest.raises(RegardError, match=f"train.{name}"):
        parse(TrainSettings, {name: float(value) if name != "seed" else int(value)}, "train")


@pytest.mark.parametrize("device", ["tpu", "meta", "foo:1"])
def test_an_unavailable_device_is_refused(tmp_path, capsys, device: str):
    data = written(tmp_path / "pairs.tsv")
    _, printed = regard(
        capsys, *arguments(data, tmp_path / "out", "--steps", "2", "--device", device), code=2
    )
    assert (
        printed.strip()
        .splitlines()[-1]
        .endswith(f"device {device!r} is not available; use cpu or cuda")
    )
    assert not (tmp_path / "out").exists()


def test_diverging_training_is_an_error(tmp_path):
    with pytest.raises(RegardError, match=r"(not finite|became (nan|inf)) at step"):
        run(job(written(tmp_path / "pairs.tsv"), tmp_path / "out", learning_rate=1e30), Quiet())


def test_a_foreign_file_in_the_bundle_folder_is_refused(tmp_path):
    mine = tmp_path / "out/bundle/mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    with pytest.raises(RegardError, match=r"mine\.txt"):
        run(job(written(tmp_path / "pairs.tsv"), tmp_path / "out"), Quiet())
    assert not (tmp_path / "out/data").exists()


def test_a_moved_bundle_is_an_error(tmp_path):
    asked = job(written(tmp_path / "pairs.tsv"), tmp_path / "out")
    run(asked, Quiet())
    (tmp_path / "out/bundle").rename(tmp_path / "elsewhere")
    with pytest.raises(RegardError, match="this run is finished and its bundle was moved"):
        run(asked, Quiet())


def test_a_run_does_not_change_the_random_state(tmp_path):
    torch.manual_seed(7)
    drawn = torch.rand(4)
    torch.manual_seed(7)
    run(job(written(tmp_path / "pairs.tsv"), tmp_path / "run"), Quiet())
    assert torch.equal(torch.rand(4), drawn)


SCRIPT = """
import sys
from regard.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted({"torch", "torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules)))
"""


def test_training_does_not_import_the_compiler(tmp_path):
    """Importing the compiler stack takes seconds; only what is compiled needs it."""
    data = written(tmp_path / "pairs.tsv")
    words = arguments(data, tmp_path / "out", "--steps", "2", "--device", "cpu")
    command = [sys.executable, "-c", SCRIPT, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/bundle").exists()
    assert done.stdout.splitlines()[-1] == "torch"
