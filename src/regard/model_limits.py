"""Largest sizes of a model, far beyond any real one: a hostile file must not fill the memory.

The settings, the position encodings and the native engine read the same numbers.
"""

from __future__ import annotations

MAX_WIDTH = 1 << 16
MAX_HEADS = 1 << 10
MAX_HEAD_DIM = 1 << 14
MAX_FFN_WIDTH = 1 << 18
MAX_LAYERS = 1 << 10  # of an encoder or a decoder
MAX_WINDOW = 1 << 30
MAX_POSITIONS = 1 << 22  # learned
MAX_DISTANCE = 1 << 20  # of relative positions
MAX_BUCKETS = 1 << 16
MIN_BASE, MAX_BASE = 1e-6, 1e12  # of rotary and sinusoidal frequencies
MAX_FACTOR = 1e6  # of stretched positions, scaled scores and embeddings
MAX_TENSORS = 1 << 15
MAX_RANK = 8
MAX_VOCABULARY = 1 << 22
MAX_MEMBERS = 64  # of an ensemble
