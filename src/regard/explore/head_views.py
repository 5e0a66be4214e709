"""Statistics of the heads of a trace as JSON: entropy, mean distance, strongest pattern."""

from __future__ import annotations

from typing import Any

from regard.explore.trace_store import StoredTrace
from regard.trace import attention_analysis, head_patterns


def head_statistics(stored: StoredTrace) -> dict[str, Any]:
    """Entropy, mean distance and strongest pattern of every head; the rows of these patterns.

    The effect of a head is measured by head ablation."""
    heads, patterns = [], dict[str, dict[str, Any]]()
    for one in stored.trace.attentions:
        weights = stored.trace[f"{one.name}.weights"].double()
        same_text = one.query == one.key
        distances = (
            attention_analysis.distance(weights).tolist() if same_text else [None] * one.heads
        )
        entropies = attention_analysis.entropy(weights).tolist()
        found = head_patterns.strongest(head_patterns.pattern_scores(weights, one.kind))
        for head, (pattern, score) in enumerate(found):
            known = patterns.setdefault(one.kind, {})
            if pattern not in known:
                known[pattern] = _pattern_rows(pattern, one.kind, *weights.shape[1:])
            heads.append(
                {
                    "attention": one.name,
                    "kind": one.kind,
                    "layer": one.layer,
                    "head": head,
                    "entropy": entropies[head],
                    "distance": distances[head],
                    "effect": None,
                    "pattern": pattern,
                    "score": score,
                    "named": score >= head_patterns.THRESHOLD,
                }
            )
    return {"heads": heads, "patterns": patterns}


def _pattern_rows(name: str, kind: str, queries: int, keys: int) -> list[Any]:
    """For each query, the first key of a pattern, the key after its last one, and their share under
    uniform attention; None for a row that does not count."""
    cells, uniform, counts = head_patterns.pattern_rows(name, kind, queries, keys)
    rows: list[Any] = []
    for row, share, counted in zip(cells, uniform.tolist(), counts.tolist(), strict=True):
        places = row.nonzero().flatten().tolist()
        rows.append([places[0], places[-1] + 1, share] if counted else None)
    return rows
