"""The T5 bias, and MultiHead with it, against HF's T5Attention with the same weights."""

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from regard import Cache, MultiHead, Ragged, causal, everything
from regard.positions import T5

WIDTH, HEADS, DIM, BUCKETS, FARTHEST = 10, 3, 4, 8, 12
CAUSAL = pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "decoder"])


@CAUSAL
@pytest.mark.parametrize(
    ("buckets", "farthest"), [(32, 128), (8, 20), (64, 512), (33, 100), (4, 3), (128, 4000)]
)
def test_buckets_match(is_causal: bool, buckets: int, farthest: int):
    ahead = torch.arange(-5000, 5001)
    expected = T5Attention._relative_position_bucket(ahead, not is_causal, buckets, farthest)
    ours = T5(HEADS, buckets=buckets, max_distance=farthest, causal=is_causal).bucket(ahead)
    assert torch.equal(ours, expected)
    assert expected.unique().numel() > 2  # the comparison sees several buckets


def theirs(is_causal: bool) -> T5Attention:
    config = T5Config(
        d_model=WIDTH,
        d_kv=DIM,
        num_heads=HEADS,
        relative_attention_num_buckets=BUCKETS,
        relative_attention_max_distance=FARTHEST,
        is_decoder=is_causal,
        dropout_rate=0.0,
        attn_implementation="eager",
    )
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.6)
    return module.eval()


def converted(module: T5Attention) -> MultiHead:
    """T5 neither scales nor uses biases, and its attention is wider than its model."""
    bias = T5(HEADS, buckets=BUCKETS, max_distance=FARTHEST, causal=module.is_decoder)
    ours = MultiHead(
        WIDTH, HEADS, attention=HEADS * DIM, biases=False, score="dot", bias=bias
    ).double()
    names = {"queries": "q", "keys": "k", "values": "v", "out": "o"}
    weights = {f"{name}.weight": getattr(module, letter).weight for name, letter in names.items()}
    ours.load_state_dict(
        {**weights, "attention.bias.table": module.relative_attention_bias.weight.T}
    )
    return ours.eval()


def hiding(allowed: Tensor) -> Tensor:
    return torch.zeros(allowed.shape, dtype=torch.float64).masked_fill(
        ~allowed, torch.finfo(torch.float64).min
    )


@CAUSAL
@torch.no_grad()
def test_a_whole_layer(is_causal: bool):
    module, x = (
        theirs(is_causal),
        torch.randn(2, 17, WIDTH, dtype=torch.float64),
    )  # longer than the farthest bucket
    triangle = hiding(torch.ones(17, 17, dtype=torch.bool).tril()[None, None])
    expected, _, _ = module(x, mask=triangle if is_causal else None)
    ours = converted(module)(x, mask=causal if is_causal else everything)
    torch.testing.assert_close(ours, expected)


@torch.no_grad()
def test_ragged_layer_equals_padded_layer():
    module, lengths = theirs(False), [3, 17, 6]
    x = Ragged.of([torch.randn(length, WIDTH, dtype=torch.float64) for length in lengths])
    padded = torch.nn.utils.rnn.pad_sequence(x.unbind(), batch_first=True)
    real = (torch.arange(17) < torch.tensor(lengths)[:, None])[:, None, None]
    expected, _, _ = module(padded, mask=hiding(real))
    for ours, row, length in zip(converted(module)(x), expected, lengths, strict=True):
        torch.testing.assert_close(ours, row[:length])


@torch.no_grad()
def test_cached_steps_match():
    module, x = theirs(True), torch.randn(2, 9, WIDTH, dtype=torch.float64)
    ours, ours_cache, cache = converted(module), Cache(), DynamicCache()
    for step in x.split(1, dim=1):
        expected, _, _ = module(step, past_key_values=cache)
        got, ours_cache = ours.step(step, ours_cache, mask=causal)
        torch.testing.assert_close(got, expected)
    assert ours_cache.longest == 9


def test_table_gradient_matches():
    module, x = theirs(False), torch.randn(2, 17, WIDTH, dtype=torch.float64)
    towards = torch.randn_like(x)
    (expected,) = torch.autograd.grad(module(x)[0], module.relative_attention_bias.weight, towards)
    ours = converted(module)
    (got,) = torch.autograd.grad(ours(x), ours.attention.bias.table, towards)
    torch.testing.assert_close(got, expected.T)
