"""The operations of a decoder's step, each one kernel or few: what models/steady.py and search/flight.py ask for."""

from regard.kernels.decoding.beam_step import advance
from regard.kernels.decoding.cached_attention import ask, recall
from regard.kernels.decoding.decode_linear import linear, logits
from regard.kernels.decoding.residual_norm import add, embed
from regard.kernels.decoding.topk import likeliest
from regard.kernels.swiglu import gate

__all__ = ["add", "advance", "ask", "embed", "gate", "likeliest", "linear", "logits", "recall"]
