"""NadarayaWatson: attention pooling as a scikit-learn regressor. Keys are the training points, values their targets."""

# ruff: noqa: N803, N806 — scikit-learn's estimators call their data X

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.scores import Gaussian
from regard.errors import RegardError, UnknownName, choose, suggestion

KERNELS = {
    "gaussian": "softmax",
    "boxcar": "boxcar",
    "epanechnikov": "epanechnikov",
    "triangular": "triangular",
    "constant": "uniform",
}
SEARCHES = ("leave-one-out", "gradient", "gradient-per-feature")
_ENTRIES = 1 << 22  # of an attention map times features, held at once: 32 MiB in float64

Points = Float[Tensor, "point feature"]
Targets = Float[Tensor, "point output"]


class NadarayaWatson(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Kernel regression: the prediction at x is Σᵢ α(x, xᵢ) yᵢ, with weights α ∝ K(‖x − xᵢ‖ / bandwidth) that are
    nonnegative and sum to one (Nadaraya 1964; Watson 1964). It is attention with score −‖q − k‖²/(2 · bandwidth²):
    softmax makes the Gaussian kernel, and the other kernels are normalisers of the same score.

    kernel     'gaussian', 'boxcar' (1 if u ≤ 1), 'epanechnikov' (1 − u²), 'triangular' (1 − u), 'constant' (the mean)
    bandwidth  a number above 0, one such number for each feature, or how to find it from the data:
               'leave-one-out' minimises the squared error of predicting each point from the others, on a logarithmic
               grid and then between its points; 'gradient' goes downhill on the same error from the best of the grid;
               'gradient-per-feature' does so with one bandwidth for each feature, starting in proportion to their
               standard deviations. Each costs time in the square of the number of points.

    After `fit`, `bandwidth_` is the bandwidth used, a number or an array of one for each feature.

    A query with no training point in the support of its kernel has no answer: NaN, and a RuntimeWarning.
    """

    def __init__(self, kernel: Any = "gaussian", bandwidth: Any = "leave-one-out") -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> NadarayaWatson:
        """Remember the points, and find the bandwidth if it is not given."""
        normaliser = _normaliser(self.kernel)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self.X_, self.y_ = X.copy(order="C"), y.astype(np.float64, order="C")  # torch knows no reversed arrays
        if isinstance(self.bandwidth, str):
            pooling = _Pooling(torch.tensor(self.X_), torch.tensor(self.y_).reshape(len(X), -1), normaliser)
            self.bandwidth_ = self._search(pooling)
        else:
            self.bandwidth_ = self._given(X.shape[1])
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The pooled target at each query."""
        check_is_fitted(self)
        values = torch.tensor(self.y_).reshape(len(self.y_), -1)
        pooled, empty = [], 0
        for weights in self._maps(X):
            nothing = ~(weights.sum(-1, keepdim=True) > 0)
            pooled.append((weights @ values).masked_fill(nothing, torch.nan))
            empty += int(nothing.sum())
        if empty:
            message = f"{empty} of {sum(map(len, pooled))} queries have no training point within bandwidth "
            message += f"{self.bandwidth_}; they are NaN: give a larger bandwidth"
            message += "" if self.kernel == "gaussian" else " or kernel='gaussian'"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        prediction: NDArray[np.float64] = torch.cat(pooled).numpy().reshape(-1, *self.y_.shape[1:])
        return prediction

    def weights(self, X: Any) -> NDArray[np.float64]:
        """The attention map: the weight of every training point (column) for every query (row).

        Rows sum to one; the row of a query that no training point supports is zero.
        """
        check_is_fitted(self)
        return torch.cat(list(self._maps(X))).numpy()

    def _maps(self, X: Any) -> Iterator[Float[Tensor, "query point"]]:
        """The attention map, some queries at a time, so that it is never whole unless someone asks."""
        normaliser = _normaliser(self.kernel)
        bandwidth = torch.tensor(self.bandwidth_, dtype=torch.float64)
        queries = torch.tensor(validate_data(self, X, dtype=np.float64, order="C", reset=False)) / bandwidth
        keys = torch.tensor(self.X_) / bandwidth
        everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        for rows in _chunks(len(queries), keys):
            # A query so far off that its distance overflows is supported by nothing.
            yield normaliser(_scores(queries[rows], keys), everything)[0, 0].nan_to_num(nan=0.0)

    def _given(self, features: int) -> float | NDArray[np.float64]:
        wanted = f"bandwidth must be a number above 0, {features} of them (one for each feature), or one of "
        wanted += f"{', '.join(map(repr, SEARCHES))}; got {self.bandwidth!r}"
        try:
            bandwidth = np.array(self.bandwidth, dtype=np.float64)
        except (TypeError, ValueError):
            raise RegardError(wanted) from None
        if bandwidth.shape not in ((), (features,)) or not (np.isfinite(bandwidth) & (bandwidth > 0)).all():
            raise RegardError(wanted)
        return bandwidth if bandwidth.ndim else float(bandwidth)

    def _search(self, pooling: _Pooling) -> float | NDArray[np.float64]:
        if self.bandwidth not in SEARCHES:
            raise UnknownName(f"unknown bandwidth {self.bandwidth!r}; {suggestion(self.bandwidth, SEARCHES)}")
        if len(pooling.points) < 2:
            raise RegardError(f"bandwidth={self.bandwidth!r} leaves one point out and needs 2; got n_samples=1")
        if self.bandwidth == "leave-one-out":
            return pooling.best_on_grid(refine=True)
        if self.kernel in ("boxcar", "constant"):
            raise RegardError(f"kernel {self.kernel!r} has no slope to descend; use bandwidth='leave-one-out'")
        if self.bandwidth == "gradient":
            return float(pooling.descend(torch.tensor([pooling.best_on_grid()], dtype=torch.float64)))
        scale = pooling.points.std(0, correction=0)
        scale = torch.where(scale > 0, scale, 1)
        start = _Pooling(pooling.points / scale, pooling.targets, pooling.normaliser).best_on_grid()
        return pooling.descend(start * scale).numpy()


class _Pooling(NamedTuple):
    """Points with targets, and the error of predicting each from all the others."""

    points: Points
    targets: Targets
    normaliser: Normaliser

    def errors(self, bandwidths: Float[Tensor, " bandwidth"]) -> Float[Tensor, " bandwidth"]:
        """The squared leave-one-out error of each of several bandwidths."""
        total = torch.zeros_like(bandwidths)
        for rows, others in self._left_out():
            scores = _scores(self.points[rows], self.points)
            total += torch.stack([self._error(scores / h**2, rows, others) for h in bandwidths])
        return total

    def best_on_grid(self, refine: bool = False) -> float:
        """The bandwidth of least error on a grid of ten a decade, from a quarter of the usual distance between
        nearest points to twice the largest distance; or between the points of the grid too.
        """
        nearest, farthest = [], 0.0
        for rows, others in self._left_out():
            distances = (-2 * _scores(self.points[rows], self.points)[0, 0]).sqrt()
            nearest.append(distances.masked_fill(~others[0, 0] | (distances == 0), torch.inf).amin(-1))
            farthest = max(farthest, distances.max().item())
        if not farthest:
            return 1.0  # all points are the same, and every bandwidth too
        if not np.isfinite(farthest):
            raise RegardError("the squared distance between points overflows; scale the features down first")
        low, high = np.log10(torch.cat(nearest).median().item() / 4), np.log10(2 * farthest)
        grid = torch.logspace(low, high, int(10 * (high - low)) + 2, dtype=torch.float64)
        # A kernel that ends leaves points alone below the largest of those distances, and is often best just there.
        apart = torch.cat(nearest)
        least = (1 + 1e-9) * apart[apart.isfinite()].max()
        grid = torch.cat([grid, least[None]]).sort().values
        errors = self.errors(grid)
        best = int(errors.argmin())
        if not refine or not errors[best].isfinite():
            return grid[best].item()
        known = [i for i in (best - 1, best, best + 1) if 0 <= i < len(grid) and errors[i].isfinite()]
        around = grid[known[0]].log().item(), grid[known[-1]].log().item()
        found = minimize_scalar(
            lambda log: self.errors(torch.tensor([np.exp(log)], dtype=torch.float64)).item(),
            bounds=around,
            method="bounded",
            options={"xatol": 1e-4},
        )
        return float(np.exp(found.x)) if found.fun < errors[best] else grid[best].item()

    def descend(self, start: Float[Tensor, " bandwidth"]) -> Float[Tensor, " bandwidth"]:
        """Gradient descent on the logarithm of the error by the logarithms of the bandwidths: no unit matters then.
        A step that does not help is halved twice, one that helps is doubled for the next.
        """
        log, rate = start.log(), 1.0
        error, slope = self._slope(log)
        for _ in range(200):
            if slope.abs().max() <= 1e-4 * error:
                break
            there = log - (rate * slope / error).clamp(-1, 1)
            error_there, slope_there = self._slope(there)
            if error_there < error:
                log, error, slope, rate = there, error_there, slope_there, 2 * rate
            else:
                rate /= 4
            if rate < 1e-9:
                break
        return log.exp()

    def _slope(self, log: Float[Tensor, " bandwidth"]) -> tuple[float, Float[Tensor, " bandwidth"]]:
        log = log.detach().requires_grad_()
        total = 0.0
        for rows, others in self._left_out():
            scaled = self.points / log.exp()
            error = self._error(_scores(scaled[rows], scaled), rows, others)
            error.backward()
            total += error.item()
        assert log.grad is not None
        return total, log.grad

    def _error(self, scores: Float[Tensor, "1 1 query point"], rows: slice, others: Tensor) -> Float[Tensor, ""]:
        """The squared error over some rows; infinite if one of them is left with no point in its support."""
        weights = self.normaliser(scores, others)[0, 0]
        error = (weights @ self.targets - self.targets[rows]).square().sum()
        return error if (weights.sum(-1) > 0).all() else error + torch.inf

    def _left_out(self) -> Iterator[tuple[slice, Bool[Tensor, "1 1 query point"]]]:
        """Some rows at a time, and for each the points other than itself."""
        place = torch.arange(len(self.points))
        for rows in _chunks(len(self.points), self.points):
            yield rows, (place[rows, None] != place)[None, None]


def _normaliser(kernel: object) -> Normaliser:
    return NORMALISERS[choose(KERNELS, str(kernel), "kernel")]()


def _scores(queries: Points, keys: Float[Tensor, "key feature"]) -> Float[Tensor, "1 1 point key"]:
    score = Gaussian(1, queries.shape[1])
    return score(queries[None, None], keys[None, None])


def _chunks(queries: int, keys: Points) -> Iterator[slice]:
    size = max(1, _ENTRIES // keys.numel())
    return (slice(start, start + size) for start in range(0, queries, size))
