"""Trace: every number inside a model by name, changed by hand if wanted, and explained down to the weights."""

from regard.trace.aligned import aligned, links
from regard.trace.causes import agreement, causes
from regard.trace.edits import Change, edit
from regard.trace.explanation import Explanation, Operand
from regard.trace.lens import lens, rank
from regard.trace.program import Attended, Program, Step
from regard.trace.record import record
from regard.trace.space import neighbours, placed
from regard.trace.spread import distance, entropy
from regard.trace.stream import contributions, lengths
from regard.trace.trace import Trace
from regard.trace.tree import Tree, tree

__all__ = [
    "Attended",
    "Change",
    "Explanation",
    "Operand",
    "Program",
    "Step",
    "Trace",
    "Tree",
    "agreement",
    "aligned",
    "causes",
    "contributions",
    "distance",
    "edit",
    "entropy",
    "lengths",
    "lens",
    "links",
    "neighbours",
    "placed",
    "rank",
    "record",
    "tree",
]
