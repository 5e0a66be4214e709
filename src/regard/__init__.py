"""Regard trains, runs and shows sequence-to-sequence models built on attention."""

from regard.attention import Attention, Cache, MultiHead, attend, causal, everything, prefix, window
from regard.errors import RegardError, debug
from regard.ragged import Ragged

__version__ = "0.1.0"

__all__ = [
    "Attention",
    "Cache",
    "MultiHead",
    "Ragged",
    "RegardError",
    "attend",
    "causal",
    "debug",
    "everything",
    "prefix",
    "window",
]
