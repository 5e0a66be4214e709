"""The tree of a beam search: every candidate, and whether it was expanded, finished or pruned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from regard.errors import RegardError
from regard.models import Model
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.search.beam import Beam, BeamSearch
from regard.search.beam_state import BeamState, Places, Totals
from regard.search.build import search_template, with_template
from regard.search.constraints import NEG_INF, force
from regard.search.search_batches import Search, length_limits

# expanded: extended by another token; finished: ended; pruned: others were better; stopped: the
# search ended first, because nothing can improve the result or the length limit is reached.
CandidateStatus = Literal["expanded", "finished", "pruned", "stopped"]


@dataclass(frozen=True)
class Candidate:
    """A hypothesis that the search considered.

    `parent` is the number of the one it extends (None at the start), `logp` the log-probability of
    its last token, `total` the sum that ranks unfinished hypotheses, and `score` the total over the
    length penalty. A pruned one is `margin` below `pruned_by`, the last one that stays in the
    beam."""

    number: int
    parent: int | None
    step: int
    token: int
    logp: float
    total: float
    score: float
    status: CandidateStatus
    pruned_by: int | None = None
    margin: float = 0.0


class BeamTrace(BeamState):
    """The state of a search for one source, with all candidates."""

    def __init__(self, settings: Beam, limits: list[int]) -> None:
        super().__init__(
            settings.size,
            settings.n_best,
            settings.length_penalty,
            limits,
            float("inf"),
            settings.template.end,
        )
        self.candidates: list[Candidate] = []
        self._beams: list[int | None] = [None]  # the candidate number of each beam

    def advance(
        self, totals: Totals, beams: Places, tokens: Places, logps: Totals
    ) -> tuple[Int[np.ndarray, "left beam"], Int[np.ndarray, " left"]]:
        new = list(self._classify(*(each[0].tolist() for each in (totals, beams, tokens, logps))))
        parents, left = super().advance(totals, beams, tokens, logps)
        if not len(left):
            new = [
                replace(one, status="stopped") if one.status == "expanded" else one for one in new
            ]
        self.candidates += new
        self._beams = [one.number for one in new if one.status == "expanded"]
        return parents, left

    def _classify(
        self, totals: list[float], beams: list[int], tokens: list[int], logps: list[float]
    ) -> Iterator[Candidate]:
        """Candidates with their status, best first. END must be among the `size` best of all; of
        the others, the `size` best stay in the beam."""
        step, size = self.tokens_so_far.shape[2], self.size
        penalty = self.length_penalty.divisor(step + 1)
        first, others = len(self.candidates), 0
        last = latest = 0  # ranks of the last kept candidates: of all, and of those that do not end
        for rank, (total, beam, token, logp) in enumerate(
            zip(totals, beams, tokens, logps, strict=True)
        ):
            if total <= NEG_INF:  # forbidden by a constraint
                return
            number, ends = first + rank, token == self.end
            stays = rank < size if ends else others < size
            pruned_by = None if stays else first + (last if ends else latest)
            status: CandidateStatus = ("finished" if ends else "expanded") if stays else "pruned"
            margin = 0.0 if pruned_by is None else totals[pruned_by - first] - total
            yield Candidate(
                number,
                self._beams[beam],
                step,
                token,
                logp,
                total,
                total / penalty,
                status,
                pruned_by,
                margin,
            )
            last = rank if rank < size else last
            if not ends and stays:
                others, latest = others + 1, rank


def trace_beams(
    search: Beam, model: Model, source: Ragged, limit: int
) -> tuple[list[Candidate], BeamSearch]:
    """All candidates of a search for one source, in order, and the search itself."""
    if search.required is not None:
        raise RegardError("a beam tree cannot show a search with required words; remove them")
    if len(source) != 1:
        raise RegardError(f"a beam tree needs exactly one source; got {len(source)}")
    beams = BeamSearch(search, model, source, torch.tensor([limit]))
    beams.state = recorder = BeamTrace(search, [limit])
    for _ in beams:
        pass
    return recorder.candidates, beams


@dataclass(frozen=True)
class BeamTree:
    """All candidates of one search: `nodes` in order, the `labels` of their tokens, and the
    `answers` as node numbers, best first.

    >>> print(beam_tree(pipeline, "banana"))
    """

    source: str
    search: Beam
    nodes: list[Candidate]
    labels: list[str]
    answers: list[int]

    def path(self, number: int) -> list[int]:
        """The node numbers from the first token to this one."""
        node: int | None = self.node(number).number
        found = []
        while node is not None:
            found.append(node)
            node = self.nodes[node].parent
        return found[::-1]

    def node(self, number: int) -> Candidate:
        """The node with that number."""
        if not 0 <= number < len(self.nodes):
            raise RegardError(f"this tree has nodes 0 to {len(self.nodes) - 1}; got {number}")
        return self.nodes[number]

    def ids(self, number: int) -> list[int]:
        """The token ids up to this node, without END: a prefix for the model."""
        tokens = (self.nodes[one].token for one in self.path(number))
        return [id for id in tokens if id != self.search.template.end]

    def children(self, number: int | None) -> list[Candidate]:
        """The continuations of a node, best first; of None, the first tokens."""
        return [node for node in self.nodes if node.parent == number]

    def why(self, number: int) -> str:
        """The outcome of a node in one line, with its arithmetic."""
        node = self.node(number)
        before = 0.0 if node.parent is None else self.nodes[node.parent].total
        added = f"{before:.3f} {node.logp:+.3f} = {node.total:.3f}"
        if node.status == "finished":
            place = f", answer {self.answers.index(number) + 1}" if number in self.answers else ""
            over = node.total / node.score if node.score else 1.0
            return f"finished: {added}, over {over:.3g} = {node.score:.3f}{place}"
        if node.status == "pruned" and node.pruned_by is not None:
            other = " ".join(self.prefix_labels(node.pruned_by))
            return f"pruned: {added}, {node.margin:.3f} below {other}"
        return f"{node.status}: {added}"

    def prefix_labels(self, number: int) -> list[str]:
        """The token labels up to this node."""
        return [self.labels[one] for one in self.path(number)]

    def __str__(self) -> str:
        return "\n".join(self._lines(None, ""))

    def _lines(self, parent: int | None, indent: str) -> Iterator[str]:
        for node in self.children(parent):
            yield f"{indent}{self.labels[node.number]}  {self.why(node.number)}"
            yield from self._lines(node.number, indent + "  ")


def beam_tree(
    pipeline: Pipeline,
    text: str,
    search: Beam | None = None,
    *,
    forced: Mapping[int, int] | None = None,
) -> BeamTree:
    """The tree of a search for one text; by default the pipeline's usual one, as a beam.

    `forced` are token ids by step that every hypothesis has."""
    chosen: Search = pipeline.default_search if search is None else search
    template = search_template(chosen, pipeline.bundle.template)
    chosen = with_template(chosen if isinstance(chosen, Beam) else Beam(1), template)
    assert isinstance(chosen, Beam)
    if forced:
        required = force(forced, template.end)
        chosen = replace(chosen, constraints=(*chosen.constraints, required))
    ids = pipeline.bundle.source.encode(text.strip())
    if not ids:
        raise RegardError("the text is empty; there is nothing to search for")
    source = Ragged.of([torch.tensor(template.source(ids))]).to(pipeline.device)
    (limit,) = length_limits(source.lengths, **pipeline.length_limits).tolist()
    nodes, beams = trace_beams(chosen, pipeline.inference_model, source, limit)
    target = pipeline.bundle.target
    labels = [target.label(node.token) for node in nodes]
    finished = sorted(
        (node for node in nodes if node.status == "finished"),
        key=lambda node: (-node.score, node.number),
    )
    found = beams.results()[0].hypotheses
    if any(math.isnan(one.score) for one in found):
        raise RegardError("the model's numbers are not finite (NaN); it cannot answer")
    return BeamTree(text, chosen, nodes, labels, [node.number for node in finished[: len(found)]])
