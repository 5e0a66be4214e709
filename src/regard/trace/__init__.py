"""Trace: every number inside a model by name, changed by hand if wanted, and explained down to the weights."""

from regard.trace.alignment import aligned, links
from regard.trace.beam_tree import Tree, tree
from regard.trace.edits import Change, edit
from regard.trace.embedding_space import neighbours, placed
from regard.trace.explanation import Explanation, Operand
from regard.trace.head_statistics import distance, entropy
from regard.trace.logit_lens import lens, rank
from regard.trace.occlusion import agreement, causes
from regard.trace.program import AttentionBlock, Program, Step
from regard.trace.record import record, register
from regard.trace.residual_norms import contributions, lengths
from regard.trace.trace import Trace

__all__ = [
    "AttentionBlock",
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
    "register",
    "tree",
]
