"""Evaluation while training: the held-out part decoded for real, and measured by the task's own metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.errors import RegardError
from regard.inference import inference_model, search_all
from regard.models import Model, is_finite
from regard.search import Greedy
from regard.search.length_batching import RATIO
from regard.text import Tokenizer
from regard.train import metrics

SAMPLES = 3


@dataclass(frozen=True)
class Exam:
    """Sources with their right answers (variants count), and how answers are compared."""

    source: Tokenizer
    target: Tokenizer
    questions: Mapping[str, Sequence[str]]
    task: str
    longest: int
    ratio: float = RATIO

    def take(self, model: Model, device: torch.device) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
        """The metrics, and three samples: source, predicted, true. The same three each time."""
        lines = list(self.questions)
        reach = {"most": self.longest, "ratio": self.ratio}
        answers = decode(model, self.source, self.target, lines, reach=reach, device=device)
        found = metrics.measure(self.task, self.target.kind, answers, [self.questions[line] for line in lines])
        places = [len(lines) * (i + 1) // (SAMPLES + 1) for i in range(SAMPLES)]
        return found, [(lines[i], answers[i], self.questions[lines[i]][0]) for i in dict.fromkeys(places)]


def decode(
    model: Model,
    source: Tokenizer,
    target: Tokenizer,
    lines: Sequence[str],
    *,
    reach: dict[str, Any],
    device: torch.device,
) -> list[str]:
    """The greedy answer to each line, in their order."""
    training = model.training
    model.eval()
    found = search_all(
        Greedy(), inference_model(model), [source.encode(line) for line in lines], **reach, device=device
    )
    model.train(training)
    return [target.decode(some.hypotheses[0].ids) for some in found]


def check_finite(model: Model, step: int) -> None:
    """Raise where weights have run away: search would find nothing to say."""
    if not is_finite(model):
        raise RegardError(
            f"weights are not finite at step {step:,}; lower train.learning_rate or train.weight_decay, and use another --out"
        )
