"""The objective: how surprised the model is by what it should say, with smoothed labels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.models import Model
from regard.ragged import Ragged
from regard.text.batches import Batch, begun, ended


class Objective(nn.Module):
    """The mean cross-entropy of a step, label-smoothed (Szegedy et al. 2016, §7), end symbols included.

    The sum over a batch is divided by the tokens of the whole step: parts of a step, on one machine or several, add up
    to the same mean.
    """

    def __init__(self, model: Model, *, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> Tensor:
        source, target = batch.source, batch.target
        if idle := not len(batch):  # a rank with nothing to do still takes part in the exchange, with a pair of nothing
            source = target = Ragged.of([source.values])
        logits = self.model(ended(source), begun(target)).values
        right = ended(target).values
        total = F.cross_entropy(logits.float(), right, label_smoothing=self.smoothing, reduction="sum")
        return total * (not idle) / (batch.step_tokens + batch.step_pairs)
