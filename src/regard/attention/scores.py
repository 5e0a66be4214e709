"""Scores: compare projected queries with projected keys.

Each score is built as `Score(heads, dim, *, options)` and called with dense queries and keys.
Register your own with `@SCORES.register("name")` on a subclass of `Score`.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.axes import GroupedKeys, Keys, Queries, Scores
from regard.errors import RegardError
from regard.registry import Registry

DotForm = tuple[Tensor, Tensor, float]  # queries, keys, scale


class Score(nn.Module):
    """Compares every query with every key."""

    formula: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    is_dot: ClassVar[bool] = True  # whether `as_dot` reduces it to a dot product
    is_scaled_dot: ClassVar[bool] = False  # whether it is exactly q · k / √dim
    needs_projection: ClassVar[bool] = False  # whether it is meaningless on unprojected states

    def __init_subclass__(cls) -> None:
        """A score with its own `forward` is no dot product unless it declares it."""
        super().__init_subclass__()
        if "forward" in vars(cls):
            cls.is_dot = vars(cls).get("is_dot", False)
        cls.is_scaled_dot = vars(cls).get("is_scaled_dot", False)

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """The scores, computed from `as_dot`. A score that is no dot product overrides this."""
        queries, keys, scale = self.as_dot(queries, keys)
        return torch.einsum("bhqd,bhkd->bhqk", queries, keys) * scale

    def as_dot(self, queries: Queries, keys: GroupedKeys) -> DotForm:
        """Queries, keys and a scale whose dot product is this score, for dot-product kernels.

        Keys may have fewer heads than queries.
        """
        raise RegardError(f"{type(self).__name__} is not a dot product")


class Dot(Score):
    """The plain dot product."""

    formula = "q · k"
    paper = "Luong et al. 2015, §3.1"

    def as_dot(self, queries: Queries, keys: GroupedKeys) -> DotForm:
        return queries, keys, 1.0


class ScaledDot(Score):
    """The dot product over √dim, so that its variance does not grow with dim."""

    formula = "q · k / √d"
    paper = "Vaswani et al. 2017, §3.2.1"
    is_scaled_dot = True

    def as_dot(self, queries: Queries, keys: GroupedKeys) -> DotForm:
        return queries, keys, 1 / math.sqrt(self.dim)


class General(Score):
    """A learned bilinear form, one matrix per head."""

    formula = "qᵀ W k"
    paper = "Luong et al. 2015, §3.1"

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__(heads, dim)
        identity = torch.eye(dim).expand(heads, dim, dim)
        self.weight = nn.Parameter(identity + torch.randn(heads, dim, dim) / dim)

    def as_dot(self, queries: Queries, keys: GroupedKeys) -> DotForm:
        return torch.einsum("bhqd,hde->bhqe", queries, self.weight), keys, 1.0


class Additive(Score):
    """A network with one hidden layer; q and k are already projected.

    Luong's concat is the same score, because W[q; k] = W₁q + W₂k.
    """

    formula = "v · tanh(q + k)"
    paper = "Bahdanau et al. 2015, A.1.2"
    is_dot = False
    needs_projection = True

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__(heads, dim)
        self.v = nn.Parameter(torch.randn(heads, dim) / math.sqrt(dim))

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        hidden = torch.tanh(queries[:, :, :, None] + keys[:, :, None])
        return torch.einsum("hd,bhqkd->bhqk", self.v, hidden)


class Cosine(Score):
    """The cosine of the angle between query and key, times a fixed `scale`."""

    formula = "scale · q · k / (‖q‖ ‖k‖)"
    paper = "Graves et al. 2014, §3.3.1"

    def __init__(self, heads: int, dim: int, *, scale: float = 1.0) -> None:
        super().__init__(heads, dim)
        self.scale = scale

    def as_dot(self, queries: Queries, keys: GroupedKeys) -> DotForm:
        return F.normalize(queries, dim=-1), F.normalize(keys, dim=-1), self.scale


class Gaussian(Score):
    """Minus half the squared distance in bandwidths; with softmax, Gaussian kernel pooling.

    Expanding it to the dot product q · k − ‖k‖²/2 would cancel large terms when keys are many
    bandwidths apart.
    """

    formula = "−‖q − k‖² / (2 · bandwidth²)"
    paper = "Nadaraya 1964; Watson 1964"
    is_dot = False

    def __init__(self, heads: int, dim: int, *, bandwidth: float = 1.0) -> None:
        super().__init__(heads, dim)
        if not bandwidth > 0:
            raise RegardError(f"bandwidth must be above 0; got {bandwidth}")
        self.bandwidth = bandwidth

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        difference = (queries[:, :, :, None] - keys[:, :, None]) / self.bandwidth
        return -difference.square().sum(-1) / 2


SCORES: Registry[type[Score]] = Registry(
    "score",
    {
        "dot": Dot,
        "scaled-dot": ScaledDot,
        "general": General,
        "additive": Additive,
        "cosine": Cosine,
        "gaussian": Gaussian,
    },
)
