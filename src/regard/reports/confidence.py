"""The section of a report on confidence: how often outputs of each confidence are right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.reports.charts import escape
from regard.reports.markup import section, table

MEANING = (
    "Every output has a <b>confidence</b>: the probability that it is entirely correct, that is, "
    "equal to a correct answer."
)


def confidence_section(card: Mapping[str, Any]) -> str:
    """The calibration on the card, in plain language; empty for a model without one."""
    found = card.get("calibration")
    if found is None:
        return ""
    errors = found.get("errors")
    if errors is None:
        reason = escape(found.get("reason", ""))
        text = (
            f"<p>{MEANING} It is the model's own probability here, which is often too high or too "
            f"low: there were too few held-out inputs to correct it ({reason}).</p>"
        )
        return section("confidence", "How sure is it?", text)
    rows = [
        [
            f"{one['lowest']:.0f}–{one['highest']:.0f} %",
            f"{one['outputs']:,}",
            f"{one['confidence']:.1f} %",
            f"{one['accuracy']:.1f} %",
        ]
        for one in errors["bins"]
    ]
    text = (
        f"<p>{MEANING} It was corrected on {found['outputs']:,} held-out inputs. The table shows "
        "outputs from the least to the most confident, each judged by a correction that did not "
        "use it: in a good model, the last two columns agree.</p>"
    )
    summary = (
        f"<p>On average they differ by <b>{errors['after']:.1f} points</b> (the expected "
        f"calibration error). With the model's own probability they would differ by "
        f"{errors['before']:.1f}; perfect confidences would differ by about "
        f"{errors['floor']:.1f} by chance.</p>"
    )
    head = ["confidence", "outputs", "mean confidence", "correct"]
    return section("confidence", "How sure is it?", text + table(head, rows, numbers=3) + summary)
