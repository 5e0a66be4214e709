"""Nadaraya–Watson regression: attention pooling as a scikit-learn estimator.

The keys are the training points, the values their targets.
"""

# ruff: noqa: N803, N806 (scikit-learn's name for data is X)

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.scores import Gaussian
from regard.errors import RegardError, UnknownName, choose, suggestion

try:
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]
    from sklearn.base import BaseEstimator, RegressorMixin  # type: ignore[import-untyped]
    from sklearn.utils.validation import (  # type: ignore[import-untyped]
        check_is_fitted,
        validate_data,
    )
except ModuleNotFoundError as missing:
    if (missing.name or "").split(".")[0] not in ("scipy", "sklearn"):
        raise
    raise RegardError(
        "regard.pooling builds on scikit-learn, which is missing; pip install 'regard[pooling]'"
    ) from None

KERNELS = {
    "gaussian": "softmax",
    "boxcar": "boxcar",
    "epanechnikov": "epanechnikov",
    "triangular": "triangular",
    "constant": "uniform",
}
SEARCHES = ("leave-one-out", "gradient", "gradient-per-feature")
_MAX_ENTRIES = 1 << 22  # of an attention map times features in memory: 32 MiB in float64

Points = Float[Tensor, "point feature"]
Targets = Float[Tensor, "point output"]


