"""The operations of a decoder's step, each one kernel or few: what models/steady.py and search/flight.py ask for."""

from regard.kernels.decoding.advance import advance
from regard.kernels.decoding.product import linear, logits
from regard.kernels.decoding.recall import ask, recall
from regard.kernels.decoding.residual import add, embed
from regard.kernels.decoding.survey import likeliest
from regard.kernels.gate import gate

__all__ = ["add", "advance", "ask", "embed", "gate", "likeliest", "linear", "logits", "recall"]
