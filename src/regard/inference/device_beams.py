"""Device beams: the state of a search that runs on a GPU, one slot per request.

All tensors keep their addresses, so that a captured CUDA graph can update them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.inference.static_decoder import StaticDecoder
from regard.kernels.decoding.buffers import BeamBuffers, GreedyBuffers
from regard.search.beam import Beam
from regard.search.constraints import NEG_INF
from regard.search.hypothesis import Hypothesis, SearchResult
from regard.text.template import DEFAULT_TEMPLATE, Template

INFINITY = float("inf")


class DeviceState(ABC):
    """The state of one kind of search."""

    tokens: Int[Tensor, " row"]  # the next input token of each row
    ancestors: Int[Tensor, "2 row time"] | None = None

    def __init__(self, template: Template) -> None:
        (self.begin,) = template.start
        self.end = template.end

    @abstractmethod
    def choose(self, logits: Float[Tensor, "row vocabulary"]) -> None:
        """Choose one more token in each active row."""

    @abstractmethod
    def open(self, slots: Int[Tensor, " some"]) -> None:
        """Start new requests in these slots."""

    @abstractmethod
    def results(
        self, slots: Int[Tensor, " some"], steps: Int[np.ndarray, " some"]
    ) -> list[SearchResult]:
        """The results of finished slots, which took these numbers of steps."""


class DeviceGreedy(DeviceState):
    """The output of each slot."""

    def __init__(self, decoder: StaticDecoder, template: Template = DEFAULT_TEMPLATE) -> None:
        super().__init__(template)
        self.decoder, size = decoder, (decoder.slots, decoder.capacity)
        self.outputs = torch.zeros(size, dtype=torch.int32, device=decoder.device)
        self.logps = torch.zeros(size, device=decoder.device)
        self.tokens, self.margin = self.outputs.new_zeros(size[0]), self.logps.new_zeros(size[0])
        self.buffers = GreedyBuffers(self.tokens, self.outputs, self.logps, self.margin)

    def choose(self, logits: Float[Tensor, "row vocabulary"]) -> None:
        """The most likely token."""
        self.decoder.kernels.greedy_step(logits, self.decoder.clock, self.buffers, self.end)

    def open(self, slots: Int[Tensor, " some"]) -> None:
        """Reset the slots."""
        self.tokens.index_fill_(0, slots, self.begin)
        self.margin.index_fill_(0, slots, INFINITY)

    def results(
        self, slots: Int[Tensor, " some"], steps: Int[np.ndarray, " some"]
    ) -> list[SearchResult]:
        """One hypothesis each."""
        longest = int(steps.max())
        outputs, logps = (table[slots, :longest].tolist() for table in (self.outputs, self.logps))
        margins = self.margin[slots].tolist()
        rows = zip(outputs, logps, margins, steps.tolist(), strict=True)
        return [
            SearchResult([Hypothesis(a[: n - 1], b[:n], sum(b[:n]))], margin)
            for a, b, margin, n in rows
        ]


class DeviceBeams(DeviceState):
    """The tokens and parents of each beam, and the finished hypotheses."""

    def __init__(self, decoder: StaticDecoder, search: Beam) -> None:
        super().__init__(search.template)
        self.decoder, self.search = decoder, search
        slots, capacity, beams = decoder.slots, decoder.capacity, decoder.beams
        rows = slots * beams
        options: dict[str, Any] = {"device": decoder.device}
        self.integers = torch.zeros(3, slots, capacity, beams, dtype=torch.int32, **options)
        self.floats = torch.zeros(3, slots, capacity, beams, **options)
        self.tokens = torch.zeros(rows, dtype=torch.int32, **options)
        self.scores, self.top = (
            torch.zeros(slots, beams, **options),
            torch.zeros(slots, search.n_best, **options),
        )
        self.margin = torch.zeros(slots, **options)
        self.ancestors = torch.zeros(2, rows, capacity, dtype=torch.int32, **options)
        self.first = torch.full((beams,), NEG_INF, **options).index_fill_(
            0, torch.tensor([0], **options), 0.0
        )
        self.penalties = np.array(
            [search.length_penalty.divisor(length) for length in range(1, capacity + 2)]
        )
        self.divisors = torch.tensor([1.0, *self.penalties], dtype=torch.float32, **options)
        tokens, parents, enders = self.integers
        logps, ends, end_logps = self.floats
        self.buffers = BeamBuffers(
            self.tokens, self.scores, tokens, parents, logps, ends, enders, end_logps,
            self.top, self.margin, self.ancestors, self.divisors,
        )  # fmt: skip

    def choose(self, logits: Float[Tensor, "row vocabulary"]) -> None:
        """Extend the best hypotheses."""
        self.decoder.kernels.beam_step(logits, self.decoder.clock, self.buffers, self.end)

    def open(self, slots: Int[Tensor, " some"]) -> None:
        """Reset the slots to one empty hypothesis each."""
        self.tokens.view_as(self.scores).index_fill_(0, slots, self.begin)
        self.scores.index_copy_(0, slots, self.first.expand(len(slots), -1))
        self.top.index_fill_(0, slots, NEG_INF)
        self.margin.index_fill_(0, slots, INFINITY)

    def results(
        self, slots: Int[Tensor, " some"], steps: Int[np.ndarray, " some"]
    ) -> list[SearchResult]:
        """The best hypotheses, best first, ranked as in search/beam_state.py."""
        longest, best = int(steps.max()), self.search.n_best
        tokens, parents, enders = self.integers[:, slots, :longest].cpu().numpy()
        logps, ends, end_logps = self.floats[:, slots, :longest].double().cpu().numpy()
        margins = self.margin[slots].tolist()
        taken = np.arange(longest) < steps[:, None]
        ranked = np.where(taken[:, :, None], ends, NEG_INF) / self.penalties[:longest, None]
        ranked = ranked.reshape(len(steps), -1)
        order = np.argsort(-ranked, axis=1, kind="stable")[:, : best + 1]
        scores = np.take_along_axis(ranked, order, 1)
        row, place = (scores[:, :best] > NEG_INF).nonzero()
        when, rank = np.divmod(order[row, place], self.decoder.beams)
        ids, numbers = backtrack(tokens, parents, logps, row, when, enders[row, when, rank])
        hypotheses: list[list[Hypothesis]] = [[] for _ in margins]
        final = (
            end_logps[row, when, rank].tolist(),
            scores[row, place].tolist(),
            when.tolist(),
            row.tolist(),
        )
        for tokens, each, last, score, end, slot in zip(
            ids.tolist(), numbers.tolist(), *final, strict=True
        ):
            hypotheses[slot].append(Hypothesis(tokens[:end], [*each[:end], last], score))
        with np.errstate(invalid="ignore"):
            gaps = scores[:, :-1] - scores[:, 1:]
        gaps = np.fmin.reduce(gaps, axis=1, initial=INFINITY)  # −∞ − −∞ is no gap
        return [
            SearchResult(some, min(*pair))
            for some, *pair in zip(hypotheses, margins, gaps.tolist(), strict=True)
        ]


def backtrack(
    tokens: Int[np.ndarray, "slot time beam"],
    parents: Int[np.ndarray, "slot time beam"],
    logps: Float[np.ndarray, "slot time beam"],
    rows: Int[np.ndarray, " hypothesis"],
    ends: Int[np.ndarray, " hypothesis"],
    beams: Int[np.ndarray, " hypothesis"],
) -> tuple[Int[np.ndarray, "hypothesis time"], Float[np.ndarray, "hypothesis time"]]:
    """Tokens and log-probabilities of hypotheses, followed back from the beam and step where each
    ended.
    """
    longest = int(ends.max()) if len(ends) else 0
    ids, numbers, beams = (
        np.zeros((len(rows), longest), np.int64),
        np.zeros((len(rows), longest)),
        beams.copy(),
    )
    for step in range(longest - 1, -1, -1):
        active = step < ends
        ids[:, step], numbers[:, step] = tokens[rows, step, beams], logps[rows, step, beams]
        beams = np.where(active, parents[rows, step, beams], beams)
    return ids, numbers
