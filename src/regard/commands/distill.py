"""`regard distill`: teacher and student side by side."""

from __future__ import annotations

from typing import Any

from regard.commands.formats import format_table
from regard.training import metrics


def format_distillation(facts: dict[str, Any]) -> str:
    """Quality, speed and size of teacher and student as a plain-text table."""
    sides = facts["teacher"], facts["student"]
    names = list(sides[0]["metrics"])
    rows = [
        [metrics.label(name), *(f"{side['metrics'][name]:.2f}" for side in sides)] for name in names
    ]
    speeds = [side["sources_per_second"] for side in sides]
    rows.append(["sources/s", *(f"{speed:,.0f}" for speed in speeds)])
    rows.append(["parameters", *(f"{side['parameters']:,}" for side in sides)])
    table = format_table(["", "teacher", "student"], rows)
    ratio = speeds[1] / max(1e-9, speeds[0])
    notes = list(dict.fromkeys(note for side in sides for note in side["notes"]))
    return "\n".join(
        [
            table,
            "",
            f"  {facts['held_out']:,} held-out sources on {facts['device']} (engine: "
            f"{facts['engine']}); the student has "
            f"{ratio:.1f} × the teacher's speed",
            *(f"  {line}" for line in metrics.legend(names)),
            *(f"  {note}" for note in notes),
        ]
    )
