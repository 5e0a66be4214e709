"""Bank of the river: how attention moves a word towards its context, in three steps."""

import torch

from regard import MultiHead, attend
from regard.vectors import cosine

TOKENS = ["bank", "of", "the", "river"]
# Four directions of meaning: money, water, place, grammar. "Bank" alone means money; it hardly knows of water.
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

# 1. Plain dot products are the weights: y = Σ (bank · v) v. River comes in as far as the two already agree.
plain = show("1. weights are dot products", attend(rows, rows, rows, score="dot", normaliser="none")[0, 0, BANK])

# 2. Softmax makes the weights a distribution; every word has a say, even "of" and "the".
soft = show("2. softmax of the dot products", attend(rows, rows, rows, score="dot")[0, 0, BANK])

# 3. Projections choose what is compared: let a query for "place" match keys that have water. These are by hand;
#    training finds such matrices. Values pass as they are.
head = MultiHead(width=4, heads=1, biases=False, score="dot")
with torch.no_grad():
    for projection in (head.queries, head.keys, head.values, head.out):
        projection.weight.copy_(torch.eye(4))
    head.queries.weight[1] = torch.tensor([0.0, 0.0, 8.0, 0.0])  # the water of a query is eight times its place
    output = head(vectors[None])[0]
projected = show("3. softmax after projections", output[BANK])

weights = torch.softmax(head.queries(vectors) @ head.keys(vectors).T, -1)[BANK]
print("\nwhere bank looks:", ", ".join(f"{t} {w:.2f}" for t, w in zip(TOKENS, weights.tolist(), strict=True)))

assert alone < plain < projected
assert alone < soft < projected
assert weights.argmax() == RIVER
assert torch.allclose(weights @ vectors, output[BANK], atol=1e-6)
