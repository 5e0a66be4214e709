"""The operations of a decoder's step, each one kernel or few: what models/steady.py and search/flight.py ask for."""

from regard.attention.backends.kernels.advance import advance
from regard.attention.backends.kernels.product import linear, logits
from regard.attention.backends.kernels.recall import ask, recall
from regard.attention.backends.kernels.residual import add, embed, gate
from regard.attention.backends.kernels.survey import likeliest

__all__ = ["add", "advance", "ask", "embed", "gate", "likeliest", "linear", "logits", "recall"]
