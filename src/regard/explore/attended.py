"""Attended: what the weights of all attentions amount to. Alignment of source and target; the wall of heads."""

from __future__ import annotations

from typing import Any

from regard.errors import suggestion
from regard.explore.refusals import invalid, unknown
from regard.explore.traces import Held
from regard.trace.attention_analysis import MEAN, alignment_matrix, distance, entropy, links


def alignment(held: Held, attention: str, head: int | None = None) -> dict[str, Any]:
    """How much each target row looked at each source token, by one attention or by the mean of all; and the links.

    A link i-j joins answer token j with the source token i that the row before it looked at most (Pharaoh's way);
    one that looked at the end most has none."""
    names = {one.name: one.heads for one in held.trace.attentions if one.kind == "cross"}
    if not names:
        raise invalid("this model has no attention to its source: all it knows of it is one vector", "no-attention")
    if attention != MEAN and attention not in names:
        raise unknown(
            "unknown-attention", f"unknown attention {attention[:80]!r}; {suggestion(attention, [*names, MEAN])}"
        )
    if head is not None and (attention == MEAN or not 0 <= head < names[attention]):
        raise invalid(f"head {head} is no head of {attention!r}", "out-of-range")
    matrix = alignment_matrix(held.trace, attention, head)
    pairs = links(matrix)
    return {"matrix": matrix.tolist(), "pairs": pairs, "text": " ".join(f"{i}-{j}" for i, j in pairs)}


def wall(held: Held) -> dict[str, Any]:
    """Every head, with how widely and how far it looks. Its effect is found by a sweep."""
    heads = []
    for one in held.trace.attentions:
        weights = held.trace[f"{one.name}.weights"].double()
        far = [None] * one.heads if one.query != one.key else distance(weights).tolist()
        for head, bits in enumerate(entropy(weights).tolist()):
            place = {"attention": one.name, "kind": one.kind, "layer": one.layer, "head": head}
            heads.append({**place, "entropy": bits, "distance": far[head], "effect": None})
    return {"heads": heads}
