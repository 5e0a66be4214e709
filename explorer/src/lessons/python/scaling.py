"""Why scores are divided by √d: softmax saturates and its gradient vanishes."""

import torch

from regard import attend

torch.manual_seed(0)
identity = torch.eye(8).expand(100, 1, 8, 8)  # with these values, the output is the weights

for d in (4, 64, 1024):
    query, keys = torch.randn(100, 1, 1, d), torch.randn(100, 1, 8, d)
    for score in ("dot", "scaled-dot"):
        weights = attend(query, keys, identity, score=score)[:, 0, 0]
        jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
        largest = weights.amax(-1).mean().item()
        gradient = jacobian.flatten(1).norm(dim=1).mean().item()
        print(f"d = {d:4}, {score:10}: largest weight {largest:.3f}, gradient {gradient:.3f}")
