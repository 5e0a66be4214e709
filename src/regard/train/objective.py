"""The objective: how surprised the model is by what it should say, with smoothed labels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels import fusible
from regard.models import Model
from regard.models.embedding import Output
from regard.text import Batch, Lesson


class Objective(nn.Module):
    """The mean cross-entropy of a step, label-smoothed (Szegedy et al. 2016, §7), end symbols included.

    Each token counts its share of the whole step: parts of a step, on one machine or several, add up to the same mean.
    """

    def __init__(self, model: Model, *, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch | Lesson) -> Tensor:
        lesson = batch if isinstance(batch, Lesson) else Lesson.of(batch)
        read = self.model.read(lesson.source, lesson.prefix).values
        output = getattr(self.model, "output", None)
        if fusible(read) and isinstance(output, Output):  # all logits at once would be the largest thing in memory
            from regard.kernels.surprise import surprise

            return surprise(read, output.table, lesson.right, lesson.share, smoothing=self.smoothing)
        logits = self.model.project(read).float()
        total = F.cross_entropy(logits, lesson.right, label_smoothing=self.smoothing, reduction="sum")
        return total * lesson.share
