"""Names and scores of heads, computed from the weights of a trace with NumPy."""

import numpy as np

KEYS = {
    "previous token": lambda query, queries, keys: [query - 1],
    "same token": lambda query, queries, keys: [query],
    "next token": lambda query, queries, keys: [query + 1],
    "first token": lambda query, queries, keys: [0],
    "last token": lambda query, queries, keys: [keys - 1],
    "diagonal": lambda query, queries, keys: _band(query * (keys - 1) / (queries - 1), keys),
    "reverse diagonal": lambda query, queries, keys: _band(
        (queries - 1 - query) * (keys - 1) / (queries - 1), keys
    ),
}
NAMES = {
    "encoder": ["previous token", "same token", "next token", "first token", "last token"],
    "decoder": ["previous token", "same token", "first token"],
    "cross": ["diagonal", "reverse diagonal", "first token", "last token"],
}


def _band(middle: float, keys: int) -> list[int]:
    return [key for key in range(keys) if abs(key - middle) <= 1]


def row_scores(weights: np.ndarray, kind: str, name: str) -> list[float]:
    """How much more than uniform attention each row attends to a pattern; 1 is everything."""
    queries, keys = weights.shape
    scores = []
    for query in range(queries):
        seen = range(query + 1) if kind == "decoder" else range(keys)
        inside = [key for key in KEYS[name](query, queries, keys) if key in seen]
        uniform = len(inside) / len(seen)
        if 0 < uniform < 1:
            scores.append((weights[query, inside].sum() - uniform) / (1 - uniform))
    return scores


def strongest(weights: np.ndarray, kind: str) -> tuple[str, float]:
    """The pattern of a head with the highest mean score, and the score."""
    means = {name: float(np.mean(row_scores(weights, kind, name))) for name in NAMES[kind]}
    best = max(means, key=lambda name: means[name])
    return best, means[best]


def all_heads(trace) -> dict[str, tuple[str, float]]:
    """The pattern and score of every head of a trace, by "attention.head"."""
    found = {}
    for one in trace.attentions:
        weights = trace[f"{one.name}.weights"].double().numpy()
        for head in range(one.heads):
            found[f"{one.name}.{head}"] = strongest(weights[head], one.kind)
    return found
