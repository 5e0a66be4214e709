"""All Triton kernels under NVIDIA's compute-sanitizer: accesses outside allocated memory.

    python benchmarks/gpu_sanitizer.py                      # memcheck on the kernel tests: minutes
    python benchmarks/gpu_sanitizer.py --tool racecheck     # races in shared memory
    python benchmarks/gpu_sanitizer.py --parallel 4         # parallel processes per part

The tests in tests/gpu compare each kernel with float64 at odd sizes, with empty sequences and
masked rows. Kernels called one by one get memory directly from the driver; otherwise the memory
beyond an array belongs to another array of torch's pool, and no error is found. CUDA graphs need
that pool. The control reads past an array on purpose: a check that misses it is useless.
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
PADDING = 65_536  # unallocated bytes after each array
PARTS = {  # name: test file, selected tests, whether torch keeps its memory pool
    "attention": ("test_triton.py", "not cuda_graph and not little_memory", False),
    "training": ("test_training.py", "test", False),
    "decoding": ("test_decoding.py", "test", False),
    "whole steps": (
        "test_graph_step.py",
        "long_sequences",
        True,
    ),  # captures of training fail under it: docs/log.md
    "continuous batching": (
        "test_continuous_batching.py",
        "neighbours or weights_are_used or (scheduler_finds and greedy)",
        True,
    ),
}
# The project's own pytest options are left out: type checks only take time here.
PYTEST = "-m pytest -q --tb=line -p no:cacheprovider -o addopts=--import-mode=importlib"
PYTEST += " -o filterwarnings="


def run_sanitizer(command: Sequence[str], tool: str, *, pool: bool) -> tuple[int, str]:
    """Exit code and output of a command under the sanitizer."""
    sanitizer = [
        "compute-sanitizer",
        "--tool",
        tool,
        "--target-processes",
        "all",
        "--report-api-errors",
        "no",
    ]
    sanitizer += ["--padding", str(PADDING)] if tool == "memcheck" and not pool else []
    environment = {**os.environ, **({} if pool else {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})}
    done = subprocess.run(
        [*sanitizer, sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def errors(output: str) -> int:
    """The errors counted by the sanitizer over all processes; -1 if there is no summary."""
    counts = [int(count) for count in re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", output)]
    return sum(counts) if counts else -1


def part(name: str, options: argparse.Namespace) -> list[Check]:
    """Run the tests of one part under the sanitizer."""
    file, chosen, pool = PARTS[name]
    parallel = ["-n", str(options.parallel)] if options.parallel > 1 and not pool else []
    code, output = run_sanitizer(
        [*PYTEST.split(), f"tests/gpu/{file}", "-k", chosen, *parallel], options.tool, pool=pool
    )
    found, passed = errors(output), sum(map(int, re.findall(r"(\d+) passed", output)))
    print(
        f"{name}: {found} errors, {passed} tests passed",
        output[-3000:] if found or code else "",
        sep="\n",
        flush=True,
    )
    return [
        Check(f"{name}: errors", found, None, 0, found == 0),
        Check(f"{name}: tests passed", passed, None, 1, passed > 0 and code == 0),
    ]


def control() -> Check:
    """Read past an array on purpose. Triton needs the source file of a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "control.py"
        script.write_text(CONTROL)
        found = errors(run_sanitizer([str(script)], "memcheck", pool=False)[1])
    return Check("control: errors found", found, None, 1, found > 0)


def main() -> None:
    """Run all parts in parallel and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tool", choices=["memcheck", "racecheck"], default="memcheck")
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        metavar="PART",
        help=", ".join(PARTS),
    )
    parser.add_argument("--parallel", type=int, default=1, help="processes per part (pytest-xdist)")
    options = parser.parse_args()
    if shutil.which("compute-sanitizer") is None:
        parser.error("compute-sanitizer is not installed; it is part of the CUDA toolkit")
    made = [control()] if options.tool == "memcheck" else []
    with ThreadPoolExecutor(len(PARTS)) as pool:
        made += [
            check
            for found in pool.map(lambda name: part(name, options), options.parts)
            for check in found
        ]
    report("gpu_sanitizer" if options.tool == "memcheck" else f"gpu_sanitizer-{options.tool}", made)


if __name__ == "__main__":
    main()