class NadarayaWatson(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Nadaraya–Watson kernel regression: attention pooling over the training points.

    The prediction at x is Σᵢ α(x, xᵢ) yᵢ with weights α ∝ K(‖x − xᵢ‖ / bandwidth) that are
    nonnegative and sum to one (Nadaraya 1964; Watson 1964). This is attention with score −‖q −
    k‖²/(2 · bandwidth²): softmax gives the Gaussian kernel, the other kernels are normalisers of
    the same score.

    kernel     'gaussian', 'boxcar' (1 if u ≤ 1), 'epanechnikov' (1 − u²), 'triangular' (1 − u) or
               'constant' (the mean)
    bandwidth  a positive number, one per feature, or a method:
               'leave-one-out' minimises the squared leave-one-out error on a logarithmic grid and
               then between its points; 'gradient' minimises the same error by gradient descent from
               the best grid point; 'gradient-per-feature' does so with one bandwidth per feature,
               starting in proportion to their standard deviations. The time of each is quadratic in
               the number of points.

    After `fit`, `bandwidth_` is the bandwidth, a number or an array with one per feature. The
    prediction for a query without a training point in the kernel's support is NaN, with a
    RuntimeWarning.
    """

    def __init__(self, kernel: Any = "gaussian", bandwidth: Any = "leave-one-out") -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> NadarayaWatson:
        """Store the points, and choose the bandwidth if it is a method."""
        normaliser = _normaliser(self.kernel)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        # torch does not support arrays with negative strides
        self.X_, self.y_ = X.copy(order="C"), y.astype(np.float64, order="C")
        if isinstance(self.bandwidth, str):
            targets = torch.tensor(self.y_).reshape(len(X), -1)
            error = _LeaveOneOut(torch.tensor(self.X_), targets, normaliser)
            self.bandwidth_ = self._search(error)
        else:
            self.bandwidth_ = self._check_bandwidth(X.shape[1])
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The prediction at each query."""
        check_is_fitted(self)
        values = torch.tensor(self.y_).reshape(len(self.y_), -1)
        pooled, empty = [], 0
        for weights in self._maps(X):
            unsupported = ~(weights.sum(-1, keepdim=True) > 0)
            pooled.append((weights @ values).masked_fill(unsupported, torch.nan))
            empty += int(unsupported.sum())
        if empty:
            message = f"{empty} of {sum(map(len, pooled))} queries have no training point within "
            message += f"bandwidth {self.bandwidth_} and are NaN; use a larger bandwidth"
            message += "" if self.kernel == "gaussian" else " or kernel='gaussian'"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        prediction: NDArray[np.float64] = torch.cat(pooled).numpy().reshape(-1, *self.y_.shape[1:])
        return prediction

    def weights(self, X: Any) -> NDArray[np.float64]:
        """The attention map: the weight of every training point (column) for every query (row).

        Rows sum to one; the row of an unsupported query is zero.
        """
        check_is_fitted(self)
        return torch.cat(list(self._maps(X))).numpy()

    def _maps(self, X: Any) -> Iterator[Float[Tensor, "query point"]]:
        """The attention map in chunks of queries, to save memory."""
        normaliser = _normaliser(self.kernel)
        bandwidth = torch.tensor(self.bandwidth_, dtype=torch.float64)
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        queries = torch.tensor(X) / bandwidth
        keys = torch.tensor(self.X_) / bandwidth
        everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        for rows in _chunks(len(queries), keys):
            # A query whose distance overflows is unsupported.
            yield normaliser(_scores(queries[rows], keys), everything)[0, 0].nan_to_num(nan=0.0)

    def _check_bandwidth(self, features: int) -> float | NDArray[np.float64]:
        wanted = f"bandwidth must be a positive number, {features} of them (one per feature), "
        wanted += f"or one of {', '.join(map(repr, SEARCHES))}; got {self.bandwidth!r}"
        try:
            bandwidth = np.array(self.bandwidth, dtype=np.float64)
        except (TypeError, ValueError):
            raise RegardError(wanted) from None
        positive = (np.isfinite(bandwidth) & (bandwidth > 0)).all()
        if bandwidth.shape not in ((), (features,)) or not positive:
            raise RegardError(wanted)
        return bandwidth if bandwidth.ndim else float(bandwidth)

    def _search(self, error: _LeaveOneOut) -> float | NDArray[np.float64]:
        if self.bandwidth not in SEARCHES:
            hint = suggestion(self.bandwidth, SEARCHES)
            raise UnknownName(f"unknown bandwidth {self.bandwidth!r}; {hint}")
        if len(error.points) < 2:
            raise RegardError(
                f"bandwidth={self.bandwidth!r} needs at least 2 points; got n_samples=1"
            )
        if self.bandwidth == "leave-one-out":
            return error.best_on_grid(refine=True)
        if self.kernel in ("boxcar", "constant"):
            raise RegardError(
                f"kernel {self.kernel!r} has no gradient; use bandwidth='leave-one-out'"
            )
        if self.bandwidth == "gradient":
            best = torch.tensor([error.best_on_grid()], dtype=torch.float64)
            return float(error.descend(best))
        scale = error.points.std(0, correction=0)
        scale = torch.where(scale > 0, scale, 1)
        scaled = _LeaveOneOut(error.points / scale, error.targets, error.normaliser)
        return error.descend(scaled.best_on_grid() * scale).numpy()


class _LeaveOneOut(NamedTuple):
    """The squared error of predicting each point from all others, and its minimisation."""

    points: Points
    targets: Targets
    normaliser: Normaliser

    def errors(self, bandwidths: Float[Tensor, " bandwidth"]) -> Float[Tensor, " bandwidth"]:
        """The squared leave-one-out error of each bandwidth."""
        total = torch.zeros_like(bandwidths)
        for rows, others in self._chunks():
            scores = _scores(self.points[rows], self.points)
            total += torch.stack([self._error(scores / h**2, rows, others) for h in bandwidths])
        return total

    def best_on_grid(self, refine: bool = False) -> float:
        """The best bandwidth on a grid of ten per decade, from a quarter of the median distance of
        nearest points to twice the largest distance; with `refine`, also between grid points.
        """
        nearest, farthest = [], 0.0
        for rows, others in self._chunks():
            distances = (-2 * _scores(self.points[rows], self.points)[0, 0]).sqrt()
            ignored = ~others[0, 0] | (distances == 0)
            nearest.append(distances.masked_fill(ignored, torch.inf).amin(-1))
            farthest = max(farthest, distances.max().item())
        if not farthest:
            return 1.0  # all points are equal, so any bandwidth will do
        if not np.isfinite(farthest):
            raise RegardError(
                "the squared distance between points overflows; scale the features down"
            )
        low, high = np.log10(torch.cat(nearest).median().item() / 4), np.log10(2 * farthest)
        grid = torch.logspace(low, high, int(10 * (high - low)) + 2, dtype=torch.float64)
        # A kernel with finite support needs the largest nearest distance and is often best there.
        apart = torch.cat(nearest)
        least = (1 + 1e-9) * apart[apart.isfinite()].max()
        grid = torch.cat([grid, least[None]]).sort().values
        errors = self.errors(grid)
        best = int(errors.argmin())
        if not refine or not errors[best].isfinite():
            return grid[best].item()
        near = range(max(0, best - 1), min(len(grid), best + 2))
        known = [i for i in near if errors[i].isfinite()]
        around = grid[known[0]].log().item(), grid[known[-1]].log().item()
        found = minimize_scalar(
            lambda log: self.errors(torch.tensor([np.exp(log)], dtype=torch.float64)).item(),
            bounds=around,
            method="bounded",
            options={"xatol": 1e-4},
        )
        return float(np.exp(found.x)) if found.fun < errors[best] else grid[best].item()

    def descend(self, start: Float[Tensor, " bandwidth"]) -> Float[Tensor, " bandwidth"]:
        """Gradient descent on the log error over log bandwidths, which makes it independent of
        units.

        The step size is quartered after a step that does not help, and doubled after one that does.
        """
        log, rate = start.log(), 1.0
        error, gradient = self._gradient(log)
        for _ in range(200):
            if gradient.abs().max() <= 1e-4 * error:
                break
            new = log - (rate * gradient / error).clamp(-1, 1)
            new_error, new_gradient = self._gradient(new)
            if new_error < error:
                log, rate = new, 2 * rate
                error, gradient = new_error, new_gradient
            else:
                rate /= 4
            if rate < 1e-9:
                break
        return log.exp()

    def _gradient(
        self, log: Float[Tensor, " bandwidth"]
    ) -> tuple[float, Float[Tensor, " bandwidth"]]:
        log = log.detach().requires_grad_()
        total = 0.0
        for rows, others in self._chunks():
            scaled = self.points / log.exp()
            error = self._error(_scores(scaled[rows], scaled), rows, others)
            error.backward()
            total += error.item()
        assert log.grad is not None
        return total, log.grad

    def _error(
        self, scores: Float[Tensor, "1 1 query point"], rows: slice, others: Tensor
    ) -> Float[Tensor, ""]:
        """The squared error over some rows; infinite if one has no supporting point."""
        weights = self.normaliser(scores, others)[0, 0]
        error = (weights @ self.targets - self.targets[rows]).square().sum()
        return error if (weights.sum(-1) > 0).all() else error + torch.inf

    def _chunks(self) -> Iterator[tuple[slice, Bool[Tensor, "1 1 query point"]]]:
        """Chunks of rows, and for each row a mask of the other points."""
        index = torch.arange(len(self.points))
        for rows in _chunks(len(self.points), self.points):
            yield rows, (index[rows, None] != index)[None, None]


def _normaliser(kernel: object) -> Normaliser:
    return NORMALISERS[choose(KERNELS, str(kernel), "kernel")]()


def _scores(queries: Points, keys: Float[Tensor, "key feature"]) -> Float[Tensor, "1 1 point key"]:
    score = Gaussian(1, queries.shape[1])
    return score(queries[None, None], keys[None, None])


def _chunks(queries: int, keys: Points) -> Iterator[slice]:
    size = max(1, _MAX_ENTRIES // keys.numel())
    return (slice(start, start + size) for start in range(0, queries, size))
