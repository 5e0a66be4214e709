"""Bench: every backend on every kind of attention, measured on this machine; what `regard bench` does."""

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
from regard.commands.bench_cases import Case, Finding, cases, measure
from regard.commands.timing import copy_rate, matmul_rate, timer
from regard.device import resolve_device
from regard.errors import choose
from regard.onednn import bypass_onednn

TOLERATED = 1.1  # times as slow as the fastest: what nobody would notice
PASSES = ("forward", "forward and backward")
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Machine(NamedTuple):
    """Where it was measured, and the machine's own limits: operations and bytes a second."""

    name: str
    precision: str
    mask: str
    products: float
    copies: float

    def share(self, found: Finding) -> float:
        """How much of the time of what `auto` takes nothing could do without."""
        size = PRECISIONS[self.precision].itemsize
        floor = found.case.floor(back=found.back, products=self.products, copies=self.copies, size=size)
        return floor / found.seconds[found.auto] if found.auto in found.seconds else 0.0


def bench(*, device: str = "auto", precision: str | None = None, masked: bool = False, as_json: bool = False) -> None:
    """Measure, and print tables for people or one JSON object."""
    choose({"auto": 0, "cpu": 0, "cuda": 0}, device, "device")
    place = resolve_device(device).type
    precision = precision or ("bfloat16" if place == "cuda" else "float32")
    choose(PRECISIONS, precision, "precision")
    with bypass_onednn() if precision == "float32" else nullcontext():  # as in training
        machine, found = measured(place, precision, list(cases(place, causal if masked else everything)))
    if as_json:
        records = [{**record(one), "of_ceiling": machine.share(one)} for one in found]
        print(json.dumps({**machine._asdict(), "cases": records}, ensure_ascii=False, allow_nan=False))
        return
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110, highlight=False, soft_wrap=True)
    console.print(
        f"{machine.name}, {precision}, mask {machine.mask}: matrix products run at {machine.products / 1e12:.3g} TF/s, "
        f"copies at {machine.copies / 1e9:.3g} GB/s"
    )
    for back, name in enumerate(PASSES):
        console.print(table(f"\n{name}, ms", [one for one in found if one.back == bool(back)], machine))
    console.print("* fastest here   ← what auto takes   – cannot, or not here\n")
    for line in verdict(found):
        console.print(line)
    if any(machine.share(one) > 1 for one in found):
        console.print("more than 100 % of the ceiling: from the cache, where the ceiling reckons with the memory")


def measured(device: str, precision: str, grid: list[Case]) -> tuple[Machine, list[Finding]]:
    """Everything there is to measure, with a bar on standard error; the limits are the best of before and after."""
    dtype, clock, found = PRECISIONS[precision], timer(device), []
    torch.manual_seed(1)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("matrix products", total=2 * len(grid))
        limits = [(matmul_rate(clock, device, dtype), copy_rate(clock, device))]
        for back, name in enumerate(PASSES):
            latest = ""
            for case in grid:
                progress.update(task, description=f"{case.score}, {case.length}, {case.rows}, {name}")
                if device == "cuda" and case.score != latest:
                    torch.compiler.reset()  # torch compiles a function for a few cases only, then gives up for good
                latest = case.score
                found.append(measure(case, device, dtype, back=bool(back), clock=clock))
                progress.advance(task)
        limits.append((matmul_rate(clock, device, dtype), copy_rate(clock, device)))
    products, copies = (max(rates) for rates in zip(*limits, strict=True))
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU × {torch.get_num_threads()}"
    return Machine(f"{name}, torch {torch.__version__}", precision, repr(grid[0].mask), products, copies), found


def record(found: Finding) -> dict[str, Any]:
    """A finding as plain values."""
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


def table(title: str, found: list[Finding], machine: Machine) -> Table:
    """Milliseconds by case and backend."""
    made = Table(title=title, title_justify="left", title_style="bold")
    made.add_column("score")
    made.add_column("sequences")
    for name in (*BACKENDS, "auto, of its ceiling"):
        made.add_column(name, justify="right", no_wrap=True)
    for one in found:
        cells = [cell(one, name) for name in BACKENDS]
        made.add_row(one.case.score, _shape(one.case), *cells, f"{machine.share(one):.1%}")
    return made


def cell(found: Finding, name: str) -> str:
    """The milliseconds of a backend, and its marks."""
    if name not in found.seconds:
        return "– ←" if name == found.auto else "–  "
    milliseconds = found.seconds[name] * 1e3
    digits = 3 if milliseconds < 1 else 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    best = name == found.fastest
    text = f"{milliseconds:,.{digits}f}{' *'[best]}{' ←'[name == found.auto]}"
    return f"[green]{text}[/]" if best else text


def _shape(case: Case) -> str:
    least, most = min(case.lengths), max(case.lengths)
    return f"{len(case.lengths)} × {most if least == most else f'{least}–{most}'}"


def verdict(found: list[Finding]) -> Iterator[str]:
    """Where `auto` takes much longer than it need, in words."""
    slow = [one for one in found if one.slower > TOLERATED]
    for one in slow:
        name = f"{one.case.score}, {_shape(one.case)}, {PASSES[one.back]}"
        yield f"{name}: auto takes {one.auto}, {one.slower:.2f} × the time of {one.fastest}"
    good = len(found) - len(slow)
    yield f"auto takes the fastest, or is within {TOLERATED - 1:.0%} of it, in {good} of {len(found)} cases"
    if slow:
        yield "where such a case is yours, name the backend: `regard train … --set model.attention_backend=NAME`"
