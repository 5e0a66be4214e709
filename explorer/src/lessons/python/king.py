"""King and queen: cosines, and the analogy with and without the query words."""

import torch

from regard.vectors import Vectors

words = Vectors(
    ["king", "queen", "man", "woman"],
    torch.tensor(
        [
            [0.9, 0.8, 0.7, 0.1, 0.2],
            [0.9, 0.8, 0.7, 0.1, 0.7],
            [0.8, 0.6, 0.6, 0.2, 0.1],
            [0.8, 0.6, 0.6, 0.2, 0.6],
        ],
        dtype=torch.float64,
    ),
)
for one, other in (("king", "queen"), ("man", "woman"), ("king", "man"), ("queen", "woman")):
    print(f"cos({one}, {other}) = {words.cosine(one, other):.4f}")

for excluding in (False, True):
    found = words.analogy("man", "king", "woman", n=1, excluding=excluding, normalised=False)
    print(f"king - man + woman, query words {'out' if excluding else 'in'}: {found[0]}")
