"""Formulas of explained numbers in NumPy and float64: the independent side of `explaining.py`.

Each function reads the numbers that an explanation shows as given (operands, and steps such as a
position or eps) and recomputes what it shows as computed. Nothing here uses Regard.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Shown:
    """What an explanation shows: operands by line, steps by label, and the operands of steps."""

    formula: str
    index: Sequence[int]
    lines: list[np.ndarray]
    here: int | None
    steps: dict[str, float]
    step_operands: dict[str, float]
    phi: str = ""  # the function of a kernel normaliser, a setting of the model


@dataclass
class Recomputed:
    """The result, the numbers of each line, the steps, and the size that float32 rounds at."""

    result: float
    lines: list[list[float]] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    size: float = 0.0


Formula = Callable[[Shown], Recomputed]


def fsum(numbers: Sequence[float]) -> float:
    """The exact sum, rounded once."""
    return math.fsum(numbers)


def products(shown: Shown) -> Recomputed:
    """Σ of products of operands, times a factor or plus a bias if a step has one."""
    lines = [[float(np.prod(line))] for line in shown.lines]
    total = fsum([line[0] for line in lines])
    steps, result = {"Σ": total}, total
    if "1 / √dim" in shown.steps:
        result = total * shown.steps["1 / √dim"]
    if "+ bias" in shown.step_operands:
        result = steps["+ bias"] = total + shown.step_operands["+ bias"]
    return Recomputed(result, lines, steps)


def copied(shown: Shown) -> Recomputed:
    """One operand, unchanged."""
    value = float(shown.lines[0][0])
    return Recomputed(value, [[value]])


def first_of(function: Callable[[float], float]) -> Formula:
    """A function of one operand."""

    def formula(shown: Shown) -> Recomputed:
        value = function(float(shown.lines[0][0]))
        return Recomputed(value, [[value]])

    return formula


def quotient(shown: Shown) -> Recomputed:
    """The first operand over the second."""
    value = float(shown.lines[0][0] / shown.lines[0][1])
    return Recomputed(value, [[value]])


def wave(shown: Shown) -> Recomputed:
    """sin or cos of position · rate."""
    angle = shown.steps["position"] * shown.steps["rate"]
    name = "cos" if "cos" in shown.steps else "sin"
    value = math.cos(angle) if name == "cos" else math.sin(angle)
    return Recomputed(value, [], {"angle": angle, name: value}, 1.0)


def rotation(shown: Shown) -> Recomputed:
    """a · cos ∓ b · sin of position · rate; dimensions that are not rotated are copied."""
    if not shown.steps:
        return copied(shown)
    angle = shown.steps["position"] * shown.steps["rate"]
    (a, cos), (b, sin) = shown.lines
    if abs(cos - math.cos(angle)) > 1e-12 or abs(abs(sin) - abs(math.sin(angle))) > 1e-12:
        raise ValueError(f"cos {cos} and sin {sin} are not those of the angle {angle}")
    lines = [[float(a * cos)], [float(b * sin)]]
    return Recomputed(lines[0][0] + lines[1][0], lines, {"angle": angle}, abs(a) + abs(b))


def layer_norm(shown: Shown) -> Recomputed:
    """(x − mean) / √(variance + eps) · gain + shift."""
    x = np.concatenate(shown.lines)
    mean, variance = float(x.mean()), float(x.var())
    scale = math.sqrt(variance + shown.steps["eps"])
    normal = float(x[shown.here] - mean) / scale
    gain, shift = (shown.step_operands[name] for name in ("· gain", "+ shift"))
    steps = {"mean": mean, "variance": variance, "normalised": normal, "· gain": normal * gain}
    result = steps["+ shift"] = normal * gain + shift
    lines = [[float(one - mean), float((one - mean) ** 2)] for one in x]
    return Recomputed(result, lines, steps, float(np.abs(x).max()) / scale * (1 + abs(gain)))


def rms_norm(shown: Shown) -> Recomputed:
    """x / √(mean of x² + eps) · gain."""
    x = np.concatenate(shown.lines)
    square = float((x**2).mean())
    normal = float(x[shown.here]) / math.sqrt(square + shown.steps["eps"])
    result = normal * shown.step_operands["· gain"]
    steps = {"mean square": square, "normalised": normal, "· gain": result}
    return Recomputed(result, [[float(one), float(one * one)] for one in x], steps)


def exponentials(shown: Shown) -> tuple[float, list[list[float]], float]:
    """The largest operand; each minus it and its exponential; their sum."""
    x = np.concatenate(shown.lines)
    largest = float(x.max())
    below = x - largest if math.isfinite(largest) else np.full(len(x), -math.inf)
    return largest, [[float(one), math.exp(one)] for one in below], fsum(np.exp(below).tolist())


def softmax(shown: Shown) -> Recomputed:
    """exp(s − max) / Σ; a query that may attend to nothing has weights 0."""
    largest, lines, total = exponentials(shown)
    own = lines[shown.here][1]
    steps = {"max": largest, "Σ exp": total, "exp here": own}
    return Recomputed(own / total if total else 0.0, lines, steps, 0.1)


def log_softmax(shown: Shown) -> Recomputed:
    """l − max − log Σ exp(l − max)."""
    largest, lines, total = exponentials(shown)
    steps = {"max": largest, "Σ exp": total, "log Σ exp": math.log(total)}
    return Recomputed(lines[shown.here][0] - math.log(total), lines, steps)


PHI: dict[str, Callable[[float], float]] = {
    "softplus": lambda s: math.log1p(math.exp(-abs(s))) + max(s, 0.0),
    "sigmoid": lambda s: 1 / (1 + math.exp(-s)) if s > -700 else 0.0,
    "relu": lambda s: max(s, 0.0),
    "elu": lambda s: s + 1 if s > 0 else math.exp(s),
    "boxcar": lambda s: float(s >= -0.5),
    "epanechnikov": lambda s: max(0.0, 1 + 2 * s),
    "triangular": lambda s: max(0.0, 1 - math.sqrt(max(0.0, -2 * s))),
    "uniform": lambda s: 1.0,
}


def kernel(shown: Shown) -> Recomputed:
    """φ(s) / Σ φ(s); a masked score counts 0."""
    scores = [float(line[0]) for line in shown.lines]
    highest = max((one for one in scores if one > -math.inf), default=0.0)
    phi = (lambda s: math.exp(s - highest)) if shown.phi == "exp" else PHI[shown.phi]
    values = [0.0 if one == -math.inf else phi(one) for one in scores]
    total, own = fsum(values), values[shown.here]
    result = own / total if total > 0 else 0.0
    return Recomputed(result, [[one] for one in values], {"Σ": total, "here": own}, 1.0)


def entmax(shown: Shown) -> Recomputed:
    """max(0, (α − 1) · s − τ)^(1/(α − 1)), τ by bisection such that the weights sum to 1."""
    alpha = shown.steps["α"]
    z = (alpha - 1) * np.concatenate(shown.lines)
    if not np.isfinite(z).any():
        steps = {"threshold τ": math.inf, "Σ": 0.0}
        return Recomputed(0.0, [[float(one), 0.0] for one in z], steps)

    def weights(threshold: float) -> np.ndarray:
        return np.maximum(0, z - threshold) ** (1 / (alpha - 1))

    low, high = float(z.max()) - 1, float(z.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if weights(middle).sum() > 1 else (low, middle)
    found = weights(low)
    lines = [[float(a), float(b)] for a, b in zip(z, found, strict=True)]
    steps = {"threshold τ": low, "Σ": float(found.sum())}
    return Recomputed(float(found[shown.here]), lines, steps, float(np.abs(z[z > -math.inf]).max()))


def unnormalised(shown: Shown) -> Recomputed:
    """The score itself; 0 where it is masked."""
    value = float(shown.lines[0][0])
    value = 0.0 if value == -math.inf else value
    return Recomputed(value, [[value]])


def masked(shown: Shown) -> Recomputed:
    """The score where the condition of the formula holds, else −∞."""
    condition = shown.formula.removeprefix("score where ").removesuffix(", else −∞")
    condition = re.sub(r"\|([^|]+)\|", r"abs(\1)", condition.replace("≤", "<=").replace("−", "-"))
    names = {"query": shown.steps["query"], "key": shown.steps["key"], "abs": abs, "true": True}
    allowed = eval(condition, {"__builtins__": {}}, names)  # text of the package
    value = float(shown.lines[0][0]) if allowed else -math.inf
    return Recomputed(value, [[value]])


def additive(shown: Shown) -> Recomputed:
    """Σ v · tanh(q + k)."""
    lines = [[math.tanh(q + k), float(v * math.tanh(q + k))] for q, k, v in shown.lines]
    return Recomputed(fsum([line[1] for line in lines]), lines)


def cosine(shown: Shown) -> Recomputed:
    """a · b / (‖a‖ ‖b‖), times a scale for a score."""
    a, b = np.array(shown.lines).T
    names = ("‖q‖", "‖k‖") if "‖q‖" in shown.steps else ("‖a‖", "‖b‖")
    norms = [math.sqrt(fsum((x * x).tolist())) for x in (a, b)]
    lines = [[float(one)] for one in a * b]
    total = fsum((a * b).tolist())
    value = total / (norms[0] * norms[1]) if norms[0] * norms[1] else 0.0
    steps = {"Σ": total, **dict(zip(names, norms, strict=True))}
    if "scale" not in shown.steps:
        return Recomputed(value, lines, steps, 1.0)
    scale = shown.steps["scale"]
    return Recomputed(value * scale, lines, {**steps, "cosine": value}, abs(scale))


def gaussian(shown: Shown) -> Recomputed:
    """−½ Σ ((q − k) / bandwidth)²."""
    width = shown.steps["bandwidth"]
    q, k = np.array(shown.lines).T
    apart = (q - k) / width
    total = fsum((apart**2).tolist())
    size = float((np.abs(apart) * (np.abs(q) + np.abs(k))).sum()) / width
    lines = [[float(one), float(one * one)] for one in apart]
    return Recomputed(-total / 2, lines, {"Σ": total}, size)


def sigmoid(x: float) -> float:
    """1 / (1 + exp(−x))."""
    return float(np.exp(-np.logaddexp(0, -x)))


def gelu_tanh(x: float) -> float:
    """½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "max(0, x)": lambda x: max(0.0, x),
    "x · ½ (1 + erf(x / √2))": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
    "x · ½ (1 + tanh(√(2/π) (x + 0.044715 x³)))": gelu_tanh,
    "x / (1 + exp(−x))": lambda x: x * sigmoid(x),
    "gate / (1 + exp(−gate)) · inner": lambda x: x * sigmoid(x),
    "gate · ½ (1 + tanh(√(2/π) (gate + 0.044715 gate³))) · inner": gelu_tanh,
}


def activation(shown: Shown) -> Recomputed:
    """A function of the operand, or of the gate times the inner number."""
    function, line = ACTIVATIONS[shown.formula], shown.lines[0]
    value = function(float(line[0]))
    if len(line) == 1:
        return Recomputed(value, [[value]], size=abs(float(line[0])))
    result = value * float(line[1])
    return Recomputed(result, [[value, result]], size=float(np.prod(np.abs(line))))
