"""One small trained model for all tests of the commands."""

import fcntl
import os
from pathlib import Path

import pytest

from tests.commands.small import arguments, pairs, start, written


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """A model that partly learned to reverse strings: some answers are right, some are wrong.

    The first test process trains it; parallel test processes share it.
    """
    own = tmp_path_factory.getbasetemp()
    home = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "bundle"
    with open(home.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "run/bundle").exists():
            _train(home)
    return home / "run/bundle"


def _train(home: Path) -> None:
    home.mkdir(exist_ok=True)
    data = written(home / "pairs.tsv", pairs(700, seed=1))
    sets = (
        "model.width=32",
        "model.ffn_width=32",
        "model.dropout=0.0",
        "train.batch_tokens=256",
        "train.evaluations=1",
    )
    more = [word for one in sets for word in ("--set", one)]
    process = start(
        arguments(data, home / "run", "--steps", "90", *more)
    )  # its own process runs without type checks
    _, err = process.communicate(timeout=900)
    assert process.returncode == 0, err


@pytest.fixture
def words(tmp_path):
    """A file of lines that are not in the training data; one of them is empty."""
    found = [source for source, _ in pairs(150, seed=2)]
    found[5] = ""
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{word}\n" for word in found))
    return path
