"""Shaw's relative positions against the paper's equations 2 and 4, written out number by number.

e_ij = x_i W^Q (x_j W^K + a_ij)ᵀ / √d, a_ij = w_clip(j − i, k), α = softmax(e) (Shaw et al. 2018,
§3.1)
"""

import math

import pytest
import torch

from regard import Cache, MultiHead, attend, causal, everything
from regard.attention import Mask
from regard.positions import Shaw

BATCH, HEADS, GROUPS, QUERIES, KEYS, DIM, OUT, REACH = 2, 6, 3, 5, 7, 4, 9, 2


def loops(q: list, k: list, v: list, table: list, first: int, seen) -> list[list[float]]:
    """One head of one sentence: a context for each query, by plain sums."""
    contexts = []
    for i, query in enumerate(q, start=first):
        energies = {}
        for j, key in enumerate(k):
            if not seen(i, j):
                continue
            w = table[max(-REACH, min(REACH, j - i)) + REACH]
            energies[j] = sum(query[c] * (key[c] + w[c]) for c in range(DIM)) / math.sqrt(DIM)
        total = sum(math.exp(e) for e in energies.values())
        contexts.append(
            [
                sum(math.exp(e) / total * v[j][c] for j, e in energies.items())
                for c in range(len(v[0]))
            ]
        )
    return contexts


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
@pytest.mark.parametrize(
    ("mask", "seen", "first"),
    [
        (everything, lambda i, j: True, 0),
        (causal, lambda i, j: j <= i, 0),
        (causal, lambda i, j: j <= i, 2),
    ],
    ids=["everything", "causal", "causal-from-2"],
)
def test_contexts_match_the_paper(backend: str, mask: Mask, seen, first: int):
    q = torch.randn(BATCH, HEADS, QUERIES, DIM, dtype=torch.float64)
    k = torch.randn(BATCH, GROUPS, KEYS, DIM, dtype=torch.float64)
    v = torch.randn(BATCH, GROUPS, KEYS, OUT, dtype=torch.float64)
    shaw = Shaw(DIM, max_distance=REACH).double()
    got = attend(q, k, v, bias=shaw, mask=mask, offset=first, backend=backend)
    table = shaw.table.tolist()
    for b in range(BATCH):
        for h in range(HEADS):
            group = h // (HEADS // GROUPS)
            expected = loops(
                q[b, h].tolist(), k[b, group].tolist(), v[b, group].tolist(), table, first, seen
            )
            torch.testing.assert_close(got[b, h], torch.tensor(expected, dtype=torch.float64))


def test_gradients_match_the_paper():
    q, k, v = (
        torch.randn(1, 1, KEYS, DIM, dtype=torch.float64, requires_grad=True) for _ in range(3)
    )
    shaw = Shaw(DIM, max_distance=REACH).double()
    apart = torch.tensor(
        [[max(-REACH, min(REACH, j - i)) + REACH for j in range(KEYS)] for i in range(KEYS)]
    )
    a = shaw.table[
        apart
    ]  # (i, j, dim): a_ij in full, which our one product of queries and table avoids
    energies = (q[0, 0, :, None] * (k[0, 0] + a)).sum(-1) / math.sqrt(DIM)
    leaves = [q, k, v, shaw.table]
    expected = torch.autograd.grad((energies.softmax(-1) @ v[0, 0]).square().sum(), leaves)
    got = torch.autograd.grad(attend(q, k, v, bias=shaw).square().sum(), leaves)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
def test_cached_steps_match_the_paper():
    """Step by step, the query's place in its tensor is always 0 and its position is not."""
    heads = MultiHead(HEADS * DIM, HEADS, bias=Shaw(DIM, max_distance=REACH)).double()
    x, cache, rows = torch.randn(BATCH, KEYS, HEADS * DIM, dtype=torch.float64), Cache(), []
    for step in x.split(1, dim=1):
        row, cache = heads.step(step, cache, mask=causal)
        rows.append(row)
    q, k, v = (
        project(x).unflatten(-1, (HEADS, -1))
        for project in (heads.queries, heads.keys, heads.values)
    )
    table = heads.attention.bias.table.tolist()
    for b in range(BATCH):
        heard = [
            loops(
                q[b, :, h].tolist(),
                k[b, :, h].tolist(),
                v[b, :, h].tolist(),
                table,
                0,
                lambda i, j: j <= i,
            )
            for h in range(HEADS)
        ]
        joined = torch.tensor(heard, dtype=torch.float64).transpose(0, 1).flatten(1)
        torch.testing.assert_close(torch.cat(rows, 1)[b], heads.out(joined))
