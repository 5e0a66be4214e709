"""Normalisers: from scores to weights. A forbidden key weighs exactly nothing; so does every key of an empty row."""

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
    """Turns the scores of one query into the weights of its keys."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    is_softmax: ClassVar[bool] = False  # whether it is exactly softmax, which fused kernels compute

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
        return _lowest(scores, allowed).softmax(-1) * allowed


class PlainSum(Normaliser):
    """No normalising: the scores are the weights, as in the first step of the derivation of attention."""

    formula = "sᵢ"
    paper = "Schmidhuber 1992"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return scores.masked_fill(~allowed, 0)


class Positive(Normaliser):
    """Any positive, increasing phi over its sum: exp (softmax again), softplus, sigmoid, relu, elu + 1."""

    formula = "φ(sᵢ) / Σⱼ φ(sⱼ)"
    paper = "Tsai et al. 2019, §3.1"

    def __init__(self, phi: str = "softplus") -> None:
        super().__init__()
        self.name, self.phi = phi, choose(PHI, phi, "phi")

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        if self.name == "exp" and scores.shape[-1]:  # a common factor cancels, and no exponential overflows
            scores = scores - _lowest(scores, allowed).amax(-1, keepdim=True).detach()
        return _share(self.phi(scores.masked_fill(~allowed, 0)), allowed)

    def extra_repr(self) -> str:
        return self.name


class Boxcar(Normaliser):
    """Equal weights within one bandwidth. Reads a score as −u²/2 (score `gaussian`)."""

    formula = "1[u ≤ 1] / Σ, where s = −u²/2"
    paper = "Rosenblatt 1956"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return _share((scores >= -0.5).to(scores.dtype), allowed)


class Epanechnikov(Normaliser):
    """A parabola that ends at one bandwidth. Reads a score as −u²/2 (score `gaussian`)."""

    formula = "max(0, 1 − u²) / Σ, where s = −u²/2"
    paper = "Epanechnikov 1969"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return _share((1 + 2 * scores).relu(), allowed)


class Triangular(Normaliser):
    """A tent that ends at one bandwidth. Reads a score as −u²/2 (score `gaussian`)."""

    formula = "max(0, 1 − u) / Σ, where s = −u²/2"
    paper = "Härdle 1990, §2.2"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        # The slope of a square root at 0 is infinite; a place exactly on a key gets slope 0 instead.
        near = scores.clamp(max=-torch.finfo(scores.dtype).tiny)
        return _share((1 - (-2 * near).sqrt()).relu(), allowed)


class Uniform(Normaliser):
    """Equal weights, whatever the scores: the baseline every attention must beat."""

    formula = "1 / n"
    paper = "Nadaraya 1964, as the bandwidth grows"

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        return _share(torch.ones_like(scores), allowed)


class Entmax(Normaliser):
    """Softmax that can say exactly 0; alpha 1 would be softmax, alpha 2 is sparsemax.

    The threshold τ makes the weights sum to 1. Newton's method finds it from the left, where the sum is convex in τ,
    so it never overshoots; one more step with gradients on is the implicit function theorem.
    """

    formula = "max(0, (α − 1)·sᵢ − τ)^(1/(α − 1)), τ such that Σ = 1"
    paper = "Peters et al. 2019, §3"

    def __init__(self, alpha: float = 1.5) -> None:
        super().__init__()
        if not 1 < alpha <= 2:
            raise RegardError(f"alpha must be above 1 and at most 2; got {alpha} (alpha 1 is normaliser 'softmax')")
        self.alpha = alpha

    def forward(self, scores: Scores, allowed: Allowed) -> Weights:
        if not scores.shape[-1]:
            return scores
        lowered = _lowest(scores, allowed)
        z = (self.alpha - 1) * (lowered - lowered.amax(-1, keepdim=True).detach())
        with torch.no_grad():
            threshold = torch.full_like(z[..., :1], -1)
            for _ in range(60):  # measured: 4–12 suffice; sparsemax ends after as many as the support changes
                step = self._newton(z, threshold)
                threshold += step
                if not (step > 2 * torch.finfo(z.dtype).eps).any():
                    break
        weights = self._power(z - threshold - self._newton(z, threshold), 1 / (self.alpha - 1))
        return weights * allowed

    def _newton(self, z: Tensor, threshold: Tensor) -> Tensor:
        exponent = 1 / (self.alpha - 1)
        excess = self._power(z - threshold, exponent).sum(-1, keepdim=True) - 1
        slope = exponent * self._power((z - threshold).detach(), exponent - 1).sum(-1, keepdim=True)
        return excess / slope

    @staticmethod
    def _power(above: Tensor, exponent: float) -> Tensor:
        inside = above > 0
        return torch.where(inside, torch.where(inside, above, 1) ** exponent, 0)  # 0⁰ must count as 0

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class Sparsemax(Entmax):
    """The nearest point of the simplex: entmax with alpha 2."""

    formula = "max(0, sᵢ − τ), τ such that Σ = 1"
    paper = "Martins & Astudillo 2016"

    def __init__(self) -> None:
        super().__init__(2)


def _lowest(scores: Scores, allowed: Allowed) -> Scores:
    """Forbidden scores at the lowest finite number: −∞ would give NaN where a query may see nothing."""
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)


def _share(parts: Scores, allowed: Allowed) -> Weights:
    """Each allowed part over the sum of them; a row with nothing stays nothing."""
    parts = parts.masked_fill(~allowed, 0)
    total = parts.sum(-1, keepdim=True)
    return parts / torch.where(total > 0, total, 1)


NORMALISERS: Registry[type[Normaliser]] = Registry(
    "normaliser",
    {
        "softmax": Softmax,
        "none": PlainSum,
        "positive": Positive,
        "boxcar": Boxcar,
        "epanechnikov": Epanechnikov,
        "triangular": Triangular,
        "uniform": Uniform,
        "sparsemax": Sparsemax,
        "entmax": Entmax,
    },
)
