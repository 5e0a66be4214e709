"""The man hit the car: without positions attention cannot tell who hit whom."""

import torch

from regard import attend
from regard.positions import Sinusoidal

WORDS = {"man": [1.0, 0, 0, 0], "hit": [0, 1.0, 0, 0], "car": [0, 0, 1.0, 0]}
SENTENCES = [["man", "hit", "car"], ["car", "hit", "man"]]


def contextual(sentence: list[str], positions: torch.Tensor | None = None) -> torch.Tensor:
    """What attention makes of "man": dot products as weights, the simplest form of attention."""
    vectors = torch.tensor([WORDS[word] for word in sentence], dtype=torch.float64)
    if positions is not None:
        vectors = vectors + positions
    rows = vectors[None, None]
    return attend(rows, rows, rows, score="dot", normaliser="none")[0, 0, sentence.index("man")]


def show(vector: torch.Tensor) -> str:
    return "[" + "  ".join(f"{number:7.4f}" for number in vector.tolist()) + "]"


print("y_man without positions")
plain = [contextual(sentence) for sentence in SENTENCES]
for sentence, vector in zip(SENTENCES, plain, strict=True):
    print(f"  {' '.join(sentence)}  {show(vector)}")
assert torch.equal(*plain)  # a sentence is a set of words

# Positions counted from 1. The page this comes from prints 0.9999 for cos(1/100) = 0.99995, and
# −0.9899 for cos 3 = −0.98999: it cuts its digits instead of rounding them.
torch.set_default_dtype(torch.float64)
positions = Sinusoidal(width=4)(torch.arange(1, 4))
print("\nposition vectors")
for number, vector in enumerate(positions, start=1):
    print(f"  p{number}           {show(vector)}")
p1, p2, p3 = ([round(number, 4) for number in row] for row in positions.tolist())
assert p1 == [0.8415, 0.5403, 0.0100, 1.0000]
assert p2 == [0.9093, -0.4161, 0.0200, 0.9998]
assert p3 == [0.1411, -0.9900, 0.0300, 0.9996]

print("\ny_man with positions")
with_positions = [contextual(sentence, positions) for sentence in SENTENCES]
for sentence, vector in zip(SENTENCES, with_positions, strict=True):
    print(f"  {' '.join(sentence)}  {show(vector)}")
apart = (with_positions[0] - with_positions[1]).norm().item()
print(f"\nthe two now lie {apart:.3f} apart")
assert apart > 1
