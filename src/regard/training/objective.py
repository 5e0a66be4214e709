"""The training objective: label-smoothed cross-entropy, with R-Drop on request."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels import IGNORE_INDEX, can_fuse
from regard.models import Model
from regard.text import Batch, TrainingBatch
from regard.text.template import DEFAULT_TEMPLATE, Template


class Objective(nn.Module):
    """Mean cross-entropy per target token (end symbols included) with label smoothing (Szegedy et
    al. 2016, §7).

    Each token is weighted by 1 / (tokens of the whole step), so that the losses of parts of a step,
    on one machine or several, add up to the mean. With `rdrop` = α, each batch is run twice with
    different dropout masks and the distributions p and q are pulled together (R-Drop, Liang et al.
    2021): the mean of both losses plus α/4 · (KL(p‖q) + KL(q‖p)).
    """

    def __init__(
        self,
        model: Model,
        *,
        label_smoothing: float = 0.0,
        rdrop: float = 0.0,
        template: Template = DEFAULT_TEMPLATE,
    ) -> None:
        super().__init__()
        self.model, self.rdrop, self.template = model, rdrop, template
        self.label_smoothing = label_smoothing

    def forward(self, batch: Batch | TrainingBatch) -> Tensor:
        training_batch = (
            batch
            if isinstance(batch, TrainingBatch)
            else TrainingBatch.from_batch(batch, self.template)
        )
        if self.rdrop and self.model.training:
            # In one forward pass: small models on a GPU are limited by kernel launches.
            both = self.model.read(training_batch.source.twice(), training_batch.prefix.twice())
            vectors = both.values.chunk(2)
        else:
            vectors = (self.model.read(training_batch.source, training_batch.prefix).values,)
        table = self.model.output_table
        if can_fuse(vectors[0]) and table is not None:  # never materialises all logits
            from regard.kernels.linear_cross_entropy import linear_cross_entropy

            options = {"label_smoothing": self.label_smoothing, "rdrop": self.rdrop}
            return linear_cross_entropy(
                list(vectors),
                table,
                training_batch.labels,
                training_batch.token_weight,
                **options,
            )
        logits = [self.model.project(some).float() for some in vectors]
        losses = [self._cross_entropy(some, training_batch.labels) for some in logits]
        total = sum(losses, start=losses[0].new_zeros(())) / len(losses)
        if len(logits) == 2:
            counted = training_batch.labels != IGNORE_INDEX
            total = total + self.rdrop / 4 * symmetric_kl(logits[0], logits[1], counted)
        return total * training_batch.token_weight

    def _cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum over all target tokens."""
        return F.cross_entropy(
            logits,
            targets,
            reduction="sum",
            label_smoothing=self.label_smoothing,
            ignore_index=IGNORE_INDEX,
        )


def symmetric_kl(
    one: Float[Tensor, "token vocabulary"],
    other: Float[Tensor, "token vocabulary"],
    counted: Tensor,
) -> Float[Tensor, ""]:
    """KL(p‖q) + KL(q‖p) = Σ (p − q)(log p − log q), summed over the counted tokens."""
    p, q = one.log_softmax(-1), other.log_softmax(-1)
    return (((p.exp() - q.exp()) * (p - q)).sum(-1) * counted).sum()
