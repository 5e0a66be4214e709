"""One explanation against NumPy: its operands, lines, steps, result and value."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from explaining_formulas import Recomputed, Shown
from explaining_gates import FORMULAS

EXACT = 1e-9  # float64 against float64
FLOAT32 = 1e-5  # of the largest number inside: the model computes in float32

Lookup = Callable[[str, str, tuple[int, ...]], float]  # (kind, name, index) → the number there


def real(value: float | str) -> float:
    """A number of JSON, where infinities and NaN are strings."""
    return float(value)


def near(one: float, other: float, tolerance: float, size: float = 0.0) -> bool:
    """Whether two numbers agree, relative to their size."""
    if not (math.isfinite(one) and math.isfinite(other)):
        return one == other or (math.isnan(one) and math.isnan(other))
    return abs(one - other) <= tolerance * max(abs(one), abs(other), size)


def shown_by(explained: dict[str, Any], phi: str) -> Shown:
    """The parts of an explanation that a formula reads."""
    rows, steps = explained["rows"], explained["steps"]
    lines = [np.array([real(one["value"]) for one in row["operands"]]) for row in rows]
    here = [at for at, row in enumerate(rows) if row["here"]]
    return Shown(
        explained["formula"],
        explained["index"],
        lines,
        here[0] if here else None,
        {step["label"]: real(step["value"]) for step in steps},
        {step["label"]: real(step["operand"]["value"]) for step in steps if step["operand"]},
        phi,
    )


def wrong_operands(explained: dict[str, Any], lookup: Lookup) -> Iterator[str]:
    """Operands whose value is not that of the tensor or parameter they name."""
    operands = [one for row in explained["rows"] for one in row["operands"]]
    operands += [step["operand"] for step in explained["steps"] if step["operand"]]
    for one in operands:
        if one["kind"] == "constant":
            continue
        value = lookup(one["kind"], one["name"], tuple(one["index"]))
        if value != real(one["value"]):
            yield f"operand {one['name']}{one['index']} is {one['value']}; the number is {value}"


def wrong_numbers(explained: dict[str, Any], phi: str = "") -> Iterator[str]:
    """Numbers of an explanation that differ from their recomputation from its operands."""
    shown = shown_by(explained, phi)
    joined = [row for row in explained["rows"] if str(row["numbers"][0]) == "nan"]
    if joined:  # the smallest terms of a long sum are one line, which cannot be recomputed
        shown.lines = shown.lines[:-1]
    try:
        made = FORMULAS[explained["operation"]](shown)
    except (ValueError, ZeroDivisionError, KeyError) as error:
        yield f"not recomputed: {error!r}"
        return
    if joined and explained["operation"] != "Spearman's rank correlation":
        made.result += real(joined[0]["numbers"][-1])
    size = largest(explained, made)
    yield from wrong_lines(explained, made, size)
    for label, value in made.steps.items():
        if label in shown.steps and not near(shown.steps[label], value, EXACT, size):
            yield f"step {label} is {shown.steps[label]}; recomputed {value}"
    result, value = real(explained["result"]), real(explained["value"])
    if not near(result, made.result, EXACT, size):
        yield f"result is {result}; recomputed {made.result}"
    if not near(value, made.result, FLOAT32, size):
        yield f"value is {value}; recomputed {made.result}"
    difference = 0.0 if result == value else abs(result - value)
    if not near(real(explained["difference"]), difference, EXACT):
        yield f"difference is {explained['difference']}; recomputed {difference}"


def wrong_lines(explained: dict[str, Any], made: Recomputed, size: float) -> Iterator[str]:
    """Numbers of lines and running sums that differ."""
    running = 0.0
    rows = explained["rows"]
    for at, row in enumerate(rows):
        numbers = [real(one) for one in row["numbers"]]
        expected = made.lines[at] if at < len(made.lines) else numbers  # the joined line
        if len(numbers) != len(expected) or not all(
            near(a, b, EXACT, size) for a, b in zip(numbers, expected, strict=True)
        ):
            yield f"line {at} is {numbers}; recomputed {expected}"
        running += numbers[-1] if numbers else 0.0
        if row["running"] is not None and not near(real(row["running"]), running, EXACT, size):
            yield f"running sum {at} is {row['running']}; recomputed {running}"
    if len(made.lines) > len(rows):
        yield f"{len(rows)} lines; recomputed {len(made.lines)}"


def largest(explained: dict[str, Any], made: Recomputed) -> float:
    """The largest finite number inside a computation: float32 rounds in proportion to it."""
    numbers = [real(one) for row in explained["rows"] for one in row["numbers"]]
    numbers += [real(one["value"]) for row in explained["rows"] for one in row["operands"]]
    numbers += [*made.steps.values(), made.result, made.size]
    return max((abs(one) for one in numbers if math.isfinite(one)), default=0.0)


def deviation(explained: dict[str, Any]) -> float:
    """The distance of the shown value from float64, as a share of what float32 allows."""
    result, value = real(explained["result"]), real(explained["value"])
    if not math.isfinite(result):
        return 0.0
    size = largest(explained, Recomputed(result))
    return abs(result - value) / size if size else 0.0
