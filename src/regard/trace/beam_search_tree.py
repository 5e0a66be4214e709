"""The tree of a beam search: every candidate, and whether it was kept, finished or pruned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from regard.errors import RegardError
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.search import Beam
from regard.search.beam_trace import Candidate, trace_beams
from regard.search.length_batching import length_limits
from regard.text import END, with_end


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
        return [id for id in (self.nodes[one].token for one in self.path(number)) if id != END]

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


def beam_tree(pipeline: Pipeline, text: str, search: Beam | None = None) -> BeamTree:
    """The tree of a search for one text; by default the pipeline's usual one, as a beam."""
    chosen = pipeline.default_search if search is None else search
    chosen = chosen if isinstance(chosen, Beam) else Beam(1)
    ids = pipeline.bundle.source.encode(text.strip())
    if not ids:
        raise RegardError("the text is empty; there is nothing to search for")
    source = with_end(Ragged.of([torch.tensor(ids)])).to(pipeline.device)
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
