"""`regard bench`: time every attention backend on this machine and compare with `auto`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from regard.attention import BACKENDS, causal, everything
from regard.commands.bench_cases import (
    BenchCase,
    BenchResult,
    cases,
    copy_rate,
    matmul_rate,
    measure,
    timer,
)
from regard.device import bypass_onednn, resolve_device
from regard.errors import choose

TOLERANCE = 1.1  # times the fastest: too little to matter
PASSES = ("forward", "forward and backward")
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Machine(NamedTuple):
    """The machine, and its measured limits: operations and bytes per second."""

    name: str
    precision: str
    mask: str
    products: float
    copies: float

    def share(self, found: BenchResult) -> float:
        """The least possible time over the time of the backend that `auto` selects."""
        size = PRECISIONS[self.precision].itemsize
        rates = {"products": self.products, "copies": self.copies}
        floor = found.case.floor(back=found.back, **rates, size=size)
        return floor / found.seconds[found.auto] if found.auto in found.seconds else 0.0


def bench(
    *,
    device: str = "auto",
    precision: str | None = None,
    masked: bool = False,
    as_json: bool = False,
) -> None:
    """Time all cases; print tables, or one JSON object."""
    choose({"auto": 0, "cpu": 0, "cuda": 0}, device, "device")
    place = resolve_device(device).type
    precision = precision or ("bfloat16" if place == "cuda" else "float32")
    choose(PRECISIONS, precision, "precision")
    with bypass_onednn() if precision == "float32" else nullcontext():  # as in training
        grid = list(cases(place, causal if masked else everything))
        machine, found = measure_all(place, precision, grid)
    if as_json:
        records = [{**result_fields(one), "of_ceiling": machine.share(one)} for one in found]
        fields = {**machine._asdict(), "cases": records}
        print(json.dumps(fields, ensure_ascii=False, allow_nan=False))
        return
    width = None if sys.stdout.isatty() else 110
    console = Console(file=sys.stdout, width=width, highlight=False, soft_wrap=True)
    console.print(
        f"{machine.name}, {precision}, mask {machine.mask}: "
        f"matrix products at {machine.products / 1e12:.3g} TFLOP/s, "
        f"copies at {machine.copies / 1e9:.3g} GB/s"
    )
    for back, name in enumerate(PASSES):
        rows = [one for one in found if one.back == bool(back)]
        console.print(result_table(f"\n{name}, ms", rows, machine))
    console.print("* fastest   ← selected by auto   – not supported\n")
    for line in summary(found):
        console.print(line)
    if any(machine.share(one) > 1 for one in found):
        console.print(
            "above 100 % of the ceiling: data from cache, while the ceiling assumes memory"
        )


def measure_all(
    device: str, precision: str, grid: list[BenchCase]
) -> tuple[Machine, list[BenchResult]]:
    """Time all cases, with a progress bar; limits are the best of those before and after."""
    dtype, clock = PRECISIONS[precision], timer(device)
    found: list[BenchResult] = []
    torch.manual_seed(1)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("matrix products", total=2 * len(grid))
        limits = [(matmul_rate(clock, device, dtype), copy_rate(clock, device))]
        for back, name in enumerate(PASSES):
            latest = ""
            for case in grid:
                description = f"{case.score}, {case.length}, {case.rows}, {name}"
                progress.update(task, description=description)
                if device == "cuda" and case.score != latest:
                    torch.compiler.reset()  # torch stops compiling a function after a few shapes
                latest = case.score
                found.append(measure(case, device, dtype, back=bool(back), clock=clock))
                progress.advance(task)
        limits.append((matmul_rate(clock, device, dtype), copy_rate(clock, device)))
    products, copies = (max(rates) for rates in zip(*limits, strict=True))
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU × {torch.get_num_threads()}"
    name = f"{name}, torch {torch.__version__}"
    return Machine(name, precision, repr(grid[0].mask), products, copies), found


def result_fields(found: BenchResult) -> dict[str, Any]:
    """A result as plain values, for JSON."""
    case = found.case
    return {
        "score": case.score,
        "length": case.length,
        "rows": case.rows,
        "sequences": len(case.lengths),
        "tokens": sum(case.lengths),
        "heads": case.heads,
        "dim": case.dim,
        "pass": PASSES[found.back],
        "milliseconds": {name: seconds * 1e3 for name, seconds in found.seconds.items()},
        "cannot": found.cannot,
        "fastest": found.fastest,
        "auto": found.auto,
        "slower": found.slower if found.auto in found.seconds else None,
    }


def result_table(title: str, found: list[BenchResult], machine: Machine) -> Table:
    """Milliseconds by case and backend."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("score")
    table.add_column("sequences")
    for name in (*BACKENDS, "auto, of its ceiling"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        cells = [format_cell(one, name) for name in BACKENDS]
        table.add_row(one.case.score, _shape(one.case), *cells, f"{machine.share(one):.1%}")
    return table


def format_cell(found: BenchResult, name: str) -> str:
    """The milliseconds of a backend, marked if it is the fastest or selected by `auto`."""
    if name not in found.seconds:
        return "– ←" if name == found.auto else "–  "
    milliseconds = found.seconds[name] * 1e3
    digits = 3 if milliseconds < 1 else 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    best = name == found.fastest
    text = f"{milliseconds:,.{digits}f}{' *'[best]}{' ←'[name == found.auto]}"
    return f"[green]{text}[/]" if best else text


def _shape(case: BenchCase) -> str:
    least, most = min(case.lengths), max(case.lengths)
    return f"{len(case.lengths)} × {most if least == most else f'{least}–{most}'}"


def summary(found: list[BenchResult]) -> Iterator[str]:
    """The cases where `auto` is clearly slower than the fastest backend."""
    slow = [one for one in found if one.slower > TOLERANCE]
    for one in slow:
        name = f"{one.case.score}, {_shape(one.case)}, {PASSES[one.back]}"
        yield f"{name}: auto selects {one.auto}, {one.slower:.2f} × the time of {one.fastest}"
    good = len(found) - len(slow)
    within = f"within {TOLERANCE - 1:.0%} of the fastest"
    yield f"auto is {within} in {good} of {len(found)} cases"
    if slow:
        yield "to choose a backend yourself: regard train … --set model.attention_backend=NAME"
