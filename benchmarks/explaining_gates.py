"""Formulas of recurrent gates, interventions and derived numbers in NumPy and float64."""

import math
from collections.abc import Callable

import numpy as np
from explaining_formulas import (
    Formula,
    Recomputed,
    Shown,
    activation,
    additive,
    copied,
    cosine,
    entmax,
    first_of,
    fsum,
    gaussian,
    kernel,
    layer_norm,
    log_softmax,
    masked,
    products,
    quotient,
    rms_norm,
    rotation,
    sigmoid,
    softmax,
    unnormalised,
    wave,
)


def gate(function: Callable[[float], float], label: str) -> Formula:
    """A function of a sum of products."""

    def formula(shown: Shown) -> Recomputed:
        total = products(shown)
        value = function(total.result)
        return Recomputed(value, total.lines, {label: value}, 1.0)

    return formula


def gru_state(shown: Shown) -> Recomputed:
    """(1 − z) · n + z · h."""
    (z, new), (same, before) = shown.lines
    if z != same:
        raise ValueError(f"two values of z: {z} and {same}")
    lines = [[float((1 - z) * new)], [float(z * before)]]
    return Recomputed(lines[0][0] + lines[1][0], lines)


def lstm_state(shown: Shown) -> Recomputed:
    """o · tanh(c)."""
    out, cell = (float(one) for one in shown.lines[0])
    return Recomputed(out * math.tanh(cell), [[math.tanh(cell), out * math.tanh(cell)]])


def mean(shown: Shown) -> Recomputed:
    """Σ x / n; heads that are not ablated are copied."""
    if not shown.steps:
        return copied(shown)
    numbers = [float(line[0]) for line in shown.lines]
    total = fsum(numbers)
    steps = {"Σ": total, "n": len(numbers), "rows": len(numbers)}
    return Recomputed(total / len(numbers), [[one] for one in numbers], steps)


def uniform(shown: Shown) -> Recomputed:
    """1 / number of visible keys, or 0 for a key that is not visible."""
    if shown.lines:
        return copied(shown)
    share = 1 / shown.steps["visible keys"] if shown.steps["share"] else 0.0
    return Recomputed(share, [], {"share": share})


def norm(shown: Shown) -> Recomputed:
    """√Σ x²."""
    lines = [[float(line[0] ** 2)] for line in shown.lines]
    total = fsum([line[0] for line in lines])
    return Recomputed(math.sqrt(total), lines, {"Σ": total})


def entropy(shown: Shown) -> Recomputed:
    """−Σ w log₂ w of weights, or −Σ p log₂ p of log-probabilities."""
    lines = []
    for line in shown.lines:
        if "p" in shown.formula:
            p = math.exp(line[0])
            lines.append([p, -p * line[0] / math.log(2) if p else 0.0])
        else:
            bits = -math.log2(line[0]) if line[0] > 0 else 0.0
            lines.append([bits, float(line[0]) * bits])
    return Recomputed(fsum([line[1] for line in lines]), lines, size=1.0)


def distance(shown: Shown) -> Recomputed:
    """Σ w · |query − key|."""
    query = shown.index[-1]
    lines = [
        [abs(query - key), float(line[0]) * abs(query - key)]
        for key, line in enumerate(shown.lines)
    ]
    return Recomputed(fsum([line[1] for line in lines]), lines, size=1.0)


def difference(shown: Shown) -> Recomputed:
    """a − b."""
    a, b = (float(line[0]) for line in shown.lines)
    return Recomputed(a - b, [[a], [-b]], size=abs(a) + abs(b))


def mean_ranks(numbers: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal numbers get their mean rank."""
    below = (numbers[:, None] > numbers).sum(1)
    return below + ((numbers[:, None] == numbers).sum(1) + 1) / 2


def correlation(shown: Shown) -> Recomputed:
    """Pearson's correlation of the ranks of both operands."""
    a, b = (mean_ranks(numbers) for numbers in np.array(shown.lines).T)
    centre = (len(a) + 1) / 2
    terms = (a - centre) * (b - centre)
    squares = [float(((x - centre) ** 2).sum()) for x in (a, b)]
    steps = {"mean rank": centre, "Σ": float(terms.sum())}
    steps |= {"Σ (a − mean)²": squares[0], "Σ (b − mean)²": squares[1]}
    lines = [[float(one) for one in line] for line in zip(a, b, terms, strict=True)]
    return Recomputed(float(terms.sum()) / math.sqrt(math.prod(squares)), lines, steps, 1.0)


def principal(shown: Shown) -> Recomputed:
    """Σ (x − mean) · axis."""
    lines = [[float((x - centre) * axis)] for x, centre, axis in shown.lines]
    size = max(float(abs(x) + abs(centre)) for x, centre, _ in shown.lines)
    return Recomputed(fsum([line[0] for line in lines]), lines, size=size)


def lens(shown: Shown) -> Recomputed:
    """exp(logit − log Σ exp(logits))."""
    logit = products(shown)
    value = math.exp(logit.result - shown.steps["log Σ exp(logits)"])
    return Recomputed(value, logit.lines, logit.steps, 1.0)


def rank(shown: Shown) -> Recomputed:
    """1 + the number of tokens before; the first line may stand for many."""
    own, counts = shown.steps["p of this token"], []
    for at, (line,) in enumerate(shown.lines):
        joined = at == 0 and line > 1  # a count, not a probability
        if not joined and line < own:
            raise ValueError(f"a token of probability {line} is not before one of {own}")
        counts.append(float(line) if joined else 1.0)
    total = sum(counts)
    return Recomputed(1 + total, [[one] for one in counts], {"tokens before it": total})


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("table lookup", "addition", "residual", "linear", "bias", "sum"), products),
    **dict.fromkeys(("output projection", "weighted sum", "dot product", "bilinear"), products),
    **dict.fromkeys(("scale", "unscaled", "ALiBi slope", "LSTM cell"), products),
    **dict.fromkeys(("copy", "concatenation", "concatenation of heads", "selection"), copied),
    **dict.fromkeys(("previous state", "ablated head", "edited row"), copied),
    **dict.fromkeys(("disabled", "patched"), copied),
    **dict.fromkeys(("temperature", "length penalty", "score with length penalty"), quotient),
    "quotient of two norms": quotient,
    "sine and cosine": wave,
    "rotation (RoPE)": rotation,
    "tanh": first_of(math.tanh),
    "LayerNorm": layer_norm,
    "RMSNorm": rms_norm,
    "log-probability": log_softmax,
    "softmax": softmax,
    "normalised kernel": kernel,
    "α-entmax": entmax,
    "no normalisation": unnormalised,
    "mask": masked,
    "additive score": additive,
    "cosine": cosine,
    "Gaussian score": gaussian,
    "activation": activation,
    "gate": gate(sigmoid, "σ"),
    "cell candidate": gate(math.tanh, "tanh"),
    "candidate": gate(math.tanh, "tanh"),
    "GRU state": gru_state,
    "LSTM state": lstm_state,
    "mean-ablated head": mean,
    "mean": mean,
    "uniform attention": uniform,
    "norm": norm,
    "entropy in bits": entropy,
    "mean distance": distance,
    "difference": difference,
    "perplexity": first_of(math.exp2),
    "Spearman's rank correlation": correlation,
    "principal component": principal,
    "logit lens": lens,
    "rank": rank,
}
DERIVED = {
    *("norm", "entropy in bits", "mean distance", "mean", "difference", "perplexity", "cosine"),
    *("sum", "score with length penalty", "quotient of two norms", "Spearman's rank correlation"),
    *("principal component", "logit lens", "rank"),
}
