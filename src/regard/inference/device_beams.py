"""Ledger: the books of a search that runs on a device: opened for new sources, written there, read when they are over.

A slot is a source's place in the flight. Nothing in the books moves, so a captured graph can write them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.inference.static_decoder import Steady
from regard.kernels.decoding.buffers import Beamed, Walked
from regard.search.beam import Beam
from regard.search.constraints import NEVER
from regard.search.hypothesis import Found, Hypothesis
from regard.text import BEGIN, END

FAR = float("inf")


class Ledger(ABC):
    """The books of one kind of search."""

    tokens: Int[Tensor, " row"]  # what each row says next
    ancestors: Int[Tensor, "2 row time"] | None = None

    @abstractmethod
    def choose(self, logits: Float[Tensor, "row vocabulary"]) -> None:
        """One more token in each row that is going."""

    @abstractmethod
    def open(self, slots: Int[Tensor, " some"]) -> None:
        """New sources begin in these slots."""

    @abstractmethod
    def found(self, slots: Int[Tensor, " some"], steps: Int[np.ndarray, " some"]) -> list[Found]:
        """What was found in these slots, each of which took so many steps."""


class GreedyLedger(Ledger):
    """What each slot has said."""

    def __init__(self, steady: Steady) -> None:
        self.steady, size = steady, (steady.slots, steady.room)
        self.said = torch.zeros(size, dtype=torch.int32, device=steady.device)
        self.logps = torch.zeros(size, device=steady.device)
        self.tokens, self.margin = self.said.new_zeros(size[0]), self.logps.new_zeros(size[0])
        self.books = Walked(self.tokens, self.said, self.logps, self.margin)

    def choose(self, logits: Float[Tensor, "row vocabulary"]) -> None:
        """The likeliest."""
        self.steady.kernels.likeliest(logits, self.steady.clock, self.books, END)

    def open(self, slots: Int[Tensor, " some"]) -> None:
        """They begin."""
        self.tokens.index_fill_(0, slots, BEGIN)
        self.margin.index_fill_(0, slots, FAR)

    def found(self, slots: Int[Tensor, " some"], steps: Int[np.ndarray, " some"]) -> list[Found]:
        """One answer each."""
        longest = int(steps.max())
        said, logps = (table[slots, :longest].tolist() for table in (self.said, self.logps))
        margins = self.margin[slots].tolist()
        rows = zip(said, logps, margins, steps.tolist(), strict=True)
        return [Found([Hypothesis(a[: n - 1], b[:n], sum(b[:n]))], margin) for a, b, margin, n in rows]


class BeamLedger(Ledger):
    """What each beam has said, where it came from, and which ends counted."""

    def __init__(self, steady: Steady, search: Beam) -> None:
        self.steady, self.search = steady, search
        slots, room, beams, rows = steady.slots, steady.room, steady.beams, steady.slots * steady.beams
        options: dict[str, Any] = {"device": steady.device}
        self.whole = torch.zeros(3, slots, room, beams, dtype=torch.int32, **options)
        self.real = torch.zeros(3, slots, room, beams, **options)
        self.tokens = torch.zeros(rows, dtype=torch.int32, **options)
        self.scores, self.top = torch.zeros(slots, beams, **options), torch.zeros(slots, search.best, **options)
        self.margin = torch.zeros(slots, **options)
        self.ancestors = torch.zeros(2, rows, room, dtype=torch.int32, **options)
        self.first = torch.full((beams,), NEVER, **options).index_fill_(0, torch.tensor([0], **options), 0.0)
        self.penalties = np.array([search.length.penalty(length) for length in range(1, room + 2)])
        self.divisors = torch.tensor([1.0, *self.penalties], dtype=torch.float32, **options)
        said, parents, enders = self.whole
        logps, ends, end_logps = self.real
        self.books = Beamed(
            self.tokens, self.scores, said, parents, logps, ends, enders, end_logps, self.top, self.margin,
            self.ancestors, self.divisors,
        )  # fmt: skip

    def choose(self, logits: Float[Tensor, "row vocabulary"]) -> None:
        """The best beginnings go on."""
        self.steady.kernels.advance(logits, self.steady.clock, self.books, END)

    def open(self, slots: Int[Tensor, " some"]) -> None:
        """One beam begins; the others are nothing."""
        self.tokens.view_as(self.scores).index_fill_(0, slots, BEGIN)
        self.scores.index_copy_(0, slots, self.first.expand(len(slots), -1))
        self.top.index_fill_(0, slots, NEVER)
        self.margin.index_fill_(0, slots, FAR)

    def found(self, slots: Int[Tensor, " some"], steps: Int[np.ndarray, " some"]) -> list[Found]:
        """The best answers, the best first, as search/board.py ranks them."""
        longest, best = int(steps.max()), self.search.best
        said, parents, enders = self.whole[:, slots, :longest].cpu().numpy()
        logps, ends, end_logps = self.real[:, slots, :longest].double().cpu().numpy()
        margins = self.margin[slots].tolist()
        taken = np.arange(longest) < steps[:, None]
        ranked = np.where(taken[:, :, None], ends, NEVER) / self.penalties[:longest, None]
        ranked = ranked.reshape(len(steps), -1)
        order = np.argsort(-ranked, axis=1, kind="stable")[:, : best + 1]
        scores = np.take_along_axis(ranked, order, 1)
        row, place = (scores[:, :best] > NEVER).nonzero()
        when, rank = np.divmod(order[row, place], self.steady.beams)
        ids, numbers = traced(said, parents, logps, row, when, enders[row, when, rank])
        answers: list[list[Hypothesis]] = [[] for _ in margins]
        final = end_logps[row, when, rank].tolist(), scores[row, place].tolist(), when.tolist(), row.tolist()
        for some, those, last, score, end, who in zip(ids.tolist(), numbers.tolist(), *final, strict=True):
            answers[who].append(Hypothesis(some[:end], [*those[:end], last], score))
        with np.errstate(invalid="ignore"):
            gaps = scores[:, :-1] - scores[:, 1:]
        gaps = np.fmin.reduce(gaps, axis=1, initial=FAR)  # −∞ from −∞ is none
        return [Found(some, min(*pair)) for some, *pair in zip(answers, margins, gaps.tolist(), strict=True)]


def traced(
    said: Int[np.ndarray, "slot time beam"],
    parents: Int[np.ndarray, "slot time beam"],
    logps: Float[np.ndarray, "slot time beam"],
    rows: Int[np.ndarray, " answer"],
    ends: Int[np.ndarray, " answer"],
    beams: Int[np.ndarray, " answer"],
) -> tuple[Int[np.ndarray, "answer said"], Float[np.ndarray, "answer said"]]:
    """Tokens and log-probabilities of answers, from the beam and step at which each ended back to its beginning."""
    longest = int(ends.max()) if len(ends) else 0
    ids, numbers, beams = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest)), beams.copy()
    for step in range(longest - 1, -1, -1):
        heard = step < ends
        ids[:, step], numbers[:, step] = said[rows, step, beams], logps[rows, step, beams]
        beams = np.where(heard, parents[rows, step, beams], beams)
    return ids, numbers
