"""A shuffle that is computed, not drawn: a permutation that depends on a key and on no generator's state."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt64

MASK = (1 << 64) - 1
ROUNDS = 4


def shuffled(places: UInt64[np.ndarray, " place"], count: int, key: np.uint64) -> UInt64[np.ndarray, " place"]:
    """Where places 0 … count − 1 go in a permutation picked by `key`, for any of them alone: a Feistel network on the
    next power of four (Luby and Rackoff 1988); what lands outside is sent through again until it is inside.
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    low = (np.uint64(1) << half) - np.uint64(1)
    places = places.copy()
    outside = np.ones(len(places), bool)
    while outside.any():
        walking = places[outside]
        left, right = walking >> half, walking & low
        for turn in range(ROUNDS):
            left, right = right, left ^ (mixed(right + key, turn) & low)
        places[outside] = (left << half) | right
        outside[outside] = places[outside] >= count
    return places


def keyed(*numbers: int) -> np.uint64:
    """One key out of several numbers."""
    key = np.zeros(1, np.uint64)
    for number in numbers:
        key = mixed(key, number)
    return np.uint64(key[0])


def mixed(values: UInt64[np.ndarray, " place"], salt: int) -> UInt64[np.ndarray, " place"]:
    """splitmix64 (Steele et al. 2014): every bit of a result hangs on every bit of its value and of the salt."""
    bits = values + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 & MASK)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
