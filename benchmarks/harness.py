"""What every benchmark needs: medians, a machine's name, its matmul rate as a ceiling, a table and a last JSON line."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch


@dataclass
class Check:
    """One figure: what was measured, what cannot be passed, what was asked."""

    name: str
    value: float
    ceiling: float | None
    target: float | None  # None: nothing was asked
    ok: bool


def median(run: Callable[[], object], *, repeats: int = 9, warmup: int = 2) -> float:
    """The median seconds of `run`, after warming up."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for _ in range(warmup):
        run()
    times = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ratios(slow: Callable[[], object], fast: Callable[[], object], *, repeats: int = 9) -> tuple[float, float, float]:
    """Median seconds of both, and the median of their ratios taken turn by turn, so that a noisy machine hits both."""
    slow(), fast()
    pairs = [(median(slow, repeats=1, warmup=0), median(fast, repeats=1, warmup=0)) for _ in range(repeats)]
    one, other = zip(*pairs, strict=True)
    return statistics.median(one), statistics.median(other), statistics.median(a / b for a, b in pairs)


def matmul_rate(dtype: torch.dtype = torch.float32) -> float:
    """Floating-point operations a second in a large matrix product: the arithmetic ceiling of this machine."""
    size, device = (8192, "cuda") if torch.cuda.is_available() else (2048, "cpu")
    a = torch.randn(size, size, device=device, dtype=dtype)
    return 2 * size**3 / median(lambda: a @ a, repeats=7)


def no_options(about: str | None) -> None:
    """A command line that knows --help, and nothing else."""
    argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()


def command(name: str, options: argparse.Namespace) -> list[str]:
    """The command that was given, without the places that only this machine has."""
    known = {"data": "DATA", "out": "OUT", "keep": "RESULTS"}
    places = {str(getattr(options, name, None)): instead for name, instead in known.items()}
    return ["python", f"benchmarks/{name}.py", *(places.get(word, word) for word in sys.argv[1:])]


def machine() -> str:
    """The processor, in words."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            parts = dict(line.split(":", 1) for line in info if ":" in line)
        known = {key.strip(): value.strip() for key, value in parts.items()}
        name = known.get("model name", {"0xd0c": "Neoverse-N1"}.get(known.get("CPU part", ""), name))
    except OSError:
        pass
    return f"{os.cpu_count()} × {name}, torch {torch.__version__}"


def report(benchmark: str, checks: list[Check], where: str | None = None) -> None:
    """The checks as a table for people, then as one JSON line for machines. `where`: a machine other than this one."""
    width = max(len(check.name) for check in checks)
    print(f"\n{'check':{width}}  {'value':>10}  {'ceiling':>10}  {'target':>10}")
    for check in checks:
        ceiling, target = ("–" if it is None else f"{it:.4g}" for it in (check.ceiling, check.target))
        verdict = "ok" if check.ok else "NOT REACHED"
        print(f"{check.name:{width}}  {check.value:>10.4g}  {ceiling:>10}  {target:>10}  {verdict}")
    facts = {"benchmark": benchmark, "machine": where or machine()}
    print(json.dumps({**facts, "checks": [asdict(check) for check in checks]}))
