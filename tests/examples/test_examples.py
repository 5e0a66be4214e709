"""Every example runs, passes its assertions, prints something and is short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = [
    "bank_of_the_river",
    "king_and_queen",
    "pooling_as_regression",
    "positions_compared",
    "six_vectors",
    "the_man_hit_the_car",
    "three_spaces",
]


def test_all_examples_are_listed():
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short(name):
    lines = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    assert sum("assert " in line for line in lines) >= 1


@pytest.mark.parametrize("name", NAMES)
def test_an_example_passes_its_assertions(name):
    # A separate process, because examples set PyTorch's default dtype and seed.
    environment = {
        **os.environ,
        "PYTHONIOENCODING": "utf-8",
        "PYTHONWARNINGS": "error",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    result = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env=environment, timeout=900
    )
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) >= 5
