"""ALiBi against HF Transformers' BLOOM and MPT.

Theirs is a number per key, ours depends on the distance. They differ by slope · query, a constant
per query, which softmax cancels."""

import pytest
import torch
from torch.nn import functional as F
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from regard import attend, causal
from regard.axes import Site
from regard.positions import Alibi

BATCH, TIME, DIM = 2, 9, 5
HEADS = pytest.mark.parametrize("heads", range(1, 21))


def ours(heads: int) -> torch.Tensor:
    """The bias of every query and key, by our definition on a grid."""
    queries, keys = torch.zeros(1, heads, TIME, DIM), torch.zeros(1, heads, TIME, DIM)
    return Alibi(heads)(torch.zeros(1, heads, TIME, TIME), Site.grid(queries, keys))[0]


def assert_equal_up_to_a_constant_per_query(bias: torch.Tensor, theirs: torch.Tensor) -> None:
    difference = (bias - theirs).masked_fill(torch.ones(TIME, TIME).triu(1).bool(), torch.nan)
    first = difference[..., :1]
    torch.testing.assert_close(
        difference.nan_to_num(0), first.expand_as(difference).tril(), rtol=1e-5, atol=1e-5
    )


@HEADS
def test_bias_matches_bloom(heads: int):
    theirs = build_alibi_tensor(torch.ones(1, TIME), heads, torch.float32)
    assert theirs.shape == (heads, 1, TIME)
    assert_equal_up_to_a_constant_per_query(ours(heads), theirs.expand(heads, TIME, TIME))


@HEADS
def test_bias_matches_mpt(heads: int):
    theirs = build_mpt_alibi_tensor(heads, TIME)
    assert theirs.shape == (heads, 1, TIME)
    assert_equal_up_to_a_constant_per_query(ours(heads), theirs.expand(heads, TIME, TIME))


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_attention_with_it(heads: int, backend: str):
    q, k, v = torch.randn(3, BATCH, heads, TIME, DIM)
    alibi = build_alibi_tensor(torch.ones(BATCH, TIME), heads, torch.float32).view(
        BATCH, heads, 1, TIME
    )
    hidden = torch.ones(TIME, TIME).triu(1).bool()
    expected = F.scaled_dot_product_attention(
        q, k, v, attn_mask=alibi.expand(-1, -1, TIME, -1).masked_fill(hidden, float("-inf"))
    )
    got = attend(q, k, v, bias=Alibi(heads), mask=causal, backend=backend)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(
        attend(q, k, v, mask=causal), expected, atol=1e-3
    )  # the bias is there to be seen
