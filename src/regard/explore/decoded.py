"""Decoded: the tree of the search for a trace's source, every beginning with its sums and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.explore.refusals import invalid
from regard.explore.traces import Held, searching
from regard.search import Beam
from regard.trace import beam_tree

if TYPE_CHECKING:
    from regard.pipeline import Pipeline
    from regard.trace import BeamTree


def beams(held: Held, width: int) -> dict[str, Any]:
    """The tree of a search that keeps so many beginnings, as the model would search by itself."""
    if held.ask.edits:
        raise invalid("an edited model answers greedily, without beams; take the edits away to see them", "edited")
    with held.model.turn() as pipeline:
        search = searching(pipeline, width)
        made = beam_tree(
            pipeline, held.ask.source, search if isinstance(search, Beam) else Beam(1, constraints=search.constraints)
        )
        return _told(pipeline, made)


def _told(pipeline: Pipeline, made: BeamTree) -> dict[str, Any]:
    target, length = pipeline.bundle.target, made.search.length_penalty
    nodes = []
    for node, label in zip(made.nodes, made.labels, strict=True):
        said = made.ids(node.number)
        prefix = target.decode(said)
        numbers = {"logp": node.logp, "total": node.total, "score": node.score, "behind": node.behind}
        places = {"number": node.number, "parent": node.parent, "step": node.step, "rival": node.rival}
        # What is cut otherwise than it was said cannot be given back as a text.
        whole = target.encode(prefix.strip()) == said
        nodes.append(
            {**places, "id": node.token, "text": label, **numbers, "fate": node.fate, "prefix": prefix, "whole": whole}
        )
    return {
        "size": made.search.size,
        "length": {"alpha": length.alpha, "kind": length.kind},
        "penalties": [length.divisor(step + 1) for step in range(1 + max(node.step for node in made.nodes))],
        "nodes": nodes,
        "answers": made.answers,
    }
