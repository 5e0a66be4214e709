"""Shared by all benchmarks: timing, the machine and its matmul rate, the table and JSON line."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass
class Check:
    """One figure: the measured value, its ceiling and its target."""

    name: str
    value: float
    ceiling: float | None
    target: float | None  # None: reported only
    ok: bool


def median(run: Callable[[], object], *, repeats: int = 9, warmup: int = 2) -> float:
    """Median seconds of `run` after a warm-up."""
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


def ratios(
    slow: Callable[[], object], fast: Callable[[], object], *, repeats: int = 9
) -> tuple[float, float, float]:
    """Median seconds of both, and the median ratio of alternating runs: noise affects both."""
    slow(), fast()
    pairs = [
        (median(slow, repeats=1, warmup=0), median(fast, repeats=1, warmup=0))
        for _ in range(repeats)
    ]
    one, other = zip(*pairs, strict=True)
    return (
        statistics.median(one),
        statistics.median(other),
        statistics.median(a / b for a, b in pairs),
    )


def matmul_rate(dtype: torch.dtype = torch.float32) -> float:
    """FLOP/s of a large matrix product: the arithmetic ceiling of this machine."""
    size, device = (8192, "cuda") if torch.cuda.is_available() else (2048, "cpu")
    a = torch.randn(size, size, device=device, dtype=dtype)
    return 2 * size**3 / median(lambda: a @ a, repeats=7)


def no_options(about: str | None) -> None:
    """Parse a command line without options, except --help."""
    argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()


def command(name: str, options: argparse.Namespace) -> list[str]:
    """The command line without local paths."""
    known = {"data": "DATA", "out": "OUT", "keep": "RESULTS"}
    paths = {str(getattr(options, option, None)): label for option, label in known.items()}
    return ["python", f"benchmarks/{name}.py", *(paths.get(word, word) for word in sys.argv[1:])]


def machine() -> str:
    """The name of the GPU or CPU, and the torch version."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            parts = dict(line.split(":", 1) for line in info if ":" in line)
        known = {key.strip(): value.strip() for key, value in parts.items()}
        name = known.get(
            "model name", {"0xd0c": "Neoverse-N1"}.get(known.get("CPU part", ""), name)
        )
    except OSError:
        pass
    return f"{os.cpu_count()} × {name}, torch {torch.__version__}"


def report(benchmark: str, checks: list[Check], on: str | None = None) -> None:
    """Print the checks as a table and as one JSON line; `on` is the machine, if not this one."""
    width = max(len(check.name) for check in checks)
    print(f"\n{'check':{width}}  {'value':>10}  {'ceiling':>10}  {'target':>10}")
    for check in checks:
        ceiling, target = (
            "–" if value is None else f"{value:.4g}" for value in (check.ceiling, check.target)
        )
        verdict = "ok" if check.ok else "MISSED"
        print(f"{check.name:{width}}  {check.value:>10.4g}  {ceiling:>10}  {target:>10}  {verdict}")
    facts = {"benchmark": benchmark, "machine": on or machine()}
    print(json.dumps({**facts, "checks": [asdict(check) for check in checks]}))


def keep(path: Path, benchmark: str, checks: list[Check], on: str, **results: Any) -> None:
    """Write the checks of a benchmark and its single results, one line each."""
    kept = {"benchmark": benchmark, "machine": on, "checks": [asdict(check) for check in checks]}
    text = json.dumps({**kept, **results}, ensure_ascii=False)
    path.write_text(text.replace('{"set"', '\n{"set"') + "\n")


def join_kept(paths: list[Path], key: tuple[str, ...]) -> list[dict[str, Any]]:
    """The single results of several kept files, each with its machine; a result replaces an
    earlier one with the same `key`."""
    found = {}
    for path in paths:
        kept = json.loads(path.read_text())
        for one in kept["results"]:
            on = one.get("machine", kept["machine"])
            found[tuple(one[name] for name in key)] = {**one, "machine": on}
    return list(found.values())


def machines(results: list[dict[str, Any]]) -> str:
    """The machines of joined results."""
    return "; ".join(dict.fromkeys(one["machine"] for one in results))
