"""Attention: weights = normalise(score(queries, keys) + bias), output = weights · values.

`reference` is the definition; `scores`, `masks` and `normalisers` are its parts; `backends` run it.
"""

from regard.attention.attend import Attention, attend, attend_columns
from regard.attention.backends import BACKENDS
from regard.attention.cache import Cache
from regard.attention.heads import MultiHead
from regard.attention.masks import MASKS, Mask, causal, everything, prefix, window
from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.reference import Bias, Intermediates
from regard.attention.scores import (
    SCORES,
    Additive,
    Cosine,
    Dot,
    Gaussian,
    General,
    ScaledDot,
    Score,
)

__all__ = [
    "BACKENDS",
    "MASKS",
    "NORMALISERS",
    "SCORES",
    "Additive",
    "Attention",
    "Bias",
    "Cache",
    "Cosine",
    "Dot",
    "Gaussian",
    "General",
    "Intermediates",
    "Mask",
    "MultiHead",
    "Normaliser",
    "ScaledDot",
    "Score",
    "attend",
    "attend_columns",
    "causal",
    "everything",
    "prefix",
    "window",
]
