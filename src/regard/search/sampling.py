"""Sampling: tokens drawn by their probability, the same for the same seed whatever the batch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError
from regard.models import Model
from regard.ragged import Ragged
from regard.search.hypothesis import Found
from regard.search.rules import NEVER, Rule, Scores
from regard.search.walk import walk


@dataclass(frozen=True)
class Sampling:
    """`count` answers for each source. Probabilities are sharpened by `temperature` below 1 and flattened above; then
    only the `top_k` likeliest stay (Fan et al. 2018), the fewest that hold `top_p` of the probability (Holtzman et al.
    2020), and those at least `min_p` times as likely as the likeliest (Nguyen et al. 2024).

    The numbers drawn depend on the seed, the source and the count alone, so a source gets the same answers in any
    company.
    """

    count: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for name, good, wanted in (
            ("count", self.count >= 1, "at least 1"),
            ("temperature", self.temperature > 0, "above 0; for the likeliest answer use greedy search"),
            ("top_k", self.top_k is None or self.top_k >= 1, "at least 1"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
        ):
            if not good:
                raise RegardError(f"{name} must be {wanted}; got {getattr(self, name)}")

    def __call__(self, model: Model, source: Ragged, limits: Int[Tensor, " source"]) -> list[Found]:
        if not len(source):
            return []
        draws = self._draws(source, int(limits.max()) + 1)

        def draw(scores: Scores, rows: Tensor, step: int) -> tuple[Tensor, Tensor]:
            return self.drawn(scores, draws[rows, step])

        walks = walk(model, source, limits, draw, copies=self.count, rules=self.rules)
        groups = [walks[i : i + self.count] for i in range(0, len(walks), self.count)]
        return [Found([found for found, _ in group], min(margin for _, margin in group)) for group in groups]

    def drawn(self, scores: Scores, draws: Float[Tensor, " row"]) -> tuple[Int[Tensor, " row"], Float[Tensor, " row"]]:
        """The token at which the summed probability, the likeliest first, passes a number drawn from [0, 1)."""
        sharp, order = (scores / self.temperature).log_softmax(-1).sort(dim=-1, descending=True, stable=True)
        shares = sharp.exp()
        kept = shares >= self.min_p * shares[:, :1]
        if self.top_p < 1:
            kept &= (shares.cumsum(-1) - shares) < self.top_p  # the one that passes top_p still belongs
        if self.top_k is not None:
            kept[:, self.top_k :] = False
        sums = sharp.masked_fill(~kept, NEVER).softmax(-1).double().cumsum(-1)
        mark = draws[:, None] * sums[:, -1:]
        place = (sums <= mark).sum(-1, keepdim=True).clamp(max=sums.shape[1] - 1)
        return order.gather(1, place)[:, 0], self._margin(sharp, sums - mark)

    def _margin(self, sharp: Scores, apart: Tensor) -> Float[Tensor, " row"]:
        """How near the number came to the edge of a token's share, or two tokens to changing places."""
        edges = apart.abs().min(-1).values.float()
        neighbours = (sharp[:, :-1] - sharp[:, 1:]).nan_to_num(nan=float("inf"))
        likely = sharp[:, 1:] > -9.0  # those that could be drawn once in ten thousand times
        return torch.minimum(edges, neighbours.masked_fill(~likely, float("inf")).min(-1).values)

    def _draws(self, source: Ragged, steps: int) -> Float[Tensor, "row step"]:
        """A row of numbers in [0, 1) for each answer, from the seed, the source's ids and the answer's number."""
        rows = []
        for ids in source.values.cpu().split(source.lengths.tolist()):
            digest = hashlib.sha256(ids.numpy().tobytes() + self.seed.to_bytes(16, "little", signed=True)).digest()
            chance = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
            # Answer by answer: the first numbers must not change with how long the others may become.
            seeds = torch.randint(1 << 62, (self.count,), generator=chance).tolist()
            rows += [torch.rand(steps, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in seeds]
        return torch.stack(rows).to(source.values.device)
