"""Three spaces: with one matrix for queries and keys the scores are symmetric, with two not."""

import numpy as np
import torch

from regard.attention import Attention
from regard.attention.scores import ScaledDot

words = torch.tensor([[1.6, 0.4], [0.9, 1.1], [0.1, 1.5]], dtype=torch.float64)


def rotation(degrees: float) -> torch.Tensor:
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return torch.tensor([[c, -s], [s, c]])


for angle in (0, 60):
    q, k, v = (words @ rotation(turn).T for turn in (angle, 0, 0))
    steps = Attention(ScaledDot(heads=1, dim=2)).intermediates(
        q[None, None], k[None, None], v[None, None]
    )
    scores, weights = steps.scores[0, 0], steps.weights[0, 0]
    print(f"W_Q turned by {angle}°: largest |s_ij - s_ji| = {(scores - scores.T).abs().max():.3f}")
    print(weights.numpy().round(3))
