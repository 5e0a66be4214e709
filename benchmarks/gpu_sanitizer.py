"""Every kernel of our own under NVIDIA's compute-sanitizer: reads and writes outside of what was allocated.

    python benchmarks/gpu_sanitizer.py                      # memcheck over the kernels' tests: minutes
    python benchmarks/gpu_sanitizer.py --tool racecheck     # or races in shared memory
    python benchmarks/gpu_sanitizer.py --parallel 4         # so many processes for each part of many tests

The tests in tests/gpu hold each kernel to float64 at odd sizes, with empty sequences and hidden rows; here they are
watched. Kernels called one by one get memory straight from the driver, or else what lies beyond an array is another
array of torch's pool and nothing is noticed; a recorded step needs that pool. The control reads past an array on
purpose: a watch that does not see it sees nothing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Check, report

ROOT = Path(__file__).parent.parent
CONTROL = """
import torch, triton
import triton.language as tl
@triton.jit
def past(x, out, size, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, tl.load(x + at + size), mask=at < size)
x = torch.ones(1024, device="cuda")
past[(1,)](x, torch.empty_like(x), 1024, block=1024)
try:
    torch.cuda.synchronize()
except RuntimeError:
    pass
"""
PADDING = 65_536  # bytes behind each array that belong to nobody
PARTS = {  # what is watched: its tests, which of them, and whether torch keeps a pool of memory
    "attention": ("test_triton.py", "not recorded and not little_memory", False),
    "training": ("test_training.py", "test", False),
    "decoding": ("test_decoding.py", "test", False),
    "whole steps": ("test_recorded.py", "long_sequences", True),  # training's recordings fail under it: docs/log.md
    "flights": ("test_flights.py", "company or weights_are_seen or (flights_find and greedy)", True),
}
# The project's own options, random order and types checked, are left out: here they only take time.
PYTEST = "-m pytest -q --tb=line -p no:cacheprovider -o addopts=--import-mode=importlib -o filterwarnings="


def watched(command: Sequence[str], tool: str, *, pool: bool) -> tuple[int, str]:
    """How the command ended under the sanitizer, and what both said."""
    sanitizer = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--report-api-errors", "no"]
    sanitizer += ["--padding", str(PADDING)] if tool == "memcheck" and not pool else []
    surroundings = {**os.environ, **({} if pool else {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})}
    done = subprocess.run(
        [*sanitizer, sys.executable, *command], cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def errors(said: str) -> int:
    """How many the sanitizer counted, over all processes; -1 where it counted none at all."""
    counts = [int(count) for count in re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", said)]
    return sum(counts) if counts else -1


def part(name: str, options: argparse.Namespace) -> list[Check]:
    """One part's tests, watched."""
    file, chosen, pool = PARTS[name]
    side_by_side = ["-n", str(options.parallel)] if options.parallel > 1 and not pool else []
    code, said = watched([*PYTEST.split(), f"tests/gpu/{file}", "-k", chosen, *side_by_side], options.tool, pool=pool)
    found, passed = errors(said), sum(map(int, re.findall(r"(\d+) passed", said)))
    print(f"{name}: {found} errors, {passed} tests passed", said[-3000:] if found or code else "", sep="\n", flush=True)
    return [
        Check(f"{name}: errors", found, None, 0, found == 0),
        Check(f"{name}: tests passed", passed, None, 1, passed > 0 and code == 0),
    ]


def control() -> Check:
    """A read past an array. Triton wants to see a kernel's file."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "control.py"
        script.write_text(CONTROL)
        found = errors(watched([str(script)], "memcheck", pool=False)[1])
    return Check("control: errors found", found, None, 1, found > 0)


def main() -> None:
    """All parts side by side; then what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=["memcheck", "racecheck"], default="memcheck")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--parallel", type=int, default=1, help="processes for a part of many tests (pytest-xdist)")
    options = parser.parse_args()
    if shutil.which("compute-sanitizer") is None:
        parser.error("compute-sanitizer is not there; it comes with the CUDA toolkit")
    made = [control()] if options.tool == "memcheck" else []
    with ThreadPoolExecutor(len(PARTS)) as pool:
        made += [check for found in pool.map(lambda name: part(name, options), options.parts) for check in found]
    report("gpu_sanitizer" if options.tool == "memcheck" else f"gpu_sanitizer-{options.tool}", made)


if __name__ == "__main__":
    main()
