"""Pooling as regression: Nadaraya–Watson is attention with a kernel for a score."""

import numpy as np
import torch

from regard import attend
from regard.attention.scores import Gaussian
from regard.pooling import KERNELS, NadarayaWatson

# Keys with noisy values of an unknown curve.
random = np.random.default_rng(0)
keys = np.sort(random.uniform(0, 5, 60))[:, None]
values = 2 * np.sin(keys[:, 0]) + keys[:, 0] ** 0.8 + random.normal(0, 0.5, 60)
queries = np.linspace(0.1, 4.9, 100)[:, None]
truth = 2 * np.sin(queries[:, 0]) + queries[:, 0] ** 0.8

# The same by attention: a query is where we ask, and the score −‖q − k‖²/(2h²) makes softmax the
# Gaussian kernel.
BANDWIDTH = 0.4
model = NadarayaWatson(kernel="gaussian", bandwidth=BANDWIDTH).fit(keys, values)
q, k, v = (torch.tensor(array.reshape(1, 1, -1, 1)) for array in (queries, keys, values))
pooled = attend(q, k, v, score=Gaussian(1, 1, bandwidth=BANDWIDTH))[0, 0, :, 0]
difference = abs(model.predict(queries) - pooled.numpy()).max()
print(f"NadarayaWatson and attend differ by at most {difference:.1e}")
assert difference < 1e-12

# Its weights are never negative and sum to one: every prediction is an average of values.
weights = model.weights(queries)
assert (weights >= 0).all()
assert np.allclose(weights.sum(1), 1)
nearest = weights[50].argsort()[::-1][:3]
largest = ", ".join(f"{keys[i, 0]:.2f} ({weights[50, i]:.2f})" for i in nearest)
print(f"at x = {queries[50, 0]:.2f} the largest weights are those of the keys {largest}")

# Any kernel will do, and the bandwidth can be found by predicting each point from the others.
print("\nkernel        bandwidth   error (root mean square against the true curve)")
errors = {}
for kernel in KERNELS:
    model = NadarayaWatson(kernel=kernel).fit(keys, values)
    errors[kernel] = float(np.sqrt(np.mean((model.predict(queries) - truth) ** 2)))
    bandwidth = "any" if kernel == "constant" else f"{model.bandwidth_:.3f}"
    print(f"{kernel:12} {bandwidth:>10}   {errors[kernel]:.3f}")

# Equal weights are the baseline every attention must beat: the mean of all values, whatever is
# asked.
baseline = errors.pop("constant")
ratios = sorted(baseline / error for error in errors.values())
print(f"\nequal weights err {ratios[0]:.1f} to {ratios[-1]:.1f} times as much")
assert ratios[0] > 2
