"""The operations of a decoding step: what `inference/static_decoder.py` calls."""

from regard.kernels.decoding.beam_step import beam_step
from regard.kernels.decoding.cached_attention import cached_attention, cross_attention
from regard.kernels.decoding.linear_norm import embed, linear, linear_add_norm, logits
from regard.kernels.decoding.topk import greedy_step
from regard.kernels.swiglu import swiglu

__all__ = [
    "beam_step",
    "cached_attention",
    "cross_attention",
    "embed",
    "greedy_step",
    "linear",
    "linear_add_norm",
    "logits",
    "swiglu",
]
