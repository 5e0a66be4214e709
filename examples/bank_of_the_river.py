"""Bank of the river: how attention moves a word towards its context, in three steps."""

import torch

from regard import MultiHead, attend
from regard.vectors import cosine

TOKENS = ["bank", "of", "the", "river"]
# Four dimensions of meaning: money, water, place, grammar. "Bank" alone means mostly money.
vectors = torch.tensor(
    [
        [0.9, 0.1, 0.4, 0.0],
        [0.0, 0.0, 0.1, 0.8],
        [0.0, 0.0, 0.0, 0.9],
        [0.0, 1.0, 0.5, 0.1],
    ]
)
BANK, RIVER = 0, 3


def to_river(vector: torch.Tensor) -> float:
    return cosine(vector, vectors[RIVER]).item()


def show(step: str, output: torch.Tensor) -> float:
    numbers = "  ".join(f"{number:.2f}" for number in output.tolist())
    print(f"{step:30} [{numbers}]  cosine to river {to_river(output):.3f}")
    return to_river(output)


rows = vectors[None, None]  # one batch, one head
alone = show("bank, alone", vectors[BANK])

# 1. The weights are plain dot products: y = Σ (bank · v) v. River counts as far as both agree.
context = attend(rows, rows, rows, score="dot", normaliser="none")[0, 0, BANK]
plain = show("1. weights are dot products", context)

# 2. Softmax turns the weights into a distribution; every word contributes, even "of" and "the".
soft = show("2. softmax of the dot products", attend(rows, rows, rows, score="dot")[0, 0, BANK])

# 3. Projections choose what is compared: a query with "place" matches keys with water. These are
# set by hand; training finds such matrices. Values are not projected.
head = MultiHead(width=4, heads=1, biases=False, score="dot")
with torch.no_grad():
    for projection in (head.queries, head.keys, head.values, head.out):
        projection.weight.copy_(torch.eye(4))
    head.queries.weight[1] = torch.tensor([0.0, 0.0, 8.0, 0.0])  # water of a query: 8 × its place
    output = head(vectors[None])[0]
projected = show("3. softmax after projections", output[BANK])

weights = torch.softmax(head.queries(vectors) @ head.keys(vectors).T, -1)[BANK]
shown = [f"{t} {w:.2f}" for t, w in zip(TOKENS, weights.tolist(), strict=True)]
print("\nattention of bank:", ", ".join(shown))

assert alone < plain < projected
assert alone < soft < projected
assert weights.argmax() == RIVER
assert torch.allclose(weights @ vectors, output[BANK], atol=1e-6)
