"""Evaluation while training: the held-out part decoded for real, and measured by the task's own metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.search import greedy
from regard.text import Tokenizer, ended
from regard.train import metrics

SAMPLES = 3
TOKENS = 8_192  # source tokens decoded together


@dataclass(frozen=True)
class Exam:
    """Sources with their right answers (variants count), and how answers are compared."""

    source: Tokenizer
    target: Tokenizer
    questions: Mapping[str, Sequence[str]]
    task: str
    longest: int

    def take(self, model: Model, device: torch.device) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
        """The metrics, and three samples: source, predicted, true. The same three each time."""
        lines = list(self.questions)
        answers = decode(model, self.source, self.target, lines, longest=self.longest, device=device)
        found = metrics.measure(self.task, self.target.kind, answers, [self.questions[line] for line in lines])
        places = [len(lines) * (i + 1) // (SAMPLES + 1) for i in range(SAMPLES)]
        return found, [(lines[i], answers[i], self.questions[lines[i]][0]) for i in dict.fromkeys(places)]


def decode(
    model: Model, source: Tokenizer, target: Tokenizer, lines: Sequence[str], *, longest: int, device: torch.device
) -> list[str]:
    """The greedy answer to each line, in their order. Like lengths are decoded together; none may run past twice its
    source and some, or `longest`, so that a model that knows nothing yet does not babble for ever."""
    training = model.training
    model.eval()
    ids = [torch.tensor(source.encode(line), dtype=torch.long) for line in lines]
    order = sorted(range(len(lines)), key=lambda i: len(ids[i]))
    answers = [""] * len(lines)
    for some in _groups(order, ids):
        batch = ended(Ragged.of([ids[i] for i in some])).to(device)
        limits = (2 * batch.lengths + 20).clamp(max=longest)
        for i, said in zip(some, greedy(model, batch, longest=limits), strict=True):
            answers[i] = target.decode(said)
    model.train(training)
    return answers


def _groups(order: Sequence[int], ids: Sequence[Tensor]) -> list[list[int]]:
    """Places in `order` cut into groups of at most TOKENS source tokens."""
    groups: list[list[int]] = [[]]
    tokens = 0
    for i in order:
        tokens += len(ids[i]) + 1
        if tokens > TOKENS and groups[-1]:
            groups.append([])
            tokens = len(ids[i]) + 1
        groups[-1].append(i)
    return groups
