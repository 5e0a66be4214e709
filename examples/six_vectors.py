"""Six vectors: attention worked through by numbers, and the cosines of their positions."""

import torch

from regard.attention import Attention
from regard.attention.scores import ScaledDot
from regard.positions import Sinusoidal
from regard.vectors import similarities

torch.set_default_dtype(torch.float64)
vectors = torch.tensor(
    [[1, 0, 0], [0.95, 0.1, 0], [0, 1, 0], [0, 0.95, 0.1], [-1, 0, 0], [0.5, 0.5, 0.5]]
)
# Into an attention space of six dimensions; most columns use the first number, some the third.
w_q = torch.tensor([[1.0, 1, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]])
w_k = torch.tensor([[1.0, 1, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0], [0, 0, 5, 3, 5, 0]])

queries, keys, values = ((vectors @ w)[None, None] for w in (w_q, w_k, torch.eye(3)))
steps = Attention(ScaledDot(heads=1, dim=6)).intermediates(queries, keys, values)
weights, output = steps.weights[0, 0], steps.context[0, 0]


def rounded(row: torch.Tensor) -> list[float]:
    return [round(number, 3) for number in row.tolist()]


print("weights (rows are queries, columns keys) and outputs")
for name, row, context in zip("123456", weights, output, strict=True):
    shown = " ".join(f"{weight:.3f}" for weight in row.tolist())
    print(f"  v{name}  {shown}   →  {rounded(context)}")
assert rounded(weights[0]) == [0.424, 0.375, 0.037, 0.037, 0.003, 0.125]
assert torch.allclose(weights[2], torch.full((6,), 1 / 6))  # the query of v3 is zero
assert rounded(output[0]) == [0.839, 0.171, 0.066]
assert rounded(output[5]) == [0.636, 0.324, 0.136]

before, after = similarities(vectors), similarities(output)
print(f"\nv6 and v1 had a cosine of {before[5, 0]:.2f}; attention made it {after[5, 0]:.2f}")
assert after[5, 0] > before[5, 0]


# Cosines of the positions 0 … 5. One source gives the cosine its own frequency, (2i + 1)/d; the
# paper has one per pair. In 3 dimensions that changes everything, in 512 almost nothing.
def variant(width: int) -> torch.Tensor:
    dimension = torch.arange(width)
    angles = torch.arange(6)[:, None] / 10000 ** (dimension / width)
    return torch.where(dimension % 2 == 0, angles.sin(), angles.cos())


FAR = [0.97, 0.91, 0.83, 0.77, 0.74]
print("\ncosine of position 0 with 1 … 5")
for name, vectors, expected in (
    ("paper,     3 dimensions", Sinusoidal(3)(torch.arange(6)), [0.54, -0.42, -0.99, -0.65, 0.28]),
    ("variant,   3 dimensions", variant(3), [0.76, 0.74, 0.99, 0.79, 0.71]),
    ("paper,   512 dimensions", Sinusoidal(512)(torch.arange(6)), FAR),
    ("variant, 512 dimensions", variant(512), FAR),
):
    cosines = [round(number, 2) for number in similarities(vectors)[0, 1:].tolist()]
    print(f"  {name}  {cosines}")
    assert cosines == expected
