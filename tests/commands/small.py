"""Small training runs for tests: strings to reverse, and what a run leaves on disk."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from regard.cli import main
from regard.config import TextSettings, TrainSettings
from regard.text import Corpus
from regard.training.display import Display
from regard.training.run import Job

TINY = {
    "transformer": {
        "width": 16,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "ffn_width": 16,
        "dropout": 0.2,
    },
    "recurrent": {"width": 16, "dropout": 0.2},
}


def pairs(count: int = 100, seed: int = 0) -> list[tuple[str, str]]:
    """Short distinct strings and their reversals."""
    draw = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        word = "".join(draw.choices("abcd", k=draw.randint(2, 5)))
        found[word] = word[::-1]
    return list(found.items())


def written(path: Path, lines: list[tuple[str, str]] | None = None) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in lines or pairs()))
    return path


def job(
    data: Path, out: Path, family: str = "transformer", model: dict | None = None, **train
) -> Job:
    """A run of a second or two."""
    train = {"batch_tokens": 192, "evaluations": 2, **train}
    settings = TrainSettings(
        **({} if "minutes" in train or "epochs" in train else {"steps": 8}) | train
    )
    sizes = {**TINY[family], **(model or {})}
    return Job(
        Corpus(data),
        out,
        family=family,
        size="tiny",
        model=sizes,
        text=TextSettings(max_tokens=8),
        train=settings,
    )


class Quiet(Display):
    """Shows nothing and records everything; `at` is called with the number of each step."""

    def __init__(self, at: Callable[[int], None] | None = None) -> None:
        self.at, self.lines, self.losses, self.ended = at, [], [], {}

    def started(self, facts):
        self.lines += [f"{name}: {value}" for name, value in facts.items()]

    def step(self, status):
        self.losses.append(status.loss)
        if self.at is not None:
            self.at(status.step)

    def evaluated(self, step, metrics, samples=(), intervals=()):
        pass

    def message(self, text):
        self.lines.append(text)

    def finished(self, facts):
        self.ended = dict(facts)

    def close(self):
        pass


def tensors(path: Path) -> dict[str, bytes]:
    """Every tensor of a safetensors file, as its bytes."""
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        views = {name: file.get_tensor(name).view(-1).view(torch.uint8) for name in names}
        return {name: view.numpy().tobytes() for name, view in views.items()}


def checkpoints(out: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    return sorted((out / "checkpoints").glob("*.safetensors"), reverse=True)


def left_by(out: Path) -> dict[str, dict[str, bytes]]:
    """The final state of a run: the weights of its bundle and its last checkpoint."""
    newest = checkpoints(out)[0]
    return {
        "bundle": tensors(out / "bundle/weights.safetensors"),
        newest.name.split(".")[1]: tensors(newest),
    }


def strange_files(out: Path) -> list[str]:
    """Files that a complete run must not leave: partial, hidden and temporary ones."""
    every = (path.relative_to(out) for path in out.rglob("*"))
    return [
        str(path)
        for path in every
        if path.name.startswith(".") or path.suffix in (".partial", ".tmp", ".damaged")
    ]


def arguments(data: Path | str, out: Path, *more: str, family: str = "transformer") -> list[str]:
    """The same small run for the command line."""
    sets = [f"model.{name}={value}" for name, value in TINY[family].items()] + [
        "train.batch_tokens=192",
        "text.max_tokens=8",
    ]
    flags = [word for one in sets for word in ("--set", one)]
    return [
        "train",
        str(data),
        "--out",
        str(out),
        "--size",
        "tiny",
        "--family",
        family,
        *flags,
        *more,
    ]


def start(words: list[str], **options) -> subprocess.Popen:
    """`regard …` in a process of its own, on one thread."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    env.pop("PYTHONUNBUFFERED", None)  # which would hide what the command forgets to flush
    command = [sys.executable, "-m", "regard", *words]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    options["preexec_fn"] = heed_interrupts
    return subprocess.Popen(command, env=env, text=True, **options)


def heed_interrupts() -> None:
    """Do not ignore SIGINT, as the processes of a test run in the background do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def regard(capsys, *words, code: int = 0) -> tuple[str, str]:
    """What `regard …` writes to standard output and to standard error, in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert ended.value.code == code, err
    return out, err
