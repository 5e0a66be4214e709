"""Cold start: the whole process of `regard predict spelling attention` on the native engine.

Processes alternate with `regard --version` and bare interpreters; figures are medians. One more set
of processes times its own imports and phases, so that the table accounts for the whole time from
the start of the process to its end. Bytecode is cached in a temporary folder, as pip leaves it.
The ceiling of the time is an interpreter that imports the three libraries and does nothing.

    python benchmarks/cold_start.py
    python benchmarks/cold_start.py --repeats 5 --torch     # also the same command on torch
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import Check, report

SOURCE = Path(__file__).parents[1] / "src"
COMMAND = ["-c", "from regard.cli import main; main()"]  # as the installed script `regard`
PREDICT = [*COMMAND, "predict", "spelling", "attention", "--device", "cpu"]
EXPECTED = "AH T EH N SH AH N"
SYSTEMS = {
    "python -c pass": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import numpy, tokenizers, cyclopts": ["-c", "import numpy, tokenizers, cyclopts"],
    "regard --version": [*COMMAND, "--version"],
    "regard predict": PREDICT,
}
MOST_SECONDS, AIM_SECONDS = 0.8, 0.5
MOST_MEGABYTES = 80.0
# Runs before the command: charges the time of each import and phase to one label, without nesting.
TIMED = """
import time
now, totals, stack, last = time.time, {}, ["command line: parse and run"], time.time()
totals["interpreter"] = last - float(__import__("os").environ["STARTED"])

def switch():
    global last
    at = now()
    totals[stack[-1]] = totals.get(stack[-1], 0.0) + at - last
    last = at

def timed(label, function):
    def wrapper(*arguments, **options):
        switch()
        stack.append(label(*arguments) if callable(label) else label)
        try:
            return function(*arguments, **options)
        finally:
            switch()
            stack.pop()
    return wrapper

def package(loader, module, *_):
    name = module.__name__ if hasattr(module, "__name__") else module.name  # a module or its spec
    top = name.partition(".")[0]
    known = {"attr": "cyclopts", "attrs": "cyclopts", "docstring_parser": "cyclopts"}
    top = known.get(top, top)
    own = top in ("cyclopts", "numpy", "tokenizers", "regard", "rich", "pydantic", "torch")
    return f"import {top}" if own else "import of the standard library"

from importlib import _bootstrap_external as loaders
source, extension = loaders.SourceFileLoader, loaders.ExtensionFileLoader
source.exec_module = timed(package, source.exec_module)
extension.exec_module = timed(package, extension.exec_module)
extension.create_module = timed(package, extension.create_module)

import atexit, json, os, sys
def end():
    switch()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    facts = {"totals": totals, "ended": now(), "kilobytes": int(status["VmHWM"].split()[0])}
    with open(os.environ["FACTS"], "w") as file:
        json.dump(facts, file)
atexit.register(end)

import regard.cli
import regard.bundle.bundle as bundle, regard.native.native_engine as engine
import regard.loading as loading
loading.read = timed("read and verify the bundle", loading.read)
engine.NativeModel = timed("open the model", engine.NativeModel)
engine.NativeEngine.search = timed("search", engine.NativeEngine.search)
from regard.cli import main
main()
"""


def environment(cache: Path, **more: str) -> dict[str, str]:
    """A process that caches bytecode and sees no GPU."""
    own = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache), "CUDA_VISIBLE_DEVICES": "", **more}
    own["PYTHONPATH"] = str(SOURCE)
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    return own


def run(arguments: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Seconds by the wall clock and of CPU time, from the start of the process to its end."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, os.times()
    assert done.returncode == 0, done.stderr
    assert "predict" not in arguments or done.stdout.strip() == EXPECTED, done.stdout
    used = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return wall, used


def account(cache: Path, folder: Path) -> tuple[dict[str, float], float]:
    """Seconds by label in one process, and its peak memory in megabytes."""
    facts = folder / "facts.json"
    started = time.time()
    env = environment(cache, STARTED=str(started), FACTS=str(facts))
    run(["-c", TIMED, *PREDICT[2:]], env)
    whole = time.time() - started
    found = json.loads(facts.read_text())
    totals = found["totals"]
    totals["exit"] = whole - sum(totals.values())
    return totals, found["kilobytes"] / 1e3


def print_breakdown(runs: list[dict[str, float]]) -> None:
    """The median milliseconds of each label, largest first, and their sum in tenths of a second."""
    labels = {label for one in runs for label in one}
    medians = {label: statistics.median(one.get(label, 0.0) for one in runs) for label in labels}
    passed = 0.0
    print(f"\n{'part':32} {'ms':>7} {'sum, s':>8}")
    for label, seconds in sorted(medians.items(), key=lambda pair: -pair[1]):
        passed += seconds
        print(f"{label:32} {1e3 * seconds:7.1f} {passed:8.2f}")


def main() -> None:
    """Measure, print the table and end in one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--torch", action="store_true", help="also time the torch engine")
    options = parser.parse_args()
    systems = dict(SYSTEMS)
    if options.torch:
        systems["regard predict --engine torch"] = [*PREDICT, "--engine", "torch"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(folder / "bytecode")
        for arguments in systems.values():  # writes the bytecode
            run(arguments, env)
        times: dict[str, list[tuple[float, float]]] = {system: [] for system in systems}
        accounts = []
        for _ in range(options.repeats):
            for system, arguments in systems.items():
                times[system].append(run(arguments, env))
            accounts.append(account(folder / "bytecode", folder))
    walls = {one: statistics.median(wall for wall, _ in some) for one, some in times.items()}
    used = {one: statistics.median(cpu for _, cpu in some) for one, some in times.items()}
    print(f"{'process':36} {'wall, s':>8} {'CPU, s':>8}")
    for system in systems:
        print(f"{system:36} {walls[system]:8.3f} {used[system]:8.3f}")
    print_breakdown([totals for totals, _ in accounts])
    megabytes = statistics.median(peak for _, peak in accounts)
    libraries = "import numpy, tokenizers, cyclopts"
    predict, version = walls["regard predict"], walls["regard --version"]
    checks = [
        Check("predict, whole process, s", predict, walls[libraries], MOST_SECONDS,
              predict <= MOST_SECONDS),
        Check("predict, aim, s", predict, walls[libraries], AIM_SECONDS, predict <= AIM_SECONDS),
        Check("predict, CPU time, s", used["regard predict"], used[libraries], None, True),
        Check("peak memory, MB", megabytes, None, MOST_MEGABYTES, megabytes <= MOST_MEGABYTES),
        Check("--version, s", version, walls["python -c pass"], None, True),
    ]  # fmt: skip
    report("cold_start", checks)


if __name__ == "__main__":
    main()
