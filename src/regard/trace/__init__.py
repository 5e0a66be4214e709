"""Tracing: every number inside a model by name, edits, and explanations down to the weights."""

from regard.trace.attention_analysis import (
    agreement,
    alignment_matrix,
    distance,
    entropy,
    links,
    occlusion,
)
from regard.trace.attention_edits import Change
from regard.trace.beam_search_tree import BeamTree, beam_tree
from regard.trace.edits import edit
from regard.trace.operations.operation import Operand
from regard.trace.program import AttentionBlock, Program, Step
from regard.trace.record import record, register
from regard.trace.residual_analysis import (
    logit_lens,
    neighbours,
    pca_projection,
    rank,
    residual_contributions,
    residual_norms,
)
from regard.trace.trace import Explanation, Trace

__all__ = [
    "AttentionBlock",
    "BeamTree",
    "Change",
    "Explanation",
    "Operand",
    "Program",
    "Step",
    "Trace",
    "agreement",
    "alignment_matrix",
    "beam_tree",
    "distance",
    "edit",
    "entropy",
    "links",
    "logit_lens",
    "neighbours",
    "occlusion",
    "pca_projection",
    "rank",
    "record",
    "register",
    "residual_contributions",
    "residual_norms",
]
