"""`regard calibrate`: the confidence of a model, fitted on held-out pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.commands.formats import format_table
from regard.commands.progress import Progress
from regard.confidence_calibration import calibrate as fit
from regard.text import Corpus


def calibrate(bundle: str | Path, corpus: Corpus, out: Path | None, *, device: str) -> str:
    """Calibrate and describe the result."""
    with Progress() as progress:
        pipeline = fit(bundle, corpus, out, device=device, advance=progress.advance)
    return describe_calibration(pipeline.bundle.card["calibration"], pipeline.bundle.folder)


def describe_calibration(facts: dict[str, Any], folder: object) -> str:
    """The calibration on a card as text."""
    errors = facts["errors"]
    count = f"{facts['outputs']:,} outputs, {facts['right']:,} of them right"
    rows = [
        ["own probability", f"{errors['before']:.1f}"],
        ["confidence", f"{errors['after']:.1f}"],
    ]
    return "\n".join(
        [
            format_table(["", "calibration error, %"], rows),
            "",
            f"  by cross-validation on {count}",
            f"  method: {facts['method']}",
            f"  bundle: {folder}",
        ]
    )
