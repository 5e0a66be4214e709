"""Sampling: tokens drawn by probability, reproducible for a seed whatever the batch."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from operator import index

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import RegardError
from regard.models import Model
from regard.ragged import Ragged
from regard.search.constraints import NEG_INF, Constraint, Scores
from regard.search.greedy import decode
from regard.search.hypothesis import NEAR_TIE, SearchResult
from regard.search.token_options import check_sampling
from regard.text.template import DEFAULT_TEMPLATE, Template

_GOLDEN = -0x61C8864680B583EB  # 2⁶⁴ / golden ratio, as a signed integer


def gumbel(
    seeds: Int[Tensor, " row"], step: int, tokens: Int[Tensor, "row token"]
) -> Float[Tensor, "row token"]:
    """Gumbel noise: −log of an exponential variate, from 32 bits of splitmix64 (Steele et al.

    2014).
    """
    row_hash = _mix(seeds + torch.full_like(seeds, step + 1) * _GOLDEN)
    mixed = _mix(row_hash[:, None] + tokens * _GOLDEN)
    uniform = (_shift(mixed, 32).to(torch.float32) + 0.5) * 2**-32
    return -(-torch.log1p(-uniform.clamp(max=1 - 2**-24))).log()


def _mix(numbers: Tensor) -> Tensor:
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        numbers = (numbers ^ _shift(numbers, shift)) * factor
    return numbers ^ _shift(numbers, 31)


def _shift(numbers: Tensor, bits: int) -> Tensor:
    """Logical right shift."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)


@dataclass(frozen=True)
class Sampling:
    """`count` samples per source, with `temperature` (< 1 sharpens, > 1 flattens), `top_k` (Fan et
    al. 2018), nucleus `top_p` (Holtzman et al. 2020) and `min_p` (Nguyen et al. 2024).

    Samples depend on the seed, the source and the sample's index alone, not on the batch.
    """

    count: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1
    constraints: tuple[Constraint, ...] = ()
    template: Template = DEFAULT_TEMPLATE

    def __post_init__(self) -> None:
        if self.count < 1:
            raise RegardError(f"count must be at least 1; got {self.count}")
        check_sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.seed)

    def __call__(
        self, model: Model, source: Ragged, limits: Int[Tensor, " source"]
    ) -> list[SearchResult]:
        if not len(source):
            return []
        seeds = self._seeds(source)

        def choose(scores: Scores, rows: Tensor, step: int) -> tuple[Tensor, Tensor]:
            return self.draw(scores, seeds[rows], step)

        samples = decode(
            model,
            source,
            limits,
            choose,
            copies=self.count,
            constraints=self.constraints,
            template=self.template,
        )
        groups = [samples[i : i + self.count] for i in range(0, len(samples), self.count)]
        return [
            SearchResult([found for found, _ in group], min(margin for _, margin in group))
            for group in groups
        ]

    def draw(
        self, scores: Scores, seeds: Int[Tensor, " row"], step: int
    ) -> tuple[Int[Tensor, " row"], Float[Tensor, " row"]]:
        """The Gumbel-max sample of each row and its margin: argmax(log p + Gumbel noise).

        Inverse-CDF sampling would compare a number with cumulative sums, which lie too close
        together in a large vocabulary to be the same in every batch.
        """
        sharp = (scores / self.temperature).log_softmax(-1)
        if self.top_k is None and self.top_p == 1 and not self.min_p:
            tokens = torch.arange(sharp.shape[1], device=sharp.device).expand_as(sharp)
            return _winners(sharp + gumbel(seeds, step, tokens))
        most = sharp.shape[1] if self.top_k is None else min(self.top_k + 1, sharp.shape[1])
        sharp, tokens = sharp.topk(most)
        stay, before = self._stay(sharp)
        widest = min(
            int(stay.max()) + 1, sharp.shape[1]
        )  # including the first excluded one, for the margin
        sharp, tokens, before = (part[:, :widest] for part in (sharp, tokens, before))
        race = sharp + gumbel(seeds, step, tokens)
        place = torch.arange(widest, device=race.device)
        winners, margins = _winners(race.masked_fill(place >= stay[:, None], NEG_INF))
        doubtful = self._doubtful(sharp, before, stay) & (
            race > race.gather(1, winners[:, None]) - NEAR_TIE
        )
        return tokens.gather(1, winners[:, None])[:, 0], margins.masked_fill(doubtful.any(-1), 0.0)

    def _stay(self, sharp: Scores) -> tuple[Int[Tensor, " row"], Scores]:
        """How many tokens remain, most likely first; and the cumulative probability before each."""
        shares = sharp.exp()
        before = shares.cumsum(-1) - shares
        stays = shares >= self.min_p * shares[:, :1]
        if self.top_p < 1:
            stays &= before < self.top_p  # the token that crosses top_p remains
        if self.top_k is not None:
            stays[:, self.top_k :] = False
        return stays.sum(-1).clamp(min=1), before

    def _doubtful(
        self, sharp: Scores, before: Scores, stay: Int[Tensor, " row"]
    ) -> Bool[Tensor, "row token"]:
        """Tokens whose inclusion depends on rounding: those next to the cut-off, where the cut is
        close.
        """
        last = stay[:, None] - 1
        beside = torch.cat([last, (last + 1).clamp(max=sharp.shape[1] - 1)], 1)
        edge = sharp.gather(1, beside)
        equal = (edge[:, 0] - edge[:, 1] < NEAR_TIE) & (stay < sharp.shape[1])
        narrow = equal[:, None].expand_as(edge).clone()
        if self.top_p < 1:
            narrow |= (before.gather(1, beside) - self.top_p).abs() < NEAR_TIE
        if self.min_p:
            narrow |= (edge - sharp[:, :1] - math.log(self.min_p)).abs() < NEAR_TIE
        near = (sharp[:, :, None] - edge[:, None, :]).abs() < NEAR_TIE
        return (near & narrow[:, None, :]).any(-1)

    def _seeds(self, source: Ragged) -> Int[Tensor, " row"]:
        """A seed for each sample, from the seed, the source's ids and the sample's index."""
        seeds, own = [], index(self.seed).to_bytes(16, "little", signed=True)
        for ids in source.values.cpu().split(source.lengths.tolist()):
            digest = hashlib.sha256(ids.numpy().tobytes() + own).digest()
            chance = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
            seeds.append(torch.randint(1 << 62, (self.count,), generator=chance))
        return torch.cat(seeds).to(source.values.device)


def _winners(race: Scores) -> tuple[Int[Tensor, " row"], Float[Tensor, " row"]]:
    """The argmax of each row, and its margin over the second."""
    if race.shape[1] == 1:
        return race.new_zeros(len(race), dtype=torch.long), race[:, 0] - NEG_INF
    values, places = race.topk(2)
    return places[:, 0], values[:, 0] - values[:, 1]
