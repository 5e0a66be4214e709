"""Normalisers: scores → weights. A masked key has weight exactly 0, also in fully masked rows.

Register your own with `@NORMALISERS.register("name")` on a subclass of `Normaliser`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.axes import Allowed, Scores, Weights
from regard.errors import RegardError, choose
from regard.registry import Registry

PHI: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
    "elu": lambda scores: F.elu(scores) + 1,
}


class Normaliser(nn.Module):
    """Computes the weights of a query's keys from their scores."""

    formula: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    is_softmax: ClassVar[bool] = False  # whether it is exactly softmax, as in fused kernels

    def __init_subclass__(cls) -> None:
        """A subclass of Softmax is another normaliser unless it declares otherwise."""
        super().__init_subclass__()
        cls.is_softmax = vars(cls).get("is_softmax", False)

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        raise NotImplementedError


class Softmax(Normaliser):
    """Exponentials over their sum."""

    formula = "exp(sᵢ) / Σⱼ exp(sⱼ)"
    paper = "Bahdanau et al. 2015, §3.1"
    is_softmax = True

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return _mask_scores(scores, allowed).softmax(-1) * allowed


class Unnormalised(Normaliser):
    """No normalisation: the scores are the weights."""

    formula = "sᵢ"
    paper = "Schmidhuber 1992"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return scores.masked_fill(~allowed, 0)


class Positive(Normaliser):
    """A positive, increasing phi over its sum: exp (softmax), softplus, sigmoid, relu, elu + 1."""

    formula = "φ(sᵢ) / Σⱼ φ(sⱼ)"
    paper = "Tsai et al. 2019, §3.1"

    def __init__(self, phi: str = "softplus") -> None:
        super().__init__()
        self.name, self.phi = phi, choose(PHI, phi, "phi")

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        if self.name == "exp" and scores.shape[-1]:  # avoid overflow; the factor cancels
            highest = _mask_scores(scores, allowed).amax(-1, keepdim=True)
            scores = scores - highest.detach()
        return _divide_by_sum(self.phi(scores.masked_fill(~allowed, 0)), allowed)

    def extra_repr(self) -> str:
        return self.name


class Boxcar(Normaliser):
    """Equal weights within one bandwidth. Reads a score as −u²/2 (score `gaussian`)."""

    formula = "1[u ≤ 1] / Σ, where s = −u²/2"
    paper = "Rosenblatt 1956"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return _divide_by_sum((scores >= -0.5).to(scores.dtype), allowed)


class Epanechnikov(Normaliser):
    """A parabola that reaches zero at one bandwidth. Reads a score as −u²/2 (score `gaussian`)."""

    formula = "max(0, 1 − u²) / Σ, where s = −u²/2"
    paper = "Epanechnikov 1969"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return _divide_by_sum((1 + 2 * scores).relu(), allowed)


class Triangular(Normaliser):
    """A triangle that reaches zero at one bandwidth. Reads a score as −u²/2 (score `gaussian`)."""

    formula = "max(0, 1 − u) / Σ, where s = −u²/2"
    paper = "Härdle 1990, §2.2"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        # The gradient of a square root at 0 is infinite; a query equal to a key gets gradient 0.
        near = scores.clamp(max=-torch.finfo(scores.dtype).tiny)
        return _divide_by_sum((1 - (-2 * near).sqrt()).relu(), allowed)


class Uniform(Normaliser):
    """Equal weights for all scores: a baseline."""

    formula = "1 / n"
    paper = "Nadaraya 1964, as the bandwidth grows"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return _divide_by_sum(torch.ones_like(scores), allowed)


class Entmax(Normaliser):
    """Sparse softmax: weights can be exactly 0. Alpha 1 would be softmax, alpha 2 is sparsemax.

    The threshold τ makes the weights sum to 1. Newton's method finds it from the left, where the
    sum is convex in τ, so it never overshoots. One more step with gradients enabled applies the
    implicit function theorem.
    """

    formula = "max(0, (α − 1)·sᵢ − τ)^(1/(α − 1)), τ such that Σ = 1"
    paper = "Peters et al. 2019, §3"

    def __init__(self, alpha: float = 1.5) -> None:
        super().__init__()
        if not 1 < alpha <= 2:
            raise RegardError(
                f"alpha must be above 1 and at most 2; got {alpha} (alpha 1 is normaliser "
                "'softmax')"
            )
        self.alpha = alpha

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        if not scores.shape[-1]:
            return scores
        lowered = _mask_scores(scores, allowed)
        z = (self.alpha - 1) * (lowered - lowered.amax(-1, keepdim=True).detach())
        with torch.no_grad():
            threshold = torch.full_like(z[..., :1], -1)
            traced = torch.compiler.is_exporting()  # which cannot stop depending on the data
            for _ in range(20 if traced else 60):  # measured: 4–12 suffice
                step = self._newton(z, threshold)
                threshold += step
                if not traced and not (step > 2 * torch.finfo(z.dtype).eps).any():
                    break
        excess = z - threshold - self._newton(z, threshold)
        return self._power(excess, 1 / (self.alpha - 1)) * allowed

    def _newton(self, z: Tensor, threshold: Tensor) -> Tensor:
        exponent = 1 / (self.alpha - 1)
        excess = self._power(z - threshold, exponent).sum(-1, keepdim=True) - 1
        slope = exponent * self._power((z - threshold).detach(), exponent - 1).sum(-1, keepdim=True)
        return excess / slope

    @staticmethod
    def _power(excess: Tensor, exponent: float) -> Tensor:
        inside = excess > 0
        return torch.where(inside, torch.where(inside, excess, 1) ** exponent, 0)  # 0⁰ = 0 here

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class Sparsemax(Entmax):
    """Euclidean projection onto the simplex: entmax with alpha 2."""

    formula = "max(0, sᵢ − τ), τ such that Σ = 1"
    paper = "Martins & Astudillo 2016"

    def __init__(self) -> None:
        super().__init__(2)


def _mask_scores(scores: Scores, allowed: Allowed) -> Scores:
    """Masked scores become the lowest finite number; −∞ would give NaN in a fully masked row."""
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)


def _divide_by_sum(parts: Scores, allowed: Allowed) -> Weights:
    """Each allowed part divided by their sum; a fully masked row stays zero."""
    parts = parts.masked_fill(~allowed, 0)
    total = parts.sum(-1, keepdim=True)
    return parts / torch.where(total > 0, total, 1)


NORMALISERS: Registry[type[Normaliser]] = Registry(
    "normaliser",
    {
        "softmax": Softmax,
        "none": Unnormalised,
        "positive": Positive,
        "boxcar": Boxcar,
        "epanechnikov": Epanechnikov,
        "triangular": Triangular,
        "uniform": Uniform,
        "sparsemax": Sparsemax,
        "entmax": Entmax,
    },
)
