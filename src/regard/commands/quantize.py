"""`regard quantize`: size and quality in float32 and in int8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.commands.formats import format_table
from regard.training import metrics


def format_quantization(facts: Mapping[str, Any], folder: object) -> str:
    """The facts of `regard.quantize` as a plain-text table."""
    kinds = "float32", "int8"
    names = list(facts["float32"])
    rows = [["weights (bytes)", *(f"{facts['bytes'][kind]:,}" for kind in kinds)]]
    rows += [
        [metrics.label(name), *(f"{facts[kind][name]:.2f}" for kind in kinds)] for name in names
    ]
    changed = f"{facts['changed_outputs']:,} of {facts['held_out']:,} held-out outputs differ"
    lines = [
        format_table(["", *kinds], rows),
        "",
        f"  {changed} (engine: {facts['engine']})",
        *(f"  {line}" for line in metrics.legend(names)),
        f"  bundle: {folder}",
    ]
    return "\n".join(lines)
