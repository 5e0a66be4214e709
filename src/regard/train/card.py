"""The card of a trained model: what people want to know of it, and what answering needs to know."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from regard.config import TextSettings
from regard.text.files import printable_name
from regard.train.auto_settings import Plan
from regard.train.loop import Trainer
from regard.train.prepare import Prepared


def card(
    trainer: Trainer,
    data: Prepared,
    plan: Plan,
    found: Mapping[str, Any],
    *,
    text: TextSettings,
    command: Sequence[str],
) -> dict[str, Any]:
    """How a model was trained, on what, by which command, and how well it does on the held-out part (`found`)."""
    exam, (sources, targets) = data.exam, data.lengths
    return {
        "metrics": dict(found),
        "task": exam.task,
        "held_out": len(exam.questions),
        "pairs": len(sources),
        "decisions": [*data.decisions, *plan.decisions],
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "longest": {"source": int(sources.max()), "target": int(targets.max()), "ratio": exam.ratio},
        "steps": trainer.step,
        "of": trainer.total,
        "seconds": round(trainer.facts["seconds"], 1),
        "tokens": trainer.facts["tokens"],
        "settings": {"train": plan.train.model_dump(), "text": text.model_dump()},
        "command": [printable_name(word) for word in command],
        "data": data.fingerprint,
        "versions": {"python": sys.version.split()[0], "torch": str(torch.__version__)},
    }
