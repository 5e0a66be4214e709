"""The definition of attention against torch's scaled_dot_product_attention."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard import attend, causal, prefix, window
from regard.attention import Mask
from regard.attention.scores import Cosine, Dot
from regard.positions import Distance

BATCH, HEADS, GROUPS, QUERIES, KEYS, DIM, OUT = 2, 6, 3, 5, 7, 11, 9
# The backend `sdpa` calls the function it is compared with, so the reference is what is tested.
BACKENDS = pytest.mark.parametrize("backend", ["reference", "sdpa"])


def inputs(
    groups: int = HEADS, queries: int = QUERIES, keys: int = KEYS
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = ((HEADS, queries, DIM), (groups, keys, DIM), (groups, keys, OUT))
    q, k, v = (torch.randn(BATCH, *size, dtype=torch.float64) for size in sizes)
    return q, k, v


@BACKENDS
def test_everything_is_seen_by_default(backend: str):
    q, k, v = inputs()
    torch.testing.assert_close(
        attend(q, k, v, backend=backend), F.scaled_dot_product_attention(q, k, v)
    )


@BACKENDS
@pytest.mark.parametrize(("queries", "keys"), [(QUERIES, KEYS), (KEYS, QUERIES), (KEYS, KEYS)])
def test_causal_equals_is_causal(backend: str, queries: int, keys: int):
    q, k, v = inputs(queries=queries, keys=keys)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(attend(q, k, v, mask=causal, backend=backend), expected)


MASKS = [
    (causal & window(2), [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]]),
    (prefix(2), [[1, 1, 0, 0]] * 3),
    (causal | prefix(2), [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]),
]


@BACKENDS
@pytest.mark.parametrize(("mask", "table"), MASKS, ids=str)
def test_mask_equals_boolean_attn_mask(backend: str, mask: Mask, table: list[list[int]]):
    q, k, v = inputs(queries=3, keys=4)
    expected = F.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.tensor(table, dtype=torch.bool)
    )
    torch.testing.assert_close(attend(q, k, v, mask=mask, backend=backend), expected)


@BACKENDS
@pytest.mark.parametrize(("queries", "keys"), [(QUERIES, KEYS), (QUERIES, QUERIES), (1, KEYS)])
@pytest.mark.parametrize("first", [2, torch.tensor([4, 0])], ids=str)
def test_offset_shifts_the_causal_triangle(
    backend: str, queries: int, keys: int, first: int | Tensor
):
    q, k, v = inputs(queries=queries, keys=keys)
    starts = [first] * BATCH if isinstance(first, int) else first.tolist()
    allowed = torch.stack([torch.ones(queries, keys).tril(start) for start in starts]).bool()[
        :, None
    ]
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    torch.testing.assert_close(
        attend(q, k, v, mask=causal, offset=first, backend=backend), expected
    )


@BACKENDS
def test_bias_equals_float_attn_mask(backend: str):
    q, k, v = inputs()
    bias = Distance(HEADS, DIM, max_distance=3).double()
    with torch.no_grad():
        bias.table.normal_()
    added = torch.empty(HEADS, QUERIES, KEYS, dtype=torch.float64)
    for head in range(HEADS):
        for i in range(QUERIES):
            for j in range(KEYS):
                added[head, i, j] = bias.table[head, min(max(j - i, -3), 3) + 3].item() / DIM**0.5
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
    torch.testing.assert_close(attend(q, k, v, bias=bias, backend=backend), expected)


@BACKENDS
@pytest.mark.parametrize("groups", [GROUPS, 2, 1])
def test_kv_heads_equal_enable_gqa(backend: str, groups: int):
    q, k, v = inputs(groups)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(attend(q, k, v, backend=backend), expected)


@BACKENDS
def test_dot_equals_scale_one(backend: str):
    q, k, v = inputs()
    expected = F.scaled_dot_product_attention(q, k, v, scale=1.0)
    torch.testing.assert_close(attend(q, k, v, score=Dot(HEADS, DIM), backend=backend), expected)


@BACKENDS
def test_cosine_matches_on_unit_vectors(backend: str):
    q, k, v = inputs()
    ours = attend(q, k, v, score=Cosine(HEADS, DIM, scale=5.0), backend=backend)
    expected = F.scaled_dot_product_attention(
        q / q.norm(dim=-1, keepdim=True), F.normalize(k, dim=-1), v, scale=5.0
    )
    torch.testing.assert_close(ours, expected)


@BACKENDS
def test_gradients_match(backend: str):
    leaves = [x.requires_grad_() for x in inputs(GROUPS, KEYS, KEYS)]
    towards = torch.randn(BATCH, HEADS, KEYS, OUT, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    wanted = torch.autograd.grad(expected, leaves, towards)
    got = torch.autograd.grad(attend(*leaves, mask=causal, backend=backend), leaves, towards)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
