"""King and queen: words as vectors, the angle between them, and king − man + woman."""

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

# The cosine measures how similar two directions are. The source of this example prints 0.98 and
# 0.99; it is less.
pairs = {("king", "queen"): 0.9485, ("man", "woman"): 0.9268, ("king", "man"): 0.9910}
print("cosine similarity")
for (one, other), expected in pairs.items():
    cosine = words.cosine(one, other)
    print(f"  {one:5} and {other:5}  {cosine:.4f}")
    assert round(cosine, 4) == expected

# The step from man to woman is the step from king to queen: one number changes.
royal, common = words["queen"] - words["king"], words["woman"] - words["man"]
print("\nqueen − king  ", royal.numpy().round(2))
print("woman − man   ", common.numpy().round(2))
assert torch.allclose(royal, common)

# So the analogy is exact. Without the three words asked about, queen is all that is left; with
# them it still wins.
found = words["king"] - words["man"] + words["woman"]
assert torch.allclose(found, words["queen"])
best, cosine = words.analogy("man", "king", "woman", n=1, excluding=False, normalised=False)[0]
print(f"\nman is to king as woman is to … {best} (cosine {cosine:.4f})")
assert best == "queen"
assert abs(cosine - 1) < 1e-12

# Whom does each word stand nearest to? Not always to whom one would think: a man is nearer to a
# king than to a woman.
print("\nnearest neighbours")
nearest = {word: words.neighbours(word, n=1)[0] for word in words}
for word, (neighbour, cosine) in nearest.items():
    print(f"  {word:5} → {neighbour:5}  {cosine:.4f}")
assert [neighbour for neighbour, _ in nearest.values()] == ["man", "woman", "king", "queen"]
