"""Sentences of a report for readers who have never trained a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.reports.collect import ReportData
from regard.terminal import format_duration

GLOSSARY = {
    "held-out set": "Pairs that were not used for training, to measure the quality on new inputs.",
    "95 % interval": "The range in which the true value lies, with 95 % confidence. The more "
    "held-out inputs, the narrower it is.",
    "baseline": "A trivial program that needs no training. A useful model must beat it.",
    "confidence": "The probability that an output is entirely correct. Of 100 outputs with a "
    "confidence of 80 %, about 80 should be correct.",
    "loss": "How surprised the model was by the correct answers in training: the lower, the better "
    "it predicts them. It falls quickly at first, then slowly.",
    "step": "One update of the model, computed from one batch of pairs.",
    "token": "A piece of text that the model reads or writes at once: a character, a sound, a word "
    "or a part of one.",
    "parameters": "The numbers inside the model that training adjusts.",
    "attention": "How strongly the model used each piece of the input for a piece of the output.",
}


def data_warnings(card: Mapping[str, Any]) -> list[str]:
    """The warnings about the data among the decisions of a run, as sentences without full stop."""
    mark = "warning: "
    found = [line for line in card.get("decisions", []) if line.startswith(mark)]
    return [f"Careful: {line.removeprefix(mark)}" for line in found]


def explain_quality(card: Mapping[str, Any]) -> list[str]:
    """The quality in plain sentences."""
    values, lines = card.get("metrics", {}), []
    tested = f"measured on {card.get('held_out', 0):,} inputs that were not used for training"
    accuracy = values.get("sequence_accuracy")
    if accuracy is not None:
        low, high = card.get("intervals", {}).get("sequence_accuracy", (None, None))
        interval = (
            "" if low is None else f" (between {low:.0f} and {high:.0f} with 95 % confidence)"
        )
        lines.append(
            f"Of 100 new inputs, this model answers about {accuracy:.0f} entirely correctly"
            f"{interval}, {tested}."
        )
    elif "chrf" in values:
        lines.append(
            f"The outputs share much of their wording with the correct ones: chrF "
            f"{values['chrf']:.1f} and BLEU {values.get('bleu', 0):.1f} of 100, {tested}. Above "
            "about 50 chrF, texts are usually understandable."
        )
    if card.get("held_out", 0) < 200:
        lines.append(
            "The held-out set is small, so these numbers are rough. Add pairs to measure better."
        )
    return lines


def explain_training(data: ReportData) -> list[str]:
    """How training went, and what might improve the model."""
    card = data.card
    steps, total = card.get("steps", 0), card.get("of", 0)
    seconds = format_duration(card.get("seconds", 0))
    lines = [f"The best model was found at step {steps:,} of {total:,}, after {seconds}."]
    if len(data.losses) > 1:
        lines.append(
            "The loss says how surprised the model was by the correct answers; training lowers it."
        )
    if data.evaluations and not data.finished:
        lines.append("This run is not finished; run the same command again to resume it.")
    if data.evaluations and steps >= total:
        lines.append(
            "The last evaluation was the best one, so longer training may improve the model."
        )
    elif data.evaluations:
        lines.append(
            "Later evaluations were not better, so longer training would hardly help; more or "
            "cleaner pairs would."
        )
    return lines
