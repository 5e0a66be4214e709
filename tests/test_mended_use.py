"""Faults that were found by using models as people do: each stays mended."""

import subprocess
import sys

import pytest

import regard
from regard.errors import RegardError
from regard.search import Sampling


@pytest.fixture(params=["spelling", "spelling-recurrent"])
def held(request):
    return regard.load(request.param)


def test_seeds_are_whole_numbers():
    with pytest.raises(RegardError, match=r"^seed must be a whole number below 2¹²⁷; got "):
        Sampling(seed=2**130)


def test_what_is_of_another_type_is_one_line():
    """In a separate process: here, type checks of every call would raise first."""
    program = (
        "import numpy, torch, regard\nfrom regard import *\nfrom regard.search import Sampling\n"
    )
    program += (
        "t = load('spelling')\n[a], [b] = t.sample('at', seed=3), t.sample('at', "
        "seed=numpy.int64(3))\n"
    )
    program += "assert a.ids == b.ids\n"
    for ask in ("causal & torch.ones(2, 2) > 0", "causal | 'all'", "Ragged.of([[1, 2], [3]])",
                "Ragged(torch.zeros(3), [0, 1, "
                "3])", "Ragged(torch.zeros(3), torch.tensor([0.0, 3.0]))",
                "Sampling(seed=1.5)"):  # fmt: skip
        program += (
            f"try:\n    {ask}; print('nothing')\nexcept regard.RegardError as error:\n    "
            "print(error)\n"
        )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said = ended.stdout.splitlines()
    assert [line.split(";")[0] for line in said if ";" in line] == [
        *["mask must be a Mask such as causal or window(8), joined by & and |"] * 2,
        "a sequence must be a tensor with time first",
        *["offsets must be a one-dimensional integer tensor"] * 2,
        "seed must be a whole number below 2¹²⁷",
    ]
