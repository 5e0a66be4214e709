"""Attention: weights = normalise(score(queries, keys) + bias), output = weights · values.

`reference` is the definition; `scores`, `masks` and `normalisers` its parts; `backends` the machines that run it.
"""

from regard.attention.attend import Attention, attend, in_columns
from regard.attention.backends import BACKENDS
from regard.attention.cache import Cache
from regard.attention.heads import MultiHead
from regard.attention.masks import MASKS, Mask, causal, everything, prefix, window
from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.reference import Bias, Steps
from regard.attention.scores import SCORES, Additive, Cosine, Dot, Gaussian, General, ScaledDot, Score

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
    "Mask",
    "MultiHead",
    "Normaliser",
    "ScaledDot",
    "Score",
    "Steps",
    "attend",
    "causal",
    "everything",
    "in_columns",
    "prefix",
    "window",
]
