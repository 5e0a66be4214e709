"""Five position encodings: what they add to the scores of 20 positions, without any text."""

import torch

from regard.axes import Site
from regard.positions import Alibi, Rotary, Sinusoidal

places = torch.arange(20)

table = Sinusoidal(64)(places).double()
sinusoidal = table @ table.T / 64**0.5

rotated = Rotary(16).rotate(torch.ones(1, 1, 20, 16, dtype=torch.float64), places)[0, 0]
rotary = rotated @ rotated.T / 16**0.5

scores = torch.zeros(1, 4, 20, 20, dtype=torch.float64)
alibi = Alibi(4)(scores, Site.grid(scores, scores))[0, 0]

for name, matrix in (("sinusoidal", sinusoidal), ("rotary", rotary), ("alibi", alibi)):
    diagonals = [matrix.diagonal(k) for k in range(-19, 20)]
    spread = max(float(one.max() - one.min()) for one in diagonals)
    print(f"{name:10}: first row {matrix[0, :4].tolist()}, spread on a diagonal {spread:.1e}")

print("learned and relative tables exist after training: python benchmarks/lesson_lengths.py")
