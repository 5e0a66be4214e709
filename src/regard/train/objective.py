"""The objective: how surprised the model is by what it should say, with smoothed labels."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels import IGNORED, fusible
from regard.models import Model
from regard.models.embedding import Output
from regard.text import Batch, TrainingBatch


class Objective(nn.Module):
    """The mean cross-entropy of a step, label-smoothed (Szegedy et al. 2016, §7), end symbols included.

    Each token counts its share of the whole step: parts of a step, on one machine or several, add up to the same mean.
    With `consistency` α each lesson is read twice, with other dropout, and the two answers p and q are pulled together
    (R-Drop, Liang et al. 2021): the mean of both losses plus α/4 · (KL(p‖q) + KL(q‖p)).
    """

    def __init__(self, model: Model, *, label_smoothing: float = 0.0, rdrop: float = 0.0) -> None:
        super().__init__()
        self.model, self.label_smoothing, self.rdrop = model, label_smoothing, rdrop

    def forward(self, batch: Batch | TrainingBatch) -> Tensor:
        lesson = batch if isinstance(batch, TrainingBatch) else TrainingBatch.from_batch(batch)
        if self.rdrop and self.model.training:  # in one pass: on a GPU small models wait for launches
            read = self.model.read(lesson.source.twice(), lesson.prefix.twice()).values.chunk(2)
        else:
            read = (self.model.read(lesson.source, lesson.prefix).values,)
        output = getattr(self.model, "output", None)
        if fusible(read[0]) and isinstance(output, Output):  # all logits at once would be the largest thing in memory
            from regard.kernels.linear_cross_entropy import surprise

            told = {"label_smoothing": self.label_smoothing, "rdrop": self.rdrop}
            return surprise(list(read), output.table, lesson.labels, lesson.token_weight, **told)
        logits = [self.model.project(vectors).float() for vectors in read]
        losses = [
            F.cross_entropy(
                z, lesson.labels, label_smoothing=self.label_smoothing, reduction="sum", ignore_index=IGNORED
            )
            for z in logits
        ]
        total = sum(losses, start=losses[0].new_zeros(())) / len(losses)
        if len(logits) == 2:
            total = total + self.rdrop / 4 * apart(logits[0], logits[1], lesson.labels != IGNORED)
        return total * lesson.token_weight


def apart(
    one: Float[Tensor, "token vocabulary"], other: Float[Tensor, "token vocabulary"], heard: Tensor
) -> Float[Tensor, ""]:
    """KL(p‖q) + KL(q‖p) = Σ (p − q)(log p − log q), over all tokens that are heard."""
    p, q = one.log_softmax(-1), other.log_softmax(-1)
    return (((p.exp() - q.exp()) * (p - q)).sum(-1) * heard).sum()
